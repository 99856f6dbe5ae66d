"""Bringing an environment to the executors of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pennon.pipeline.cancellation import Check, always
from pennon.pipeline.environments.environment import Environment, Shipped

if TYPE_CHECKING:
    from pennon.pipeline.cluster.session import Session
    from pennon.pipeline.environments.cache import Shelf


@contextmanager
def shipped(
    session: Session, environment: Environment, shelf: Shelf, check: Check = always, tenant: str = ""
) -> Iterator[tuple[Session, Shipped]]:
    """Build an environment and bring it to a cluster; lend the session to use it in, and how to find it there."""
    checksum = None if environment.is_empty else environment.checksum
    found = Shipped(checksum, environment.variables, tenant=tenant)
    session.tenants.add(tenant)
    if session.cluster.is_remote:
        with session.preparing(check):
            session = session.apart(" ".join(found.identity), check)
    if not (environment.requirements or environment.modules):
        yield session, found
    elif session.cluster.is_local:
        with shelf.lend(environment, check) as folder:
            yield session, replace(found, folder=str(folder))
    else:
        name = f"pennon-{environment.checksum[:32]}"
        with session.preparing(check):
            if name not in session.archives:
                _send(session, environment, shelf, name, check)
        yield session, replace(found, archive=name)


def _send(session: Session, environment: Environment, shelf: Shelf, name: str, check: Check) -> None:
    """Have Spark unpack an environment under a name on every executor."""
    if session.cluster.is_remote:
        with shelf.lend_packed(environment, check) as archive:
            session.spark.addArtifacts(f"{archive}#{name}", archive=True)
    else:
        # For as long as the session lives: executors that come later are given it, too.
        archive = session.borrowed.enter_context(shelf.lend_packed(environment, check))
        session.spark.sparkContext.addArchive(f"{archive}#{name}")
    session.archives.add(name)
