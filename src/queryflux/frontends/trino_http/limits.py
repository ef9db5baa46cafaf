"""How long a query may take by its client's own session: ``query_max_run_time`` (the JDBC driver's
setQueryTimeout sends it) counts from its arrival, ``query_max_execution_time`` from when there is room.

A coordinator is told of both and keeps to them itself; queries for other engines are ended here. The group's
queryTimeoutSecs counts beside them.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from queryflux.frontends.trino_http.errors import TrinoError
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryFluxError, QueryTimedOut
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Query
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.trino import headers as names

RUN_TIME = "query_max_run_time"
EXECUTION_TIME = "query_max_execution_time"
LONGEST_SECS = 10 * 365 * 86400.0
"""A longer one is none."""

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EXCEEDED = {
    RUN_TIME: "Query exceeded maximum time limit of {}",
    EXECUTION_TIME: "Query exceeded the maximum execution time limit of {}",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """So many seconds, and what is said when they are over."""

    seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Those of a session. ``malformed`` is the error of one that cannot be read."""

    run: Limit | None = None
    execution: Limit | None = None
    malformed: TrinoError | None = None


NO_LIMITS = Limits()


def limits_of(session: str) -> Limits:
    """What an X-Trino-Session header says of them."""
    if "query_max_" not in session:
        return NO_LIMITS
    properties = names.pairs(session)
    try:
        run, execution = (_limit(name, properties.get(name)) for name in (RUN_TIME, EXECUTION_TIME))
        return Limits(run, execution)
    except TrinoError as error:
        message = error.message
        return Limits(malformed=TrinoError("INVALID_SESSION_PROPERTY", f"Session property {message}"))


def check(name: str, value: str) -> None:
    """Raises TrinoError for SET SESSION of a limit that cannot be read."""
    if name in _EXCEEDED:
        _limit(name, value)


def _limit(name: str, value: str | None) -> Limit | None:
    """Raises TrinoError."""
    if value is None:
        return None
    why = f"duration is not a valid data duration string: {value}"
    if (found := _DURATION.fullmatch(value)) is not None:
        number, unit = found.groups()
        if unit in _UNITS:
            seconds = float(number) * _UNITS[unit]
            message = _EXCEEDED[name].format(f"{Decimal(number):.2f}{unit}")
            return Limit(seconds, message) if seconds < LONGEST_SECS else None
        why = f"Unknown time unit: {unit}"
    elif not value:
        why = "duration is empty"
    raise TrinoError("INVALID_SESSION_PROPERTY", f"'{name}' is invalid: {why}")


class TimeLimit:
    """The limits of one query."""

    __slots__ = ("_clock", "_ended", "_exceeded", "_limits", "_query", "_tasks", "_timers")

    def __init__(self, limits: Limits, query: Query, clock: Clock, tasks: TaskGroup) -> None:
        self._limits = limits
        self._query = query
        self._clock = clock
        self._tasks = tasks
        self._exceeded: Limit | None = None
        self._ended = False
        self._timers: dict[str, Timer] = {}

    def begin(self, created_at: float) -> None:
        """Count; its life began then, in seconds since the epoch."""
        if (limit := self._limits.run) is not None:
            self._count(RUN_TIME, limit, limit.seconds - (self._clock.now() - created_at))
        if (limit := self._limits.execution) is not None:
            if self._query.waiting:
                self._query.on_room = lambda: self._count(EXECUTION_TIME, limit, limit.seconds)
            else:
                self._count(EXECUTION_TIME, limit, limit.seconds)

    def _count(self, name: str, limit: Limit, seconds: float) -> None:
        self._timers[name] = self._clock.call_later(max(seconds, 0.0), lambda: self._reached(limit))

    def _reached(self, limit: Limit) -> None:
        if self._ended or self._query.engine_protocol is ClientProtocol.TRINO_HTTP:
            return
        self._exceeded = self._exceeded or limit
        self._tasks.spawn(f"time limit of {self._query.id}", self._query.cancel(EndReason.TIMED_OUT))

    def end(self) -> None:
        """It has ended."""
        self._ended = True
        self._query.on_room = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def told(self, error: QueryFluxError) -> QueryFluxError:
        """The error of the query, as its client is to read it."""
        if self._exceeded is None or not isinstance(error, QueryTimedOut):
            return error
        return TrinoError("EXCEEDED_TIME_LIMIT", self._exceeded.message)
