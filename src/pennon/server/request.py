"""A request while it is handled, and the response of an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, JsonValue

from pennon.namespace.requests import request_as
from pennon.tables.arrow_stream import ArrowSource

if TYPE_CHECKING:
    from pennon.catalog.read_cache import CachedRead
    from pennon.core.caller import Principal
    from pennon.core.identifiers import Identifier
    from pennon.namespace import PennonNamespace
    from pennon.server.http.exchange import Exchange, Headers
    from pennon.server.idempotency import Fingerprint
    from pennon.server.operations.model import Operation
    from pennon.tables.arrow_stream import Body

Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class RequestContext:
    """A request while it is handled; endpoints are called with it."""

    operation: Operation
    exchange: Exchange
    namespace: PennonNamespace
    principal: Principal
    #: The JSON body as the client sent it; empty where the body is an Arrow stream.
    content: bytes
    #: The fields of the JSON body, the path and the query.
    params: dict[str, JsonValue]
    #: Whether the body is an Arrow stream.
    has_arrow_body: bool
    #: Whether LanceDB's remote client sent the request.
    is_lancedb: bool
    #: Whether to handle the body on threads alone, because it would block the event loop for too long.
    is_large: bool = False
    #: Whether to try the event loop first: cached reads are up to date.
    allows_inline: bool = False
    #: The parsed request, where the operation's row has it parsed before its endpoint is called.
    model: BaseModel | None = None
    #: The Arrow body while it is received.
    body: Body | None = None
    fingerprint: Fingerprint | None = None
    mark_effect: Callable[..., None] | None = None
    #: The cached reads that the response was made from.
    reads: Sequence[CachedRead[Any]] = ()
    #: Tells whether the response is fresh while those reads are valid; without it the response is not cached.
    is_fresh: Callable[[], bool] | None = None

    @property
    def id(self) -> Identifier:
        """The identifier in the path."""
        return tuple(self.params.get("id") or ())  # type: ignore[arg-type]  # the codec made it a list of names

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by their lower-case names."""
        return self.exchange.headers

    def text(self, name: str) -> str | None:
        """Return a parameter of the query or the path."""
        value = self.params.get(name)
        return None if value is None else str(value)

    def source(self) -> ArrowSource:
        """Return the batches of the body."""
        if self.body is None:
            raise InvalidInputError("The body must be an Arrow stream (application/vnd.apache.arrow.stream).")
        services = self.namespace.services
        return ArrowSource(self.body, services.settings.max_grouped_append_bytes, services.arrow_limits)

    def parsed(self, model: type[Model]) -> Model:
        """Return the request of an operation that is parsed first."""
        assert isinstance(self.model, model)  # noqa: S101 (its row names this model)
        return self.model

    def parse(self, model: type[Model], **more: JsonValue) -> Model:
        """Return the parameters as a model of the protocol."""
        return request_as(model, {**self.params, **more, "id": list(self.id)})


@dataclass(frozen=True)
class Response:
    """A response with a status and headers of its own."""

    status: int
    body: bytes | Mapping[str, object]
    headers: Headers = ()


#: Carries out an operation, and returns its response: a model or a JSON value, Arrow batches, a stream, a ``Response``.
Endpoint = Callable[[RequestContext], object]
