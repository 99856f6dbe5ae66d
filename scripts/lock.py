"""Write ``requirements/dev.txt``: the versions that Pennon is developed and tested with.

The lock is made from a real, freshly resolved environment, so what it names is known to install together. It
holds plain ``name==version`` lines: where packages come from is for the machine that installs them to say.
"""

from __future__ import annotations

import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
HEADER = "# The versions that Pennon is developed and tested with. Made by `make lock`; do not edit.\n"

# The pip of a fresh venv may be older than dependency groups, which are known since 25.1.
PIP = "pip>=25.1"


def resolve(folder: Path) -> list[str]:
    """Install the newest allowed versions of everything into ``folder`` and return them as pinned lines."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--upgrade", PIP], check=True)
    subprocess.run([*pip, "install", ".[all]", "--group", "dev"], check=True, cwd=ROOT)
    frozen = subprocess.run([*pip, "freeze", "--exclude", "pennon"], check=True, capture_output=True, text=True)
    return frozen.stdout.splitlines()


def check(lines: list[str]) -> None:
    """Refuse a line that is more than a name and a version, for it would tie the lock to one machine."""
    for line in lines:
        if "==" not in line or "://" in line or " " in line:
            raise SystemExit(f"The lock cannot hold this line: {line}")


def main() -> None:
    """Resolve again and write the lock."""
    with tempfile.TemporaryDirectory(prefix="pennon-lock-") as folder:
        lines = resolve(Path(folder))
    check(lines)
    LOCK.parent.mkdir(exist_ok=True)
    LOCK.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(lines)} packages")


if __name__ == "__main__":
    main()
