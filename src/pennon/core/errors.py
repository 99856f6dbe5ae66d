"""The errors of Pennon, and the HTTP status of each error code.

Every error that reaches a client is a ``LanceNamespaceError`` of the published package; its message says what is wrong,
with which object, and what to do. ``status_of`` is the only place that maps an error to an HTTP status. Pennon's own
classes, each with a name of its own::

    LanceNamespaceError
    ├── InvalidInputError
    │   ├── BodyTooLargeError           server     a request body exceeds its limit
    │   ├── ClientGoneError             server     the client disconnected during its request
    │   ├── KeyReusedError              server     an Idempotency-Key was used for another request
    │   └── LancePanicError             tables     Lance panicked
    ├── ConcurrentModificationError
    │   ├── VersionConflictError        commits    a version does not follow the latest one
    │   └── LocationInUseError          namespace  files of a dropped table are still at a location
    └── ServiceUnavailableError
        └── CommitOutcomeUnknownError   catalog    the connection was lost during a commit
    ValueError
    ├── SettingsError                   core       a setting is unknown or invalid
    ├── ArrowMessageError               core       an Arrow message is corrupt or claims too much
    ├── InvalidManifestError            commits    a manifest is corrupt or unsafe to read
    └── ManifestError                   functions  the environment manifest of a function is invalid
    Exception
    ├── ForeignKeyError                 catalog    a parent row is missing, or still referenced
    ├── SchemaVersionError              catalog    the schema version is not supported
    ├── LeaseLostError                  jobs       another worker has the job
    ├── StopRequestedError              jobs       the job must be cancelled, paused or timed out
    ├── NotComparableError              views      two versions of a source cannot be compared
    ├── JobAbortedError and others      pipeline   a job, a task, Spark or an environment failed
    ├── FunctionFailedError and others  functions  a function failed, or cannot be loaded
    ├── JobError                        client     a job failed, timed out or was cancelled
    └── CommandError                    cli        a command failed, with its exit code
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from itertools import islice

from lance_namespace.errors import ErrorCode, LanceNamespaceError

#: Comparing two names of this length takes up to 0.5 ms.
_MAX_SUGGESTED_LENGTH = 48
#: Of this many candidates, the ones with the most common letters are compared.
_MAX_CANDIDATES, _MAX_COMPARED = 2000, 20

_CODES_BY_STATUS: dict[int, tuple[int, ...]] = {
    400: (13, 20),
    401: (16,),
    403: (15,),
    404: (1, 4, 6, 8, 10, 11, 12, 22),
    406: (0,),
    409: (2, 3, 5, 7, 9, 14, 19, 23),
    429: (21,),
    500: (18,),
    503: (17,),
}

STATUS_BY_CODE: dict[ErrorCode, int] = {
    ErrorCode(code): status for status, codes in _CODES_BY_STATUS.items() for code in codes
}


def status_of(error: LanceNamespaceError) -> int:
    """Return the HTTP status of an error."""
    return STATUS_BY_CODE[error.code]


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest candidate, or an empty string.

    Clients choose the names, and the time grows with their number and the square of their lengths. So long names are
    not compared, and of many candidates only some are.
    """
    if len(name) > _MAX_SUGGESTED_LENGTH:
        return ""
    known = (candidate for candidate in islice(candidates, _MAX_CANDIDATES) if candidate != name)
    fitting = (candidate for candidate in known if abs(len(candidate) - len(name)) <= len(name) // 2 + 1)
    letters = set(name)
    alike = heapq.nlargest(_MAX_COMPARED, fitting, key=lambda candidate: len(letters.intersection(candidate)))
    nearest = difflib.get_close_matches(name, alike, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED: "This server does not support the operation; /openapi.json lists those it supports.",
    ErrorCode.NAMESPACE_NOT_FOUND: "Create the namespace first, or check its name.",
    ErrorCode.NAMESPACE_ALREADY_EXISTS: "Use mode exist_ok to keep it, or overwrite to replace it.",
    ErrorCode.NAMESPACE_NOT_EMPTY: "Drop what is in it first, or use behavior cascade.",
    ErrorCode.TABLE_NOT_FOUND: "It may have been dropped or renamed; list the namespace's tables.",
    ErrorCode.TABLE_ALREADY_EXISTS: "Choose another name, or drop the table that has it.",
    ErrorCode.TABLE_INDEX_NOT_FOUND: "List the table's indices.",
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: "Choose another name, or replace the index.",
    ErrorCode.TABLE_TAG_NOT_FOUND: "List the table's tags.",
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: "Update the tag to move it.",
    ErrorCode.TRANSACTION_NOT_FOUND: "Transactions and jobs are kept for a limited time; use the id as answered.",
    ErrorCode.TABLE_VERSION_NOT_FOUND: "It may have been cleaned up; list the table's versions.",
    ErrorCode.TABLE_COLUMN_NOT_FOUND: "Describe the table to see its columns.",
    ErrorCode.INVALID_INPUT: "Correct the request; sending it again unchanged cannot succeed.",
    ErrorCode.CONCURRENT_MODIFICATION: "Read the latest state and try again on top of it.",
    ErrorCode.PERMISSION_DENIED: "Ask an administrator for a key with the role that is needed.",
    ErrorCode.UNAUTHENTICATED: "Send a valid key in the x-api-key header or as a bearer token.",
    ErrorCode.SERVICE_UNAVAILABLE: "Try again in a moment.",
    ErrorCode.INTERNAL: "Report it with the request id; the server's log has the details.",
    ErrorCode.INVALID_TABLE_STATE: "The object's present state does not allow this.",
    ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: "Make the data fit the table's schema.",
    ErrorCode.THROTTLING: "Slow down and try again.",
    ErrorCode.TABLE_BRANCH_NOT_FOUND: "List the table's branches.",
    ErrorCode.TABLE_BRANCH_ALREADY_EXISTS: "Choose another name, or delete the branch that has it.",
}


def advice_for(code: ErrorCode) -> str:
    """Return the advice for an error code."""
    return _ADVICE[code]
