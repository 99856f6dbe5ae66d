"""Run the notebooks in ``examples`` against a server with a worker, and keep what they print.

``python -m scripts.run_examples http://127.0.0.1:2333`` rewrites their outputs; the tests run them, too, and compare.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
_CELL_SECONDS = 180


def run(path: Path, url: str) -> Any:
    """Run a notebook against a server and return it with what it printed."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    environment = {**os.environ, "PENNON_URL": url}
    client.execute(env=environment)
    for cell in notebook.cells:
        # When it ran, and how often, says nothing to a reader and changes every time.
        cell.metadata.pop("execution", None)
    return notebook


def printed(notebook: Any) -> list[str]:
    """Return what each cell of a notebook printed."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(out.text for out in cell.outputs if out.output_type == "stream") for cell in cells]


def main(arguments: Sequence[str]) -> int:
    """Run all notebooks, or those that are named, and write them with their outputs."""
    url, *names = arguments
    for path in NOTEBOOKS:
        if not names or path.stem in names:
            nbformat.write(run(path, url), path)
            print(f"{path.name} was run")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
