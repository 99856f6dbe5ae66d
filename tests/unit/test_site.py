"""The documentation as a site: it is built without a warning, holds every page, and needs nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chromium import chromium

ROOT = Path(__file__).resolve().parents[2]
#: What a browser fetches for a page: scripts, styles, images and fonts, not links that a reader follows.
_FETCHED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc=["']?(?P<src>[^"'\s>]+)|<link\b(?P<link>[^>]*)>""")
_STYLE = re.compile(r"""(?:url\(|@import\s+)["']?(?P<target>[^"')\s]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


def fetched_by(page: str) -> list[str]:
    found = []
    for match in _FETCHED.finditer(page):
        if match["src"]:
            found.append(match["src"])
        elif "stylesheet" in match["link"] or "icon" in match["link"] or "preload" in match["link"]:
            found += re.findall(r"""href=["']?([^"'\s>]+)""", match["link"])
    return found


def is_elsewhere(address: str) -> bool:
    return address.startswith(("http://", "https://", "//"))


def test_every_page_is_in_it(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()


def test_it_needs_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert [address for address in fetched_by(page.read_text(encoding="utf-8")) if is_elsewhere(address)] == []
    for style in site.rglob("*.css"):
        targets = (match["target"] for match in _STYLE.finditer(style.read_text(encoding="utf-8")))
        assert [target for target in targets if is_elsewhere(target)] == []


def test_it_can_be_searched_from_files_without_a_network(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "how-to" / "s3.html").as_uri())
        page.get_by_role("textbox", name="Search").click()
        page.keyboard.type("commit authority")
        found = page.locator(".md-search-result__item h1").first
        found.wait_for()
        assert found.inner_text() == "The commit authority"
    assert [address for address in asked if not address.startswith("file:")] == []


def test_what_a_page_fetches_is_found() -> None:
    page = '<script src="https://a/x.js"></script><link rel="stylesheet" href="//b/y.css"><img src=z.png><a href="http://c">'
    assert fetched_by(page) == ["https://a/x.js", "//b/y.css", "z.png"]
