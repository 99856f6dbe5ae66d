"""Who calls, and with what context: set once by the binding, read wherever it matters."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from pennon.core.identifiers import ROOT, Identifier, is_within


class Role(enum.IntEnum):
    """What a key may do: each role may do all that the ones before it may."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role of a name such as ``reader``."""
        return cls[name.upper()]


@dataclass(frozen=True)
class Grant:
    """A role on a namespace and everything below it."""

    role: Role
    namespace: Identifier = ROOT


@dataclass(frozen=True)
class Principal:
    """A caller that was recognised, and what it was granted."""

    name: str
    grants: tuple[Grant, ...]

    def role_on(self, identifier: Sequence[str]) -> Role | None:
        """Return the strongest role on an object, or none when the object is hidden."""
        roles = [grant.role for grant in self.grants if is_within(identifier, grant.namespace)]
        return max(roles, default=None)

    def may_traverse(self, namespace: Sequence[str]) -> bool:
        """Tell whether a namespace is visible: granted, or on the way to a granted one."""
        return any(
            is_within(namespace, grant.namespace) or is_within(grant.namespace, namespace) for grant in self.grants
        )

    def scopes(self) -> tuple[Identifier, ...]:
        """Return the namespaces that hold all this caller may see."""
        return tuple(grant.namespace for grant in self.grants)


ANONYMOUS_ADMIN = Principal("anonymous", (Grant(Role.ADMIN),))


@dataclass(frozen=True)
class Caller:
    """The principal of a request, its id, and the context its client sent along."""

    principal: Principal = ANONYMOUS_ADMIN
    request_id: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    #: Marks the request as carried out, given the connection and id of the transaction that does it.
    mark_effect: Callable[..., None] | None = None


_current: ContextVar[Caller] = ContextVar("pennon_caller", default=Caller())  # noqa: B039 (frozen)


def current_caller() -> Caller:
    """Return the caller of the request at hand; in process, everything is allowed."""
    return _current.get()


def set_caller(caller: Caller) -> None:
    """Make a caller the current one for the rest of this context."""
    _current.set(caller)
