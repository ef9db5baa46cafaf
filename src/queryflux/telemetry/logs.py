"""Log lines: for people on a terminal, or one JSON object a line. Queries get one line each, with their id.

Query lines are collected and written together a few times a second, so that no query waits for a terminal or
a pipe; ``flush`` writes what is left at the end.
"""

import functools
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from queryflux.runtime.clock import Clock, Timer
from queryflux.telemetry.writer import STDERR, LineWriter

FLUSH_SECS = 0.2
MAX_PENDING = 1_000


def setup(style: str, level: str, writer: LineWriter = STDERR) -> None:
    """Send the root logger to ``writer`` as ``console`` or ``json`` lines."""
    root = logging.getLogger()
    root.handlers[:] = [WriterHandler(style, writer)]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class WriterHandler(logging.Handler):
    """Formats records and hands them to a LineWriter."""

    def __init__(self, style: str, writer: LineWriter) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.write(self.format(record) + "\n")


def _stamp(seconds: float) -> str:
    whole = int(seconds)
    return f"{_to_the_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@functools.lru_cache(maxsize=8)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


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


class QueryLine(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """What the log says of a query that has ended. ``ended_at``: seconds since the epoch."""

    ended_at: float
    id: str
    status: str
    reason: str
    user: str
    protocol: str
    queued_ms: float
    ms: float
    group: str = ""
    cluster: str = ""
    rows: int | None = None
    translation: str | None = None
    engine_id: str | None = None
    error: str | None = None
    message: str | None = None


class QueryLog:
    """One line for each query that has ended."""

    def __init__(
        self, style: str, clock: Clock, writer: LineWriter = STDERR, *, enabled: bool = True
    ) -> None:
        """``enabled`` is False when the log's level is above info."""
        self._enabled = enabled
        self._line = _json_line if style == "json" else _console_line
        self._clock = clock
        self._writer = writer
        self._pending: list[Callable[[], QueryLine]] = []
        self._timer: Timer | None = None

    def add(self, line: Callable[[], QueryLine]) -> None:
        """Log one query; ``line`` is called when it is written."""
        if not self._enabled:
            return
        self._pending.append(line)
        if self._timer is None:
            self._timer = self._clock.call_later(FLUSH_SECS, self.flush)
        elif len(self._pending) >= MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Write every line that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if pending:
            self._writer.write("".join([self._line(make()) for make in pending]))

    def close(self) -> None:
        """Write what waits; returns when it is written, or after two seconds."""
        self.flush()
        self._writer.close()


_encoder = msgspec.json.Encoder()


def _json_line(line: QueryLine) -> str:
    stamp = _stamp(line.ended_at)
    fields = _encoder.encode(line).decode()
    return f'{{"time":"{stamp}","level":"info","logger":"queryflux.query","message":"query",{fields[1:]}\n'


def _console_line(line: QueryLine) -> str:
    pairs = [
        f"{name}={_shown(value)}"
        for name in line.__struct_fields__[1:]
        if (value := getattr(line, name)) is not None and value != ""
    ]
    return f"{_stamp(line.ended_at)} INFO    query {' '.join(pairs)}\n"


def _shown(value: object) -> str:
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return _encoder.encode(text).decode() if _NEEDS_QUOTES.search(text) else text


_NEEDS_QUOTES = re.compile(r'[\s"=]')
