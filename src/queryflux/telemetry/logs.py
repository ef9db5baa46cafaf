"""Log lines: for people on a terminal, or one JSON object a line. Queries get one line each, with their id.

Query lines are collected and written together a few times a second, so that no query waits for a terminal or
a pipe; ``flush`` writes what is left at the end.
"""

import functools
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from queryflux.runtime.clock import Clock, Timer
from queryflux.telemetry.writer import STDERR, LineWriter

FLUSH_SECS = 0.2
MAX_PENDING = 1_000


def setup(style: str, level: str, writer: LineWriter = STDERR, worker: str = "") -> None:
    """Send the root logger to ``writer`` as ``console`` or ``json`` lines; ``worker`` is the name of one
    whose lines stand among those of others."""
    root = logging.getLogger()
    root.handlers[:] = [WriterHandler(style, writer, worker)]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class WriterHandler(logging.Handler):
    """Formats records and hands them to a LineWriter."""

    def __init__(self, style: str, writer: LineWriter, worker: str = "") -> None:
        super().__init__()
        self.setFormatter(JsonFormatter(worker) if style == "json" else ConsoleFormatter(worker))
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
    """``time level message key=value ...``, and before the message the worker's name if there is one."""

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._name = f"{worker}: " if worker else ""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().translate(_UNSEEN)
        text = f"{_stamp(record.created)} {record.levelname:<7} {self._name}{message}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, and the exception and the worker where there is one."""

    def __init__(self, worker: str = "") -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker:
            fields["worker"] = self._worker
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
        self,
        style: str,
        clock: Clock,
        writer: LineWriter = STDERR,
        *,
        enabled: bool = True,
        worker: str = "",
    ) -> None:
        """``enabled`` is False when the log's level is above info; ``worker`` as for ``setup``."""
        self.enabled = enabled
        self._line = partial(_json_line if style == "json" else _console_line, worker)
        self._clock = clock
        self._writer = writer
        self._pending: list[str] = []
        self._timer: Timer | None = None
        self._catch_up: Callable[[], object] | None = None

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before what waits is written for somebody who asked: it may bring more."""
        self._catch_up = catch_up

    def add(self, line: QueryLine) -> None:
        """Log one query; a log that is not enabled drops it."""
        if not self.enabled:
            return
        self._pending.append(self._line(line))
        if self._timer is None:
            self._timer = self._clock.call_later(FLUSH_SECS, self._write)
        elif len(self._pending) >= MAX_PENDING:
            self._write()

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if pending:
            self._writer.write("".join(pending))

    def flush(self) -> None:
        """Write every line that waits."""
        if self._catch_up is not None:
            self._catch_up()
        self._write()

    def close(self) -> None:
        """Write what waits; returns when it is written, or after two seconds."""
        self.flush()
        self._writer.close()


_encoder = msgspec.json.Encoder()


def _json_line(worker: str, line: QueryLine) -> str:
    fields = _encoder.encode(line).decode()
    whose = f'"worker":{_encoder.encode(worker).decode()},' if worker else ""
    return (
        f'{{"time":"{_stamp(line.ended_at)}","level":"info","logger":"queryflux.query","message":"query",'
        f"{whose}"
        f"{fields[1:]}\n"
    )


def _console_line(worker: str, line: QueryLine) -> str:
    whose = f"{worker}: " if worker else ""
    pairs = [
        f"{name}={_shown(value)}"
        for name in line.__struct_fields__[1:]
        if (value := getattr(line, name)) is not None and value != ""
    ]
    return f"{_stamp(line.ended_at)} INFO    {whose}query {' '.join(pairs)}\n"


def _shown(value: object) -> str:
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return _encoder.encode(text).decode().translate(_UNSEEN) if _NEEDS_QUOTES.search(text) else text


_CODES = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNSEEN = {code: f"\\u{code:04x}" for code in _CODES} | {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
"""What would forge lines or do things to a terminal, and may come from a client: control characters, and
those that turn text around."""
_NEEDS_QUOTES = re.compile(r'[\s"=\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]')
