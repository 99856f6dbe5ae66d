"""Functions of one namespace do not see what those of another did to their process."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pennon
from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.support.server import PennonProcess


def test_a_module_changed_in_one_namespace_is_unchanged_in_another(spark_server: PennonProcess) -> None:
    @pennon.udf
    def poison(owner: str) -> str:
        import colorsys

        found: str = getattr(colorsys, "OWNER", owner)  # it was also tried before, in the same process
        colorsys.OWNER = owner  # type: ignore[attr-defined]
        return found

    db = pennon.connect(spark_server.url)
    with RestClient(spark_server.url) as rest:
        for namespace in (secrets.token_hex(6), secrets.token_hex(6)):
            rest.post(f"/v1/namespace/{namespace}/create", {})
            table = db.create_table("t", [{"owner": namespace}] * 4, namespace_path=[namespace])
            table.add_columns({"found": poison})
            table.backfill("found", progress=False)
            assert [row["found"] for row in table.search().to_list()] == [namespace] * 4
