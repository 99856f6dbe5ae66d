"""Mapping of Lance's errors to those of the specification, without paths of the server."""

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

#: The position in Lance's own source: useless to a caller.
_ORIGIN = re.compile(r",? (?:location: )?/\S+\.rs:\d+:\d+")
#: The statement that Lance builds to parse an expression or a filter: the caller wrote only a part of it.
_STATEMENT = re.compile(r"Error parsing statement: SELECT .*\(sql parser error: (.*)\)", re.DOTALL)
_PREFIX = re.compile(
    r"^(?:(?:Wrapped error|External error|Invalid user input|LanceError\(\w+\)|Schema error|Arrow error): )+"
)
#: Errors of storage: not caused by the request.
_STORAGE = re.compile(r"Generic (?!memory )\S+ error: |\(os error \d+\)|Not found: \S*/")
_PATH = re.compile(r"(?:[A-Za-z0-9_.$%-]+/){2,}[A-Za-z0-9_.$%-]*")
#: The number of characters at the start and the end of a long message that are searched: a message repeats the caller's
#: SQL, and the time to search it is quadratic in its length.
_SEARCHED_LENGTH = 2000


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
            "Lance panicked on this request or on the data of this version; the server's log has the cause. Simplify "
            "the request, especially its SQL. If other requests for this version fail, too, its manifest may not match "
            "its files: read or restore another version."
        )


#: Missing or corrupt files of a version: a retry fails again, so these are no errors that clients retry.
_DAMAGE: tuple[Rule, ...] = (
    _rule(
        r"(?:Not found: |Object at location )\S*?\b(?:data|_deletions|_indices|_blobs)/",
        lambda _: TableVersionNotFoundError(
            "The version cannot be read: files of its manifest were not found on storage. They were removed or never "
            "written; read or restore another version."
        ),
    ),
    _rule(
        r"Encountered (?:corrupt file|internal error)|File name too long|failed to decode Protobuf"
        r"|failed to fill whole buffer|does not have sufficient data"
        r"|Fragment \d+ does not contain any data|No data files found for schema"
        # A range past the end of a file that exists: storage answered, so the file or its manifest is wrong.
        r"|Requested range was invalid|Out of range of file |but object was only \d+ bytes|Generic memory error: ",
        lambda m: InvalidInputError(f"The version cannot be read: its files are corrupt. {clean_message(m.string)}"),
    ),
    _rule(r"^Task was aborted|task \d+ panicked", lambda _: LancePanicError()),  # a panic on one of Lance's own threads
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
        lambda m: TableSchemaValidationError(f"The data does not fit the table's schema: {clean_message(m.string)}"),
    ),
    _rule(
        r"(?:non-nullable|(?:declared|marked) (?:as )?non-null|contain(?:s|ed) null)",
        lambda m: TableSchemaValidationError(f"The data does not fit the table's schema: {clean_message(m.string)}"),
    ),
    _rule(
        r"index not found: name=(?P<name>\S+?),",
        lambda m: TableIndexNotFoundError(f"The index {m['name']!r} was not found."),
    ),
    _rule(
        r"tag (?P<name>\S+) already exists", lambda m: TableTagAlreadyExistsError(f"Tag {m['name']!r} already exists.")
    ),
    _rule(
        r"tag (?P<name>\S+) does not exist", lambda m: TableTagNotFoundError(f"The tag {m['name']!r} was not found.")
    ),
    _rule(
        r"[Bb]ranch (?P<name>\S+) does not exist",
        lambda m: TableBranchNotFoundError(f"The branch {m['name']!r} was not found."),
    ),
    _rule(
        r"Dataset already exists",
        lambda _: TableAlreadyExistsError("The table already exists: another caller has just created it."),
    ),
    _rule(
        r"version (?P<name>\S+) does not exist",
        lambda m: TableVersionNotFoundError(f"The version {m['name']} was not found."),
    ),
    _rule(r"JSON parse error", lambda _: InvalidInputError("The column contains text that is not JSON.")),
    _rule(
        r"(?:Retryable commit conflict|Too many concurrent writers|commit conflict|Incompatible transaction)",
        lambda _: ConcurrentModificationError("Another writer changed the same rows at the same time; try again."),
    ),
    *_DAMAGE,
    _rule(
        r"(?:^|: )Internal error: (?P<what>[^\n]*)",  # DataFusion's own; a retry fails again
        lambda m: InvalidInputError(
            f"Lance cannot evaluate this request: {clean_message(m['what'])} Rewrite its SQL. If other requests for "
            "this version fail, too, read or restore another version."
        ),
    ),
    _rule(
        r"(?:Invalid user input|[Ee]rror (?:parsing|tokenizing|resolving)|Expression is not valid|Cast error"
        r"|^LanceError\(Arrow\)|^Query Execution error: .*Arrow error|(?:^|: )Execution error: |Failed to coerce types"
        r"|^Not supported: |Error applying filter expression|Error during planning: |This feature is not implemented)",
        lambda m: InvalidInputError(clean_message(m.string)),
    ),
)


def clean_message(message: str) -> str:
    """Return a message of Lance without its source positions and without paths of the server."""
    text = _STATEMENT.sub(r"The SQL cannot be parsed: \1", _ORIGIN.sub("", _shortened(message)))
    text = _PREFIX.sub("", text).split("\n", 1)[0].strip()
    text = _PATH.sub("…", text)
    return text[:500]


def find_damage(error: BaseException) -> LanceNamespaceError | None:
    """Return the specification's error for a version with missing or corrupt files; None for any other error."""
    message = _shortened(str(error))
    found = ((pattern.search(message), make) for pattern, make in _DAMAGE)
    return next((make(match) for match, make in found if match is not None), None)


def map_error(error: BaseException) -> LanceNamespaceError | None:
    """Return the specification's error for an error of Lance; None if the request did not cause it."""
    texts = [part for part in error.args if isinstance(part, str)]
    joined = "".join(texts) if 1 < len(texts) == len(error.args) else str(error)  # pylance splits some messages
    message = _shortened(joined)
    for pattern, make in _RULES:
        match = pattern.search(message)
        if match is not None:
            return make(match)
    if _STORAGE.search(message):
        return None
    if isinstance(error, (ValueError, TypeError, KeyError, OverflowError, NotImplementedError)):
        return InvalidInputError(clean_message(message) or "Lance rejected the request without a message.")
    return None


def _shortened(message: str) -> str:
    if len(message) <= 2 * _SEARCHED_LENGTH:
        return message
    return f"{message[:_SEARCHED_LENGTH]}…{message[-_SEARCHED_LENGTH:]}"


@contextmanager
def typed_errors() -> Iterator[None]:
    """Map Lance's errors inside the block to those of the specification."""
    try:
        yield
    except LanceNamespaceError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RuntimeError, NotImplementedError) as error:
        known = map_error(error)
        if known is None and _STORAGE.search(str(error)):
            raise OSError(str(error)) from error
        if known is None:
            raise
        raise known from error
    except BaseException as error:
        # A panic of Lance is no Exception: error handling and cleanup would miss it.
        if type(error).__name__ == "PanicException":
            logger.exception("Lance panicked")
            raise LancePanicError from error
        raise
