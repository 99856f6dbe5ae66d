"""Requests: their models, the objects they name, and the choices they may spell in several ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from lance_namespace.errors import InvalidInputError, PermissionDeniedError
from pydantic import BaseModel, ValidationError

from pennon.core.caller import Role, current_caller
from pennon.core.identifiers import ROOT, Identifier, check_identifier
from pennon.core.paging import decode_token, page_size

Model = TypeVar("Model", bound=BaseModel)


class HasId(Protocol):
    """A request that may name an object."""

    @property
    def id(self) -> Sequence[str] | None:
        """The identifier of the object, part by part."""


class Paged(Protocol):
    """A request for a page of a listing."""

    @property
    def limit(self) -> int | None:
        """The number of items on a page."""

    @property
    def page_token(self) -> str | None:
        """The token of the page, from the page before it."""


def request_as(model: type[Model], request: object) -> Model:
    """Return a request as an instance of its model. Lance itself passes dicts and models of other packages."""
    if isinstance(request, model):
        return request
    dump = getattr(request, "model_dump", None)
    try:
        return model.model_validate(request if dump is None else dump())
    except ValidationError as error:
        raise invalid_request(error) from None


def invalid_request(error: ValidationError) -> InvalidInputError:
    """Return the error that names the field of a request that is invalid, without its value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return InvalidInputError(f"The request is invalid at {where!r}: {first['msg']}.")


def object_id(request: HasId) -> Identifier:
    """Return the identifier that a request must have; the empty list is the root namespace."""
    if request.id is None:
        raise InvalidInputError("'id' is missing; name the object.")
    return check_identifier(request.id)


def namespace_id(request: HasId) -> Identifier:
    """Return the namespace that a request names, by default the root."""
    return check_identifier(request.id or ROOT)


def table_id(request: HasId) -> Identifier:
    """Return the table that a request names."""
    identifier = object_id(request)
    if not identifier:
        raise InvalidInputError("The root namespace is not a table; name a table.")
    return identifier


def parse_choice(field: str, value: str | None, choices: Sequence[str]) -> str:
    """Return the choice that a value spells, in any case, with or without underscores; by default the first one."""
    if value is None:
        return choices[0]
    plain = value.replace("_", "").lower()
    for choice in choices:
        if choice.replace("_", "") == plain:
            return choice
    raise InvalidInputError(f"{field} is {value!r}; it must be one of {', '.join(choices)}.")


def name_cursor(listing: str, request: Paged, largest: int) -> tuple[int, str]:
    """Return the size of the page that a request asks for, and the name after which it begins."""
    size = page_size(request.limit, largest)
    key = decode_token(listing, request.page_token, (str,))
    return size, str(key[0]) if key else ""


def require_unscoped() -> None:
    """Refuse a storage location from a caller that is confined to a namespace: locations ignore namespaces."""
    role = current_caller().principal.role_on(ROOT)
    if role is None or role < Role.WRITER:
        raise PermissionDeniedError("Only a key that is not confined to a namespace may name a location.")
