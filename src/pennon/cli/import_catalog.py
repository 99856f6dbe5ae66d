"""``pennon import``: import a directory catalog, which Lance keeps in a folder (``__manifest``)."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import typer
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    LanceNamespace,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceExistsRequest,
    RegisterTableRequest,
    connect,
)
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from pennon.cli.catalog import is_missing, open_catalog
from pennon.cli.exit_codes import CommandError, ExitCode
from pennon.cli.options import STORAGE_SETTINGS, with_settings
from pennon.cli.output import OutputFormat, OutputOption, build_table, print_note, print_result
from pennon.core.identifiers import ROOT, Identifier, check_identifier, format_identifier
from pennon.core.settings import Settings

if TYPE_CHECKING:
    from pennon.namespace import PennonNamespace

Kind = Literal["namespace", "table", "declared table"]
Action = Literal["import", "skip", "refuse"]

_PAGE = 1000
_DONE = {"import": "imported", "skip": "skipped", "refuse": "refused"}
_PLANNED = {"import": "to import", "skip": "to skip", "refuse": "to refuse"}


_Request = TypeVar("_Request")


class _Page(Protocol):
    page_token: str | None


@dataclass(frozen=True)
class SourceObject:
    """A namespace or a table of the source catalog."""

    kind: Kind
    identifier: Identifier
    location: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """The action for an object of the source, and the reason if it is not imported."""

    found: SourceObject
    action: Action
    reason: str = ""


@with_settings(*STORAGE_SETTINGS, "allowed_locations", "manage_registered_tables", directory="option")
def import_catalog(
    settings: Settings,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Folder or URL of the directory catalog.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Import the namespaces and tables of a directory catalog; the tables' data is not moved.

    Objects that already exist are skipped, so the command can be repeated. The exit code is 1 if any were refused.
    """
    found = list(walk_catalog(open_source(source, settings)))
    if not found:
        message = f"No directory catalog found in {source!r}: it has no namespaces and no tables."
        raise CommandError(message, ExitCode.NOT_FOUND)
    with _open(settings, dry_run=dry_run) as namespace:
        work = plan_import if dry_run else import_object
        steps = [work(namespace, item) for item in found]
    _report(steps, output, _PLANNED if dry_run else _DONE)
    if any(step.action == "refuse" for step in steps):
        raise typer.Exit(1)


def open_source(source: str, settings: Settings) -> LanceNamespace:
    """Open a directory catalog; on an object store, with the storage options of the settings."""
    import lance  # noqa: F401 (connect() would hide that it is missing)

    from pennon.tables.lance_errors import clean_message

    if "://" in source and urlsplit(source).scheme != "file":
        options = {f"storage.{name}": value for name, value in settings.storage_options.items()}
        try:
            return connect("dir", {"root": source, **options})
        except ValueError as error:  # which connect() raises for every error of Lance
            message = f"Cannot open {source!r}: {clean_message(str(error.__cause__ or error))}"
            raise CommandError(message, ExitCode.FAILED) from error
    folder = Path(unquote(urlsplit(source).path) if "://" in source else source).absolute()
    if not folder.is_dir():
        message = f"Folder {str(folder)!r} not found; pass the folder that contains __manifest."
        raise CommandError(message, ExitCode.NOT_FOUND)
    return connect("dir", {"root": str(folder)})


def walk_catalog(source: LanceNamespace, namespace: Identifier = ROOT) -> Iterator[SourceObject]:
    """Yield every object below a namespace of the source, each namespace before its contents."""
    for name in _pages(source.list_tables, ListTablesRequest, namespace, "tables"):
        yield _describe_table(source, (*namespace, name))
    for name in _pages(source.list_namespaces, ListNamespacesRequest, namespace, "namespaces"):
        child = (*namespace, name)
        described = source.describe_namespace(DescribeNamespaceRequest(id=list(child)))
        yield SourceObject("namespace", child, properties=dict(described.properties or {}))
        yield from walk_catalog(source, child)


