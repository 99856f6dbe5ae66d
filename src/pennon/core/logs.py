"""The form of log lines: whatever text a caller brings into one, it neither ends the line nor begins another."""

from __future__ import annotations

import json
import logging
import re
import sys

#: Control characters, and what else some programs take for the end of a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.$:@+-]{1,2100}")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def quoted(text: object) -> str:
    """Return a name as it may stand in a line: as it is, or in quotes when it could be taken for more than a name."""
    name = str(text)
    return name if _PLAIN.fullmatch(name) else json.dumps(name[:2100])


def escaped(text: str) -> str:
    """Return a text without control characters."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """One line a record; the lines of an exception follow it, indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (as logging has it)
        """Return the line of a record."""
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        """Return the lines of an exception."""
        lines = super().formatException(ei).split("\n")  # type: ignore[arg-type]
        return "\n".join(f"  {escaped(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
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
    """Send log lines to standard error, as text or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
