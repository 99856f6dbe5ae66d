"""Wheels made on the spot: a package of one module that knows its version; and an index that serves them."""

from __future__ import annotations

import http.server
import io
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any, Self


def make_wheel(folder: Path, name: str, version: str, *, requires: str | None = None) -> Path:
    """Write a wheel and return where it is."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inside, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(inside, content)
    return path


class Index:
    """A package index on loopback, which also serves its files; it records the environments of our child processes."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self.environments: list[bytes] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.environments += [_read(path) for child in _children() for path in (f"/proc/{child}/environ",)]
                content = index.answer(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, file: Path) -> None:
        """Serve a file."""
        self._files[file.name] = file.read_bytes()

    def add_source(self, name: str, program: str) -> None:
        """Serve a source archive whose build runs a program."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            entry = tarfile.TarInfo(f"{name}-1.0/setup.py")
            text = f"{program}\nfrom setuptools import setup\nsetup(name={name!r}, version='1.0')\n".encode()
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
        self._files[f"{name}-1.0.tar.gz"] = content.getvalue()

    def answer(self, path: str) -> bytes | None:
        """Return what is at a path: a file, or the page of a package with all of them."""
        if path.startswith("/simple/"):
            links = "".join(f'<a href="{self.url}/{name}">{name}</a>' for name in self._files)
            return f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        return self._files.get(path.removeprefix("/"))


def _children() -> list[str]:
    """Return the ids of the processes that this one started."""
    return [child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it ended
        return b""
