"""``pennon import``: bring the catalog that Lance keeps in a folder (``__manifest``) into this one."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
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
from pennon.cli.exit_codes import CommandError, Exit
from pennon.cli.options import PLACE_SETTINGS, with_settings
from pennon.cli.output import Form, FormOption, note, show, table_of
from pennon.core.identifiers import ROOT, Identifier, check_identifier, format_identifier
from pennon.core.settings import Settings

if TYPE_CHECKING:
    from pennon.namespace import PennonNamespace

Kind = Literal["namespace", "table", "declared table"]
Action = Literal["import", "skip", "refuse"]

_PAGE = 1000
_DONE = {"import": "imported", "skip": "skipped", "refuse": "refused"}
_PLANNED = {"import": "to import", "skip": "to skip", "refuse": "to refuse"}


@dataclass(frozen=True)
class Found:
    """A namespace or a table of the source."""

    kind: Kind
    identifier: Identifier
    location: str | None = None
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """What is done with something that was found, and why nothing is where nothing is."""

    found: Found
    action: Action
    reason: str = ""


@with_settings(*PLACE_SETTINGS, "allowed_locations", "manage_registered", directory="option")
def import_catalog(
    settings: Settings,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Folder or address of the directory catalog.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Import the namespaces and tables of a directory catalog; the tables stay where they are.

    What is already here is skipped, so it can be run again. The exit code is 1 when something was refused.
    """
    found = list(walk(open_source(source, settings)))
    if not found:
        said = f"There is no directory catalog in {source!r}: no namespaces and no tables."
        raise CommandError(said, Exit.NOT_FOUND)
    with _open(settings, dry_run=dry_run) as namespace:
        work = plan if dry_run else carry_out
        steps = [work(namespace, item) for item in found]
    _report(steps, output, _PLANNED if dry_run else _DONE)
    if any(step.action == "refuse" for step in steps):
        raise typer.Exit(1)


def open_source(source: str, settings: Settings) -> LanceNamespace:
    """Open a directory catalog; on an object store, with the options that the storage root has."""
    import lance  # noqa: F401 (the published interface would hide in an error of its own that this is missing)

    from pennon.tables.lance_errors import plain

    if "://" in source and urlsplit(source).scheme != "file":
        options = {f"storage.{name}": value for name, value in settings.storage_options.items()}
        try:
            return connect("dir", {"root": source, **options})
        except ValueError as error:  # for whatever Lance says
            said = f"{source!r} cannot be opened: {plain(str(error.__cause__ or error))}"
            raise CommandError(said, Exit.FAILED) from error
    folder = Path(unquote(urlsplit(source).path) if "://" in source else source).absolute()
    if not folder.is_dir():
        said = f"There is no folder {str(folder)!r}; name the one that holds __manifest."
        raise CommandError(said, Exit.NOT_FOUND)
    return connect("dir", {"root": str(folder)})


def walk(source: LanceNamespace, namespace: Identifier = ROOT) -> Iterator[Found]:
    """Return everything in a namespace of the source, each namespace before what is in it."""
    for name in _pages(source.list_tables, ListTablesRequest, namespace, "tables"):
        yield _describe_table(source, (*namespace, name))
    for name in _pages(source.list_namespaces, ListNamespacesRequest, namespace, "namespaces"):
        child = (*namespace, name)
        described = source.describe_namespace(DescribeNamespaceRequest(id=list(child)))
        yield Found("namespace", child, properties=dict(described.properties or {}))
        yield from walk(source, child)


def plan(namespace: PennonNamespace, found: Found) -> Step:
    """Decide what is to be done with something; a namespace that only would exist counts as one that does."""
    try:
        check_identifier(found.identifier)
        if found.kind == "namespace":
            return _plan_namespace(namespace, found)
        return _plan_table(namespace, found)
    except LanceNamespaceError as error:
        return Step(found, "refuse", str(error))


def carry_out(namespace: PennonNamespace, found: Found) -> Step:
    """Import something that is not here yet."""
    step = plan(namespace, found)
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


def _plan_namespace(namespace: PennonNamespace, found: Found) -> Step:
    try:
        namespace.namespace_exists(NamespaceExistsRequest(id=list(found.identifier)))
    except NamespaceNotFoundError:
        return Step(found, "import")
    return Step(found, "skip", "it is already here")


def _plan_table(namespace: PennonNamespace, found: Found) -> Step:
    location = namespace.services.storage_root.check_location(found.location or "")
    try:
        known = namespace.describe_table(DescribeTableRequest(id=list(found.identifier)))
    except (TableNotFoundError, NamespaceNotFoundError):
        return Step(found, "import")
    if known.location == location:
        return Step(found, "skip", "it is already here")
    return Step(found, "refuse", f"a table of that name is already here, at {known.location}")


def _describe_table(source: LanceNamespace, identifier: Identifier) -> Found:
    described = source.describe_table(DescribeTableRequest(id=list(identifier), check_declared=True))
    kind: Kind = "declared table" if described.is_only_declared else "table"
    return Found(kind, identifier, described.location, dict(described.properties or {}))


def _pages(listing: Callable[[Any], Any], request: type[Any], namespace: Identifier, items: str) -> Iterator[str]:
    token: str | None = None
    while True:
        page = listing(request(id=list(namespace), limit=_PAGE, page_token=token))
        yield from getattr(page, items)
        if not page.page_token or page.page_token == token:
            return
        token = page.page_token


@contextmanager
def _open(settings: Settings, *, dry_run: bool) -> Iterator[PennonNamespace]:
    """Open this catalog; a dry run of a catalog that is not there yet looks at an empty one instead."""
    from pennon.namespace import PennonNamespace

    # Tables are looked up before they are imported, and a look must not be what brings them in.
    settings = settings.model_copy(update={"discover": False})
    with tempfile.TemporaryDirectory(prefix="pennon-import-") as folder:
        if dry_run and is_missing(settings):
            settings = settings.model_copy(update={"database": f"sqlite:///{folder}/catalog.db"})
        with open_catalog(settings, create=True):
            pass  # refuses a schema that is not this Pennon's, which opening the namespace would migrate
        namespace = PennonNamespace.open(settings)
        try:
            yield namespace
        finally:
            namespace.close()


def _report(steps: list[Step], output: Form, words: dict[str, str]) -> None:
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
    show(output, data, table_of(("Kind", "Name", "Outcome", "Reason"), rows))
    counts = Counter[str](step.action for step in steps)
    if output is Form.TABLE:
        note(", ".join(f"{counts[action]} {word}" for action, word in words.items()) + ".")
    if counts["refuse"] and output is Form.TABLE:
        note("Tables outside the storage root need --allowed-locations '[\"PREFIX\"]', on import and on serve.")
