"""The caller of a request, with its role and context: set once per request, read by any layer."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from pennon.core.identifiers import ROOT, Identifier, is_within


class Role(enum.IntEnum):
    """The role of a key; each role includes the ones before it."""

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
    """An authenticated caller, with its grants."""

    name: str
    grants: tuple[Grant, ...]

    def role_on(self, identifier: Sequence[str]) -> Role | None:
        """Return the strongest role on an object; None if the object is hidden."""
        roles = [grant.role for grant in self.grants if is_within(identifier, grant.namespace)]
        return max(roles, default=None)

    def may_traverse(self, namespace: Sequence[str]) -> bool:
        """Tell whether a namespace is visible: granted, or an ancestor of a granted one."""
        return any(
            is_within(namespace, grant.namespace) or is_within(grant.namespace, namespace) for grant in self.grants
        )

    def scopes(self) -> tuple[Identifier, ...]:
        """Return the namespaces that this caller was granted a role on."""
        return tuple(grant.namespace for grant in self.grants)


ANONYMOUS_ADMIN = Principal("anonymous", (Grant(Role.ADMIN),))


@dataclass(frozen=True)
class Caller:
    """The principal of a request, its id, and the context that its client sent."""

    principal: Principal = ANONYMOUS_ADMIN
    request_id: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    #: Records the effect of the request, given the connection and the id of its transaction.
    mark_effect: Callable[..., None] | None = None


_current: ContextVar[Caller] = ContextVar("pennon_caller", default=Caller())  # noqa: B039 (frozen)


def current_caller() -> Caller:
    """Return the caller of the current request; without a request, everything is allowed."""
    return _current.get()


def set_caller(caller: Caller) -> None:
    """Make a caller the current one for the rest of this context."""
    _current.set(caller)
