"""A lane: a thread and a cursor that run one statement at a time. A few are kept parked for the next ones."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from queryflux.engines.duckdb.database import Database
from queryflux.engines.duckdb.seam import Cursor
from queryflux.runtime.threads import LaneThread

if TYPE_CHECKING:
    import pyarrow as pa

PARKED_LANES = 8
T = TypeVar("T")


class Lane:
    """One thread with its cursor. ``cursor``, ``reader`` and ``target`` are touched in the thread alone;
    ``interrupt`` may come from the loop at any time."""

    def __init__(self, name: str, database: Database) -> None:
        self.thread = LaneThread(name)
        self.ended: asyncio.Future[None] | None = None
        """Set by ``end``: done once the cursor is closed."""
        self._database = database
        self._cursor: Cursor | None = None
        self._generation = 0
        self.reader: pa.RecordBatchReader | None = None
        self.target: str | None = None
        """What the cursor was last told to USE; None for where it began."""

    @property
    def cursor(self) -> Cursor:
        """The cursor, opened by the first call. Raises EngineUnavailable."""
        if self._cursor is not None and self._generation != self._database.generation:
            self._close_cursor()
        if self._cursor is None:
            self._generation = self._database.generation
            self._cursor = self._database.cursor()
            self.target = None
        return self._cursor

    def interrupt(self) -> None:
        """Ask what runs now to stop. Lost if it has not begun: say it again until the thread has returned."""
        if self._cursor is not None:
            self._cursor.interrupt()

    def close_reader(self) -> None:
        """Drop an open result, and with it the work DuckDB still does for it."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def end(self) -> None:
        """Close the cursor, with whatever it holds, and end the thread. Does not wait."""
        if self.ended is None:
            self.ended = self.thread.submit(self._close_cursor)
            self.thread.close()

    def _close_cursor(self) -> None:
        self.close_reader()
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None


class Lanes:
    """The lanes of one cluster."""

    def __init__(self, name: str, database: Database) -> None:
        self._name = name
        self._database = database
        self._parked: list[Lane] = []
        self._all: list[Lane] = []
        self._made = 0
        self.closed = False
        """No lane is parked any more."""

    @property
    def busy(self) -> int:
        """Lanes that somebody has taken and not given back."""
        return sum(lane.ended is None for lane in self._all) - len(self._parked)

    def take(self) -> Lane:
        """A lane that nobody else uses."""
        if self._parked:
            return self._parked.pop()
        self._made += 1
        lane = Lane(f"duckdb-{self._name}-{self._made}", self._database)
        self._all.append(lane)
        return lane

    def put_back(self, lane: Lane) -> None:
        """It is as it was when it was taken, and nothing runs on it."""
        if lane.ended is not None:
            return
        if self.closed or len(self._parked) >= PARKED_LANES:
            self.discard(lane)
        else:
            self._parked.append(lane)

    def discard(self, lane: Lane) -> None:
        """End it: whatever its cursor held goes with it."""
        lane.end()
        self._all = [other for other in self._all if other.ended is None or not other.ended.done()]

    async def call(self, function: Callable[[Lane], T]) -> T:
        """Run a short piece of work of our own on some lane."""
        lane = self.take()
        future = lane.thread.submit(function, lane)
        future.add_done_callback(lambda _: self.put_back(lane))
        return await asyncio.shield(future)

    async def close(self) -> None:
        """End every lane and return when their threads have ended; nothing may run on them any more."""
        self.closed = True
        self._parked.clear()
        for lane in self._all:
            lane.end()
        for lane in self._all:
            await lane.thread.join()
        self._all.clear()
