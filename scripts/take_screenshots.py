"""Take the pictures of the console that the documentation shows, of a server with a small shop on it.

``python -m scripts.take_screenshots`` rewrites ``docs/images``. It needs what the tests of the console need: Chromium,
and a Spark of this machine.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
from PIL import Image
from tests.support.chromium import chromium
from tests.support.server import PennonProcess

import pennon

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from pennon.client.table import Table

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
_SIZE = {"width": 1280, "height": 800}
_FRAGMENTS = 8
_SECONDS = 120
_SETTINGS = {
    "PENNON_WORKERS": "1",
    "PENNON_SPARK_PRESTART": "true",
    "PENNON_SPARK_CONF": json.dumps({"spark.ui.enabled": "true", "spark.ui.port": "0"}),
}
#: Name, origin, notes, and the colour of the cup.
_TEAS = [
    ("Assam", "India", "malty and strong", (150, 62, 28)),
    ("Sencha", "Japan", "fresh, almost sweet", (190, 190, 80)),
    ("Oolong", "Taiwan", "floral, with a long finish", (200, 150, 70)),
    ("Pu-erh", "China", "earthy and deep", (82, 42, 30)),
    ("Lapsang", "China", "smoky", (128, 58, 36)),
    ("Darjeeling", "India", "light, like muscat", (214, 148, 74)),
    ("Matcha", "Japan", "grassy and thick", (112, 152, 62)),
    ("Rooibos", "South Africa", "sweet, without caffeine", (170, 60, 32)),
]


@pennon.udf(error_policy=pennon.ErrorPolicy.skip())
def rating(notes: str) -> float:
    """Rate a tea by the words of its notes; what smells of smoke cannot be rated."""
    if "smoky" in notes:
        raise ValueError("smoke hides everything else")
    return round(min(5.0, 2.0 + len(notes.split()) * 0.6), 1)


@pennon.udf
def strength(price: float, steeped: int) -> float:
    """Guess how strong a cup is; a large model would take as long."""
    time.sleep(0.02)
    return price * steeped / 60


@pennon.chunker(output_schema=pa.schema([("word", pa.string())]))
def words(notes: str) -> Iterator[dict[str, str]]:
    """Make a row of each word."""
    for word in notes.replace(",", "").split():
        yield {"word": word}


def fill(url: str, shop: str, rows: int) -> Table:
    """Make a table with a value of each kind, columns that functions fill, and views of it; return the table."""
    db = pennon.connect(url)
    db.create_namespace([shop])
    teas = db.create_table("teas", _teas(0, rows), namespace_path=[shop])
    for part in range(1, _FRAGMENTS):
        teas.add(_teas(part * rows, (part + 1) * rows))
    teas.tags.create("first-flush", 1)
    teas.add_columns({"rating": rating})
    teas.add_columns({"strength": strength})
    teas.backfill("rating", progress=False)
    best = pennon.query(f"{shop}.teas").select(["id", "name", "rating"]).where("rating >= 4")
    db.create_materialized_view("best", best, with_no_data=True, namespace_path=[shop])
    db.create_chunk_view("words", f"{shop}.teas", words, columns=["name"], with_no_data=True, namespace_path=[shop])
    return teas


def _teas(start: int, stop: int) -> pa.Table:
    picked = [(number, *_TEAS[number % len(_TEAS)]) for number in range(start, stop)]
    angles = [number * 0.37 for number in range(start, stop)]
    vectors = [[((angle * (at + 1)) % 2) - 1 for at in range(16)] for angle in angles]
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "name": [name for _, name, *_ in picked],
            "origin": [origin for _, _, origin, *_ in picked],
            "notes": [notes for _, _, _, notes, _ in picked],
            "cup": pa.array([_cup(colour) for *_, colour in picked], pa.binary()),
            "vector": pa.array(vectors, pa.list_(pa.float32(), 16)),
            "price": pa.array([4 + number % 17 / 4 for number, *_ in picked], pa.float64()),
            "steeped": pa.array([120 + number % 5 * 30 for number, *_ in picked], pa.int32()),
        }
    )


def _cup(colour: tuple[int, int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(buffer, "PNG")
    return buffer.getvalue()


def photograph(browser: Browser, url: str, teas: Table, folder: Path) -> None:
    """Take a picture of each page that the documentation shows; that of a job, while it is under way."""
    page = browser.new_context(viewport=_SIZE, color_scheme="light").new_page()  # type: ignore[arg-type]
    for name in ("data", "functions", "lineage"):
        _open(page, f"{url}/#/table/{'$'.join(teas.path)}/{name}")
        page.screenshot(path=folder / f"console-{name}.png")
    job = teas.backfill_async("strength")
    _open(page, f"{url}/#/job/{job.id}")
    _wait_until_half(page)
    page.screenshot(path=folder / "console-job.png")
    job.cancel()
    page.context.close()


def _open(page: Page, address: str) -> None:
    page.goto("about:blank")
    page.goto(address)
    page.locator("main[aria-busy=false]").wait_for()
    page.get_by_role("treeitem").first.wait_for()


def _wait_until_half(page: Page) -> None:
    """Wait until half of a job is done: then its page has something to show."""
    bar = page.get_by_role("progressbar", name="Progress")
    deadline = time.monotonic() + _SECONDS
    while int(bar.get_attribute("aria-valuenow") or 0) < 50:
        if time.monotonic() > deadline:
            raise TimeoutError("The job is slower than it should be; its page says why.")
        page.wait_for_timeout(250)


def main() -> None:
    """Start a server, fill it, and write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, PennonProcess(Path(folder), env=_SETTINGS) as server:
        teas = fill(server.url, "shop", rows=200)
        with chromium() as browser:
            photograph(browser, server.url, teas, IMAGES)
    print(f"The pictures are in {IMAGES}.")


if __name__ == "__main__":
    main()
