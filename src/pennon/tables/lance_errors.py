"""What Lance says went wrong, as the protocol's errors: the name of the thing, and never a path of the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableBranchNotFoundError,
    TableColumnNotFoundError,
    TableIndexNotFoundError,
    TableSchemaValidationError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from pennon.core.errors import suggest

logger = logging.getLogger("pennon.tables")

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], LanceNamespaceError]]

#: Where in its own source Lance noticed: of no use to a caller.
_ORIGIN = re.compile(r",? (?:location: )?/\S+\.rs:\d+:\d+")
#: The statement that Lance makes of an expression or a filter to parse it: the caller wrote only part of it.
_STATEMENT = re.compile(r"Error parsing statement: SELECT .*\(sql parser error: (.*)\)", re.DOTALL)
_PREFIX = re.compile(
    r"^(?:(?:Wrapped error|External error|Invalid user input|LanceError\(\w+\)|Schema error|Arrow error): )+"
)
#: What storage says: nothing that a request could do about it.
_STORAGE = re.compile(r"Generic \S+ error: |\(os error \d+\)|Not found: \S*/")
_PATH = re.compile(r"(?:[A-Za-z0-9_.$%-]+/){2,}[A-Za-z0-9_.$%-]*")
#: Of a long message, which repeats the caller's SQL, so much of its beginning and its end is looked at: the time that
#: takes grows with the square of the length.
_LOOKED_AT = 2000


def _column(match: re.Match[str]) -> LanceNamespaceError:
    name = match["name"].strip('"`')
    groups = match.groupdict()
    known = [field.strip() for field in (groups.get("known") or "").split(",") if not field.strip().startswith("_")]
    nearest = groups.get("hint") or suggest(name, known)
    return TableColumnNotFoundError(f"There is no column {name!r}.{nearest}")


def _rule(pattern: str, make: Callable[[re.Match[str]], LanceNamespaceError]) -> Rule:
    return re.compile(pattern, re.DOTALL), make


class LancePanicError(InvalidInputError, RuntimeError):
    """Lance panicked; the same request would make it panic again, so clients must not retry it."""

    def __init__(self) -> None:
        super().__init__(
            "Lance panicked at this request or at the data of this version; the server's log says where. Simplify the "
            "request, its SQL above all. If other requests for this version fail too, its manifest may not fit its "
            "files: read or restore another version."
        )


#: Files of a version that are missing or corrupt: to try again does not help, so no error that clients retry.
_DAMAGE: tuple[Rule, ...] = (
    _rule(
        r"(?:Not found: |Object at location )\S*?\b(?:data|_deletions|_indices|_blobs)/",
        lambda _: TableVersionNotFoundError(
            "The version cannot be read: its manifest names files that storage does not have. They were removed, or "
            "never written; read or restore another version."
        ),
    ),
    _rule(
        r"Encountered (?:corrupt file|internal error)|File name too long|failed to decode Protobuf"
        r"|Fragment \d+ does not contain any data",
        lambda m: InvalidInputError(f"The version cannot be read: its files are corrupt. {plain(m.string)}"),
    ),
    _rule(r"^Task was aborted|task \d+ panicked", lambda _: LancePanicError()),  # by a panic on a thread of Lance's own
)

_RULES: tuple[Rule, ...] = (
    _rule(
        r"No field named (?P<name>\S+?)\.(?: Valid fields are (?P<known>[^.]*)\.)?"
        r"(?P<hint> Did you mean '[^']*'\?)?(?:[.,]|$|\s)",
        _column,
    ),
    _rule(r"[Cc]olumn ['\"]?(?P<name>[^'\" ]+)['\"]? (?:does not exist|not found)", _column),
    _rule(r"key column '(?P<name>[^']+)' does not exist", _column),
    _rule(r"Embedding column (?P<name>.+) is not in the dataset", _column),
    _rule(r"field path '(?P<name>[^']+)' does not exist", _column),
    _rule(r"'?(?P<name>[^' ]+) not found in schema", _column),
    _rule(
        r"(?:Append with different schema|fields did not match|should have type|schema mismatch|Unsupported data type"
        r"|^LanceError\(Schema\)|is a reserved name)",
        lambda m: TableSchemaValidationError(f"The data does not fit the table's schema: {plain(m.string)}"),
    ),
    _rule(
        r"(?:non-nullable|(?:declared|marked) (?:as )?non-null|contain(?:s|ed) null)",
        lambda m: TableSchemaValidationError(f"The data does not fit the table's schema: {plain(m.string)}"),
    ),
    _rule(r"index not found: name=(?P<name>\S+?),", lambda m: TableIndexNotFoundError(f"No index {m['name']!r}.")),
    _rule(
        r"tag (?P<name>\S+) already exists", lambda m: TableTagAlreadyExistsError(f"Tag {m['name']!r} already exists.")
    ),
    _rule(r"tag (?P<name>\S+) does not exist", lambda m: TableTagNotFoundError(f"There is no tag {m['name']!r}.")),
    _rule(r"[Bb]ranch (?P<name>\S+) does not exist", lambda m: TableBranchNotFoundError(f"No branch {m['name']!r}.")),
    _rule(
        r"Dataset already exists",
        lambda _: TableAlreadyExistsError("The table already exists: another caller has just made it."),
    ),
    _rule(r"version (?P<name>\S+) does not exist", lambda m: TableVersionNotFoundError(f"No version {m['name']}.")),
    _rule(r"JSON parse error", lambda _: InvalidInputError("The column holds text that is not JSON.")),
    _rule(
        r"(?:Retryable commit conflict|Too many concurrent writers|commit conflict|Incompatible transaction)",
        lambda _: ConcurrentModificationError("Other writers changed the same rows at the same time; try again."),
    ),
    *_DAMAGE,
    _rule(
        r"(?:^|: )Internal error: (?P<what>[^\n]*)",  # DataFusion's own; a retry fails again
        lambda m: InvalidInputError(
            f"Lance cannot evaluate this request: {plain(m['what'])} Write its SQL in another way. If other requests "
            "for this version fail too, read or restore another version."
        ),
    ),
    _rule(
        r"(?:Invalid user input|[Ee]rror (?:parsing|tokenizing|resolving)|Expression is not valid|Cast error"
        r"|^LanceError\(Arrow\)|^Query Execution error: .*Arrow error|(?:^|: )Execution error: |Failed to coerce types"
        r"|^Not supported: |Error applying filter expression|Error during planning: |This feature is not implemented)",
        lambda m: InvalidInputError(plain(m.string)),
    ),
)


def plain(message: str) -> str:
    """Return what Lance says without its own source positions and without paths of the server."""
    text = _STATEMENT.sub(r"The SQL cannot be read: \1", _ORIGIN.sub("", _shortened(message)))
    text = _PREFIX.sub("", text).split("\n", 1)[0].strip()
    text = _PATH.sub("…", text)
    return text[:500]


def find_damage(error: BaseException) -> LanceNamespaceError | None:
    """Return the protocol's error for a version whose files are missing or corrupt; none for any other error."""
    message = _shortened(str(error))
    found = ((pattern.search(message), make) for pattern, make in _DAMAGE)
    return next((make(match) for match, make in found if match is not None), None)


