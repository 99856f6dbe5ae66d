"""The page about Spark SQL, followed to the letter: its code runs in a process of its own, since it starts a Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.integration.test_doc_examples import ROOT, URL, blocks_of
from tests.support.spark import QUICK_JAVA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartPennon

PAGE = ROOT / "docs" / "how-to" / "spark-sql.md"
ELSEWHERE = "<!-- not run: a test of its own runs what starts a Spark -->\n"
SECONDS = 280


def test_the_code_of_the_page_runs_and_prints_what_it_says(start_pennon: StartPennon, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert ELSEWHERE in page
    blocks = [block for block in blocks_of(page.replace(ELSEWHERE, "")) if block.kind == "python"]
    ended = subprocess.run(
        [sys.executable, "-"],
        input="\n".join(block.text for block in blocks).replace(URL, start_pennon().url),
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    shown = "".join(block.expected or "" for block in blocks)
    assert list(filter(None, ended.stdout.splitlines())) == shown.splitlines()
