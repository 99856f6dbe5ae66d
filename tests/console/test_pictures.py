"""The pictures that the documentation shows are taken by a script: it must go on finding what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image
from scripts.take_screenshots import IMAGES, fill, photograph

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.support.rest import RestClient
    from tests.support.server import PennonProcess


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.iterdir():
        with Image.open(path) as image:
            found[path.name] = image.size
    return found


def test_every_picture_is_taken(
    browser: Browser, console_server: PennonProcess, rest: RestClient, tmp_path: Path
) -> None:
    photograph(browser, console_server.url, fill(console_server.url, "gallery", rows=40), tmp_path)
    assert sizes(tmp_path) == sizes(IMAGES)
    rest.post("/v1/namespace/gallery/drop", {"behavior": "Cascade"})
