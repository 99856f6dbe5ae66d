"""The files of the console, as a browser asks for them."""

from __future__ import annotations

import gzip
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.rest.wire import Wire

FOLDER = Path(str(files("pennon") / "console"))
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.*") if path.name != "index.html")


def test_the_page_is_at_the_root(wire: Wire) -> None:
    page = wire.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert b"<title>Pennon</title>" in page.content


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_as_it_is(wire: Wire, name: str) -> None:
    served = wire.send("GET", f"/console/{name}")
    assert served.content == (FOLDER / name).read_bytes()
    packed = wire.send("GET", f"/console/{name}", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.content) == served.content


@pytest.mark.parametrize("path", ["/", "/console/app.js", "/console/style/theme.css"])
def test_nothing_from_outside_may_run_in_it(wire: Wire, path: str) -> None:
    headers = wire.send("GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*", policy)
    assert headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again(wire: Wire) -> None:
    first = wire.send("GET", "/console/app.js")
    again = wire.send("GET", "/console/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


def test_nothing_is_fetched_from_elsewhere() -> None:
    for name in ["index.html", *FILES]:
        text = (FOLDER / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text), name


@pytest.mark.parametrize(("path", "home"), [("/console", "./"), ("/console/", "../")])
def test_the_folder_leads_to_the_page(wire: Wire, path: str, home: str) -> None:
    answer = wire.send("GET", path)
    assert (answer.status, answer.headers["location"]) == (307, home)
