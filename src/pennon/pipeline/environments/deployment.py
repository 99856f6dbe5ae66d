"""The deployment of an environment to the executors of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.pipeline.cancellation import Check, never
from pennon.pipeline.environments.environment import DeployedEnvironment, Environment

if TYPE_CHECKING:
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.cache import EnvironmentCache


@contextmanager
def deployed(
    session: Session, environment: Environment, cache: EnvironmentCache, check: Check = never, tenant: str = ""
) -> Iterator[tuple[Session, DeployedEnvironment]]:
    """Build an environment and deploy it to a cluster; yield the session to use, and the deployed environment."""
    checksum = None if environment.is_empty else environment.checksum
    found = DeployedEnvironment(checksum, environment.variables, tenant=tenant)
    session.tenants.add(tenant)
    if session.cluster.is_remote:
        with session.preparing(check):
            session = session.isolated(" ".join(found.identity), check)
    if not (environment.requirements or environment.modules):
        yield session, found
    elif session.cluster.is_local:
        with cache.acquire(environment, check) as folder:
            yield session, replace(found, folder=str(folder))
    else:
        name = f"pennon-{environment.checksum[:32]}"
        with session.preparing(check):
            if name not in session.archives:
                _upload(session, environment, cache, name, check)
        yield session, replace(found, archive=name)


def _upload(session: Session, environment: Environment, cache: EnvironmentCache, name: str, check: Check) -> None:
    """Make Spark unpack an environment under a name on every executor."""
    if session.cluster.is_remote:
        with cache.acquire_archive(environment, check) as archive:
            session.spark.addArtifacts(f"{archive}#{name}", archive=True)
    else:
        # Kept for as long as the session lives, because Spark sends it to executors that start later, too.
        archive = session.held.enter_context(cache.acquire_archive(environment, check))
        session.spark.sparkContext.addArchive(f"{archive}#{name}")
    session.archives.add(name)