def plan_import(namespace: PennonNamespace, found: SourceObject) -> Step:
    """Decide the action for an object; in a dry run, namespaces that would be created count as existing."""
    try:
        check_identifier(found.identifier)
        if found.kind == "namespace":
            return _plan_namespace(namespace, found)
        return _plan_table(namespace, found)
    except LanceNamespaceError as error:
        return Step(found, "refuse", str(error))


def import_object(namespace: PennonNamespace, found: SourceObject) -> Step:
    """Import an object, unless it already exists."""
    step = plan_import(namespace, found)
    if step.action != "import":
        return step
    identifier = list(found.identifier)
    try:
        if found.kind == "namespace":
            namespace.create_namespace(CreateNamespaceRequest(id=identifier, properties=found.properties))
        elif found.kind == "declared table":
            namespace.declare_table(
                DeclareTableRequest(id=identifier, location=found.location, properties=found.properties)
            )
        else:
            namespace.register_table(
                RegisterTableRequest(id=identifier, location=found.location or "", properties=found.properties)
            )
    except LanceNamespaceError as error:
        return Step(found, "refuse", str(error))
    return step


def _plan_namespace(namespace: PennonNamespace, found: SourceObject) -> Step:
    try:
        namespace.namespace_exists(NamespaceExistsRequest(id=list(found.identifier)))
    except NamespaceNotFoundError:
        return Step(found, "import")
    return Step(found, "skip", "already exists")


def _plan_table(namespace: PennonNamespace, found: SourceObject) -> Step:
    location = namespace.services.storage_root.check_location(found.location or "")
    try:
        known = namespace.describe_table(DescribeTableRequest(id=list(found.identifier)))
    except (TableNotFoundError, NamespaceNotFoundError):
        return Step(found, "import")
    if known.location == location:
        return Step(found, "skip", "already exists")
    return Step(found, "refuse", f"a table of that name already exists, at {known.location}")


def _describe_table(source: LanceNamespace, identifier: Identifier) -> SourceObject:
    described = source.describe_table(DescribeTableRequest(id=list(identifier), check_declared=True))
    kind: Kind = "declared table" if described.is_only_declared else "table"
    return SourceObject(kind, identifier, described.location, dict(described.properties or {}))


def _pages(
    listing: Callable[[_Request], _Page], request: Callable[..., _Request], namespace: Identifier, items: str
) -> Iterator[str]:
    token: str | None = None
    while True:
        page = listing(request(id=list(namespace), limit=_PAGE, page_token=token))
        yield from getattr(page, items)
        if not page.page_token or page.page_token == token:
            return
        token = page.page_token


@contextmanager
def _open(settings: Settings, *, dry_run: bool) -> Iterator[PennonNamespace]:
    """Open this catalog; a dry run without a catalog uses a temporary, empty one."""
    from pennon.namespace import PennonNamespace

    # Tables are looked up before they are imported, and the look-up must not import them by discovery.
    settings = settings.model_copy(update={"discover_tables": False})
    with tempfile.TemporaryDirectory(prefix="pennon-import-") as folder:
        if dry_run and is_missing(settings):
            settings = settings.model_copy(update={"database": f"sqlite:///{folder}/catalog.db"})
        with open_catalog(settings, create=True):
            pass  # rejects another schema version, which opening the namespace would migrate
        namespace = PennonNamespace(settings)
        try:
            yield namespace
        finally:
            namespace.close()


def _report(steps: list[Step], output: OutputFormat, words: dict[str, str]) -> None:
    data = [
        {
            "kind": step.found.kind,
            "id": format_identifier(step.found.identifier),
            "location": step.found.location,
            "action": step.action,
            "reason": step.reason or None,
        }
        for step in steps
    ]
    rows = [(row["kind"], row["id"], words[step.action], row["reason"]) for row, step in zip(data, steps, strict=True)]
    print_result(output, data, build_table(("Kind", "Name", "Outcome", "Reason"), rows))
    counts = Counter[str](step.action for step in steps)
    if output is OutputFormat.TABLE:
        print_note(", ".join(f"{counts[action]} {word}" for action, word in words.items()) + ".")
    if counts["refuse"] and output is OutputFormat.TABLE:
        print_note("Tables outside the storage root need --allowed-locations '[\"PREFIX\"]' on import and on serve.")
