"""Exit codes of the command line, so that scripts can distinguish failures."""

from __future__ import annotations

import enum
from typing import Self

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from urllib3.exceptions import HTTPError

from pennon.core.errors import status_of


class ExitCode(enum.IntEnum):
    """An exit code and its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        """Create a code with its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "Success. `serve` and `worker` were asked to stop, and did."
    FAILED = 1, "The command failed, a check found a problem (FAIL, or a pending migration), or the output was closed."
    USAGE_ERROR = 2, "Invalid usage: an unknown flag, an invalid setting, or an invalid request."
    NOT_FOUND = 3, "Not found: a namespace, table, column, version, tag, branch, job, API key or directory catalog."
    CONFLICT = 4, "Conflict with the current state: for example, a name already exists or a namespace is not empty."
    PERMISSION_DENIED = 5, "The API key is missing or wrong, or its role does not permit the operation."
    UNREACHABLE = 6, "The server or the database is unreachable or overloaded; the same command may succeed later."
    JOB_FAILED = 7, "The job that the command waited for failed, timed out or was cancelled."
    INTERRUPTED = 130, "Interrupted (Ctrl-C). A job that the command waited for continues."


class CommandError(Exception):
    """A command failed; the message says why and what to do, ``code`` is the exit code."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


_BY_STATUS = {
    400: ExitCode.USAGE_ERROR,
    401: ExitCode.PERMISSION_DENIED,
    403: ExitCode.PERMISSION_DENIED,
    404: ExitCode.NOT_FOUND,
    406: ExitCode.CONFLICT,
    409: ExitCode.CONFLICT,
    429: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
}

#: What to do on the command line, which the server's message cannot know.
_HINTS = {
    ErrorCode.NAMESPACE_NOT_FOUND: "List the namespaces with `pennon namespaces list`.",
    ErrorCode.NAMESPACE_NOT_EMPTY: "Use --cascade to drop its contents, too.",
    ErrorCode.TABLE_NOT_FOUND: "List the tables with `pennon tables list`.",
    ErrorCode.TABLE_TAG_NOT_FOUND: "List the tags with `pennon tags list TABLE`.",
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: "Move the tag with `pennon tags move`.",
    ErrorCode.TRANSACTION_NOT_FOUND: "List the jobs with `pennon jobs list`.",
    ErrorCode.TABLE_VERSION_NOT_FOUND: "List the versions with `pennon versions list TABLE`.",
    ErrorCode.TABLE_COLUMN_NOT_FOUND: "List the columns with `pennon tables show TABLE`.",
    ErrorCode.PERMISSION_DENIED: "Use an API key with that role: --api-key, PENNON_API_KEY or a profile.",
    ErrorCode.UNAUTHENTICATED: (
        "Pass an API key: --api-key, PENNON_API_KEY or a profile. Create one with `pennon keys create`."
    ),
}


def exit_code_of(error: LanceNamespaceError) -> ExitCode:
    """Return the exit code of an error."""
    return _BY_STATUS.get(status_of(error), ExitCode.FAILED)


def hint_for(error: LanceNamespaceError) -> str:
    """Return what to do about an error, if the command line knows."""
    if isinstance(error.__cause__, HTTPError):
        return "Check --url, or start a server with `pennon serve`."
    return _HINTS.get(error.code, "")
