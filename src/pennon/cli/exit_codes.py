"""What the process returns, so that scripts can tell one bad end from another."""

from __future__ import annotations

import enum
from typing import Any

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from urllib3.exceptions import HTTPError

from pennon.core.errors import status_of


class Exit(enum.IntEnum):
    """An exit code and what it means."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Any:
        """Make a code that knows its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "It was done. For `serve` and `worker`: it was told to stop, and did."
    FAILED = 1, "It could not be done, a check found something (a FAIL, a due migration), or the reader went away."
    MISUSED = 2, "It was not understood: an unknown flag, a setting that cannot be, or a request that makes no sense."
    NOT_FOUND = 3, "Something that was named is not there: a namespace, table, column, version, tag, branch or job."
    REFUSED = 4, "The state of things does not allow it: a name is taken, a namespace is not empty, and the like."
    NOT_ALLOWED = 5, "The key is missing or wrong, or its role does not suffice."
    UNREACHABLE = 6, "No server or database answers, or it is too busy; the same command may succeed later."
    JOB_FAILED = 7, "The job that was waited for failed, timed out or was cancelled."
    INTERRUPTED = 130, "It was interrupted (Ctrl-C). A job that was waited for goes on."


class CommandError(Exception):
    """A command cannot be carried out; the message says why and what to do, the code how the process ends."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


_BY_STATUS = {
    400: Exit.MISUSED,
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    404: Exit.NOT_FOUND,
    406: Exit.REFUSED,
    409: Exit.REFUSED,
    429: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
}

#: What helps on this side, where the server's own words cannot know it.
_NEXT_STEPS = {
    ErrorCode.NAMESPACE_NOT_FOUND: "`pennon namespaces list` shows those there are.",
    ErrorCode.NAMESPACE_NOT_EMPTY: "--cascade drops what is in it, too.",
    ErrorCode.TABLE_NOT_FOUND: "`pennon tables list` shows those there are.",
    ErrorCode.TABLE_TAG_NOT_FOUND: "`pennon tags list TABLE` shows those there are.",
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: "`pennon tags move` moves it.",
    ErrorCode.TRANSACTION_NOT_FOUND: "`pennon jobs list` shows the jobs there are.",
    ErrorCode.TABLE_VERSION_NOT_FOUND: "`pennon versions list TABLE` shows those there are.",
    ErrorCode.TABLE_COLUMN_NOT_FOUND: "`pennon tables show TABLE` shows its columns.",
    ErrorCode.PERMISSION_DENIED: "Use a key with that role: --api-key, PENNON_API_KEY or a profile.",
    ErrorCode.UNAUTHENTICATED: "Give a key: --api-key, PENNON_API_KEY or a profile; `pennon keys create` makes one.",
}


def exit_of(error: LanceNamespaceError) -> Exit:
    """Return the exit code of an error."""
    return _BY_STATUS.get(status_of(error), Exit.FAILED)


def next_step(error: LanceNamespaceError) -> str:
    """Return what to do about an error, if the command line knows."""
    if isinstance(error.__cause__, HTTPError):
        return "Check --url, or start a server with `pennon serve`."
    return _NEXT_STEPS.get(error.code, "")
