"""Formatting of log lines: text from callers can neither end a line nor begin another."""

from __future__ import annotations

import json
import logging
import re
import sys

#: Control characters, and other characters that some programs read as the end of a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.$:@+-]{1,2100}")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def quote(text: object) -> str:
    """Return a name for a log line, in quotes if it has other than plain characters."""
    name = str(text)
    return name if _PLAIN.fullmatch(name) else json.dumps(name[:2100])


def escape(text: str) -> str:
    """Escape the control characters of a text."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """Formats a record as one line; the lines of an exception follow, indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (overrides logging)
        """Format a record as one line."""
        record.message = escape(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        """Format an exception as indented lines."""
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(f"  {escape(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a JSON object."""
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(level: str, form: str) -> None:
    """Send log lines to standard error, as text or as one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
