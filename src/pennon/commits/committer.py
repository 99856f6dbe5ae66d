"""Pennon's own commits: the server hands Lance this namespace of one table, so that it commits as every client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lance_namespace import (
    CreateTableVersionResponse,
    DeclareTableResponse,
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
)
from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError
from lance_namespace_urllib3_client.models import TableVersion

from pennon.commits.history import manifest_path
from pennon.commits.staging import Proposal, staged_name
from pennon.storage.layout import check_branch, versions_folder

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.authority import CommitAuthority
    from pennon.commits.history import History
    from pennon.storage.file_io import FileIO


#: Errors after which it is not known whether the catalog has the version.
_UNCLEAR = (InternalError, ServiceUnavailableError)


class TableCommitter(LanceNamespace):
    """A namespace that knows one incarnation of one table: a commit meant for it cannot reach its successor.

    Lance turns whatever goes wrong here into an error of its own; the original is kept in ``failure``.
    """

    def __init__(
        self,
        table: Table,
        folder: FileIO,
        options: dict[str, str],
        history: History,
        authority: CommitAuthority,
        note: Callable[[Connection], str],
    ) -> None:
        self._folder = folder
        self._options = options
        self._history = history
        self._authority = authority
        self.begin(table, note)

    def begin(self, table: Table, note: Callable[[Connection], str]) -> None:
        """Begin a write, of which nothing is known yet."""
        self.table = table
        self.failure: Exception | None = None
        self.transaction_id: str | None = None
        self.committed: Version | None = None
        #: The version that is being committed.
        self.proposed = 0
        self._in_doubt = False
        self._note = note

    @property
    def refused(self) -> bool:
        """Whether no version can come of what was staged: it was never proposed, or each time clearly refused."""
        return self.table.managed and self.committed is None and not self._in_doubt

    def namespace_id(self) -> str:
        """Return what tells this namespace from others."""
        return f"pennon-table-{self.table.id}"

    def describe_table(self, request: Any) -> DescribeTableResponse:  # noqa: ARG002
        """Tell Lance where the table is."""
        return DescribeTableResponse(
            location=self.table.location,
            managed_versioning=self.table.managed,
            storage_options=self._options or None,
        )

    def declare_table(self, request: Any) -> DeclareTableResponse:  # noqa: ARG002
        """Tell Lance where a new table goes; it is declared by its first commit."""
        return DeclareTableResponse(
            location=self.table.location, managed_versioning=True, storage_options=self._options or None
        )

    def list_table_versions(self, request: Any) -> ListTableVersionsResponse:
        """List the newest versions first: Lance asks for the latest."""
        branch = check_branch(request.get("branch"))
        limit = request.get("limit") or 1000
        found = self._history.page(self.table, branch, after=None, descending=True, limit=limit)
        return ListTableVersionsResponse(versions=[self._model(version) for version in found])

    def describe_table_version(self, request: Any) -> DescribeTableVersionResponse:
        """Return one version."""
        found = self._history.find(self.table, check_branch(request.get("branch")), request["version"])
        return DescribeTableVersionResponse(version=self._model(found))

    def create_table_version(self, request: Any) -> CreateTableVersionResponse:
        """Commit what Lance staged."""
        proposal = Proposal(
            version=request["version"],
            manifest_path=request["manifest_path"],
            branch=check_branch(request.get("branch")),
            manifest_size=request.get("manifest_size"),
            e_tag=request.get("e_tag"),
            naming_scheme=request.get("naming_scheme"),
        )
        self.proposed = proposal.version
        try:
            (version,) = self._authority.commit([(self.table, proposal)], self._note)
        except Exception as error:
            self.failure = error
            # What breaks off half-way may have recorded the version: whoever reads it next finishes it then.
            in_doubt = not isinstance(error, LanceNamespaceError) or isinstance(error, _UNCLEAR)
            self._in_doubt |= in_doubt
            if not in_doubt:
                self._remove_staged(proposal)
            raise
        self.failure = None
        self.transaction_id = version.transaction_id
        self.committed = version
        return CreateTableVersionResponse(version=self._model(version))

    def _remove_staged(self, proposal: Proposal) -> None:
        """Remove what was refused: Lance stages its next attempt under another name, and never removes the last."""
        name = staged_name(self.table, self._folder, proposal)
        self._folder.remove(f"{versions_folder(proposal.branch)}/{name}")

    def _model(self, version: Version) -> TableVersion:
        return TableVersion(
            version=version.version,
            manifest_path=manifest_path(version, self._folder),
            manifest_size=version.size,
            e_tag=version.e_tag,
            timestamp_millis=version.created_at,
        )