def translate(error: BaseException) -> LanceNamespaceError | None:
    """Return the protocol's error for what Lance raised; none when it is not about the request."""
    texts = [part for part in error.args if isinstance(part, str)]
    whole = "".join(texts) if 1 < len(texts) == len(error.args) else str(error)  # pylance cuts some in two
    message = _shortened(whole)
    for pattern, make in _RULES:
        match = pattern.search(message)
        if match is not None:
            return make(match)
    if _STORAGE.search(message):
        return None
    if isinstance(error, (ValueError, TypeError, KeyError, OverflowError, NotImplementedError)):
        return InvalidInputError(plain(message) or "The request cannot be carried out.")
    return None


def _shortened(message: str) -> str:
    return message if len(message) <= 2 * _LOOKED_AT else f"{message[:_LOOKED_AT]}…{message[-_LOOKED_AT:]}"


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise the protocol's errors for those of Lance inside the block."""
    try:
        yield
    except LanceNamespaceError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RuntimeError, NotImplementedError) as error:
        known = translate(error)
        if known is None and _STORAGE.search(str(error)):
            raise OSError(str(error)) from error
        if known is None:
            raise
        raise known from error
    except BaseException as error:
        # A panic of Lance is no Exception, and would pass by all who have to tidy up or answer.
        if type(error).__name__ == "PanicException":
            logger.exception("Lance panicked")
            raise LancePanicError from error
        raise
