"""Log lines: for people on a terminal, or one JSON object a line. Queries get one line each, with their id.

Query lines are collected and written together a few times a second, so that no query waits for a terminal or
a pipe; ``flush`` writes what is left at the end.
"""

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from queryflux.runtime.clock import Clock, Timer

FLUSH_SECS = 0.2
MAX_PENDING = 10_000


def setup(style: str, level: str, stream: IO[str] | None = None) -> None:
    """Send the root logger to ``stream`` (standard error) as ``console`` or ``json`` lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class ConsoleFormatter(logging.Formatter):
    """``time level message key=value ...``"""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_stamp(record.created)} {record.levelname:<7} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, and the exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


class QueryLog:
    """One line for each query that has ended."""

    def __init__(self, style: str, clock: Clock, stream: IO[str] | None = None) -> None:
        self._json = style == "json"
        self._clock = clock
        self._stream = stream or sys.stderr
        self._pending: list[Callable[[], dict[str, Any]]] = []
        self._timer: Timer | None = None

    def add(self, fields: Callable[[], dict[str, Any]]) -> None:
        """Log one query; ``fields`` is called when the line is written."""
        self._pending.append(fields)
        if len(self._pending) >= MAX_PENDING:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_later(FLUSH_SECS, self.flush)

    def flush(self) -> None:
        """Write every line that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if pending:
            self._stream.write("".join([self._line(fields()) for fields in pending]))
            self._stream.flush()

    def _line(self, fields: dict[str, Any]) -> str:
        stamp = _stamp(fields.pop("time", None) or time.time())
        if self._json:
            head = {"time": stamp, "level": "info", "logger": "queryflux.query", "message": "query"}
            return msgspec.json.encode({**head, **fields}).decode() + "\n"
        pairs = " ".join(f"{key}={_shown(value)}" for key, value in fields.items() if value not in (None, ""))
        return f"{stamp} INFO    query {pairs}\n"


def _shown(value: object) -> str:
    text = str(value)
    return msgspec.json.encode(text).decode() if any(mark in text for mark in ' "\n=') else text
