"""Pennon's own commits: Lance gets a namespace of one table, and commits through it as every client does."""

from __future__ import annotations

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
    from collections.abc import Sequence

    from lance.fragment import FragmentMetadata

    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.commits.authority import CommitAuthority, OnCommit
    from pennon.commits.history import History
    from pennon.storage.file_io import FileIO


#: Errors after which the catalog may or may not have the version.
_OUTCOME_UNKNOWN = (InternalError, ServiceUnavailableError)


class TableCommitter(LanceNamespace):
    """A namespace with one incarnation of one table: a commit to it cannot reach a table created again by its name.

    Lance replaces errors raised here by its own; ``failure`` keeps the original.
    """

    def __init__(
        self,
        table: Table,
        folder: FileIO,
        options: dict[str, str],
        history: History,
        authority: CommitAuthority,
        on_commit: OnCommit,
    ) -> None:
        self._folder = folder
        self._options = options
        self._history = history
        self._authority = authority
        self.begin(table, on_commit)

    def begin(self, table: Table, on_commit: OnCommit) -> None:
        """Begin a write, and reset the outcome of the previous one."""
        self.table = table
        self.failure: Exception | None = None
        self.transaction_id: str | None = None
        self.committed: Version | None = None
        #: The version number of the current commit.
        self.proposed = 0
        self._in_doubt = False
        self._on_commit = on_commit

    @property
    def is_refused(self) -> bool:
        """Whether nothing was committed for certain: nothing was proposed, or every proposal was refused."""
        return self.table.managed and self.committed is None and not self._in_doubt

    def namespace_id(self) -> str:
        """Return the id of this namespace."""
        return f"pennon-table-{self.table.id}"

    def describe_table(self, request: Any) -> DescribeTableResponse:  # noqa: ARG002
        """Return the location of the table."""
        return DescribeTableResponse(
            location=self.table.location,
            managed_versioning=self.table.managed,
            storage_options=self._options or None,
        )

    def declare_table(self, request: Any) -> DeclareTableResponse:  # noqa: ARG002
        """Return the location of a new table; its first commit declares it."""
        return DeclareTableResponse(
            location=self.table.location, managed_versioning=True, storage_options=self._options or None
        )

    def list_table_versions(self, request: Any) -> ListTableVersionsResponse:
        """List the newest versions first: Lance looks for the latest."""
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
            (version,) = self._authority.commit([(self.table, proposal)], self._on_commit)
        except Exception as error:
            if not self._fail(error):
                self._remove_staged(proposal)
            raise
        self._succeed(version)
        return CreateTableVersionResponse(version=self._model(version))

    def append(
        self, latest: Version, content: bytes, fragments: Sequence[FragmentMetadata]
    ) -> tuple[Version, bytes] | None:
        """Commit new fragments without Lance; returns the version and its manifest, or None if Lance must commit."""
        self.proposed = latest.version + 1
        try:
            done = self._authority.append(self.table, latest, content, fragments, self._on_commit)
        except Exception as error:
            self._fail(error)
            raise
        if done is not None:
            self._succeed(done[0])
        return done

    def _succeed(self, version: Version) -> None:
        self.failure = None
        self.transaction_id = version.transaction_id
        self.committed = version

    def _fail(self, error: Exception) -> bool:
        """Keep the error of a commit; true if the version may have been recorded: then the next reader publishes it."""
        self.failure = error
        in_doubt = not isinstance(error, LanceNamespaceError) or isinstance(error, _OUTCOME_UNKNOWN)
        self._in_doubt |= in_doubt
        return in_doubt

    def _remove_staged(self, proposal: Proposal) -> None:
        """Remove a refused manifest: Lance stages its next attempt under another name, and never removes this one."""
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
