"""One Spark for all tests of this folder, and a namespace of a real server for each of them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
import pytest

import pennon.spark
from pennon.core.settings import load_settings
from pennon.pipeline.cluster.session import Sessions
from pennon.spark.session import accept_pandas
from tests.clients.lakes import Lake
from tests.integration.spark_source.spark_namespace import SparkNamespace
from tests.support.server import PennonProcess
from tests.support.spark import QUICK_DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3 import S3Server


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    """A session in this process that knows the source; a process has one Spark, so it ends with this folder."""
    accept_pandas()
    sessions = Sessions(load_settings(spark_master="local[2,4]", spark_conf=QUICK_DRIVER))
    with sessions.use() as session:
        pennon.spark.register(session.spark)
        yield session.spark
    sessions.close()


def _open(lake: Lake, spark: Any) -> SparkNamespace:
    client = lake.connect()
    name = f"shop_{secrets.token_hex(6)}"
    client.create_namespace(ln.CreateNamespaceRequest(id=[name]))
    return SparkNamespace(lake, client, spark, name)


@pytest.fixture
def namespace(pennon_server: PennonProcess, spark: Any) -> SparkNamespace:
    """A namespace of a server whose tables are in a folder."""
    return _open(Lake(pennon_server), spark)


@pytest.fixture(scope="module")
def s3_lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A server whose tables are on object storage, and which hands out what opens it."""
    root = s3_server.create_root()
    with PennonProcess(tmp_path_factory.mktemp("lake"), *root.arguments) as server:
        yield Lake(server, root.options, s3_server)


@pytest.fixture
def s3_shop(s3_lake: Lake, spark: Any) -> SparkNamespace:
    """A namespace of a server whose tables are on object storage."""
    return _open(s3_lake, spark)
