"""The documentation says what is: every setting, operation, code and flag is in it, and every link leads somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from lance_namespace.errors import ErrorCode
from scripts import generate_reference

from pennon import __version__
from pennon.cli.main import app
from pennon.core.settings import Settings, load_settings
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?://)(?P<target>[^)#\s]*)(?:#(?P<part>[^)\s]+))?\)")
_NOT_YET = re.compile(r"<!-- not yet: (?P<names>[^>]+) -->")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def flags(command: Any) -> set[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    own = {flag for parameter in shown for flag in [*parameter.opts, *parameter.secondary_opts]}
    below = [flags(child) for child in getattr(command, "commands", {}).values()]
    return {flag for flag in own if flag.startswith("--")}.union(*below)


def test_the_generated_tables_are_up_to_date() -> None:
    stale = [page.name for page in generate_reference.stale_pages()]
    assert stale == [], "run python -m scripts.generate_reference"


def test_every_generated_part_is_on_a_page() -> None:
    pages = "".join(read(page) for page in REFERENCE.glob("*.md"))
    for name in generate_reference.PARTS:
        assert f"<!-- generated: {name} -->" in pages


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented(name: str) -> None:
    assert f"| `{name}` |" in read(REFERENCE / "settings.md")
    assert Settings.model_fields[name].description


def test_every_operation_is_documented_as_what_it_is() -> None:
    offered, missing = read(REFERENCE / "operations.md").split("<!-- generated: unsupported operations -->")
    for row in OPERATIONS:
        assert f"| `{row.id}` | `{row.method} {row.path}` |" in offered
        assert row.summary
    for name in UNSUPPORTED:
        assert f"| `{name}` |" in missing


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_is_documented(code: ErrorCode) -> None:
    assert f"\n| {int(code)} |" in read(REFERENCE / "errors.md")


def test_every_flag_is_documented() -> None:
    page = read(REFERENCE / "cli.md")
    own = {"--help", "--version", "--install-completion", "--show-completion"}
    for flag in flags(typer.main.get_command(app)) - own:
        assert f"`{flag}`" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.finditer(read(page)):
        target = page.parent / link["target"] if link["target"] else page
        assert target.exists(), link[0]
        if link["part"]:
            assert link["part"] in anchors(target), link[0]


def test_the_readme_links_to_every_page() -> None:
    linked = {(ROOT / link["target"]).resolve() for link in _LINK.finditer(read(ROOT / "README.md"))}
    assert set((ROOT / "docs").rglob("*.md")) <= linked


def test_what_the_readme_calls_missing_is_missing() -> None:
    named = _NOT_YET.search(read(ROOT / "README.md"))
    assert named is not None
    built = {name.strip() for name in named["names"].split(",")} - UNSUPPORTED.keys()
    assert built == set(), "say in the README and docs/explanation/architecture.md that this works now"


def test_the_modules_on_the_request_paths_exist() -> None:
    page = read(ROOT / "docs" / "explanation" / "architecture.md")
    paths = page[page.index("## Six request paths") : page.index("## Two databases")]
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)+\.py", paths)
    assert len(named) > 30
    assert [name for name in named if not (ROOT / "src" / "pennon" / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_settings_file_can_be_loaded(page: Path) -> None:
    examples = re.findall(r"^```toml\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)
    assert examples or page != REFERENCE / "settings.md"
    for example in examples:
        load_settings(**tomllib.loads(example))


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    versions = re.findall(r"^## \[(.+?)\]", read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions[1:])
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_stays_within_its_width(page: Path) -> None:
    made = r"^```.*?^```$|^<!-- generated: .*?^<!-- end of generated -->$"
    text = re.sub(made, "", read(page), flags=re.MULTILINE | re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "<!--"))]
    assert long == []
