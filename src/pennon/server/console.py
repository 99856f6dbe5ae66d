"""The files of the console, served from memory."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from pennon.server.http.exchange import Exchange, Headers

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Page = Callable[[Exchange], Awaitable[None]]

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
#: Allows scripts, styles and requests of this server only; images also from blobs that the page has read.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Headers = (
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    # Browsers revalidate each file, so that a page is never mixed from two releases.
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept-encoding"),
)


@dataclass(frozen=True)
class _File:
    content: bytes
    gzipped: bytes
    media_type: bytes
    etag: bytes

    async def respond(self, exchange: Exchange) -> None:
        """Send the file, unless the browser has it in its cache."""
        headers = (*_HEADERS, (b"etag", self.etag))
        if self.etag.decode() in exchange.headers.get("if-none-match", ""):
            await exchange.respond(304, b"", headers=headers)
        elif "gzip" in exchange.headers.get("accept-encoding", ""):
            headers = (*headers, (b"content-encoding", b"gzip"))
            await exchange.respond(200, self.gzipped, self.media_type, headers)
        else:
            await exchange.respond(200, self.content, self.media_type, headers)


def console_pages() -> dict[str, Page]:
    """Return the handlers of the console's paths."""
    found = {f"/console/{name}": _read(name, file) for name, file in _walk(files("pennon") / "console", "")}
    index = found.pop("/console/index.html", None)
    pages: dict[str, Page] = {path: file.respond for path, file in found.items()}
    return {"/": index.respond, "/console": _redirect_home, **pages} if index is not None else pages


def _walk(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, f"{above}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            yield f"{above}{entry.name}", entry


def _read(name: str, file: Traversable) -> _File:
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'.encode()
    return _File(content, gzip.compress(content, mtime=0), _TYPES[name.rpartition(".")[2]], tag)


async def _redirect_home(exchange: Exchange) -> None:
    # Relative, so that it also works behind a proxy that serves Pennon under a path.
    above = b"../" if exchange.raw_path.endswith(b"/") else b"./"
    await exchange.respond(307, b"", headers=((b"location", above),))
