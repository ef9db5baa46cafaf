"""Statements of clients of other protocols: Arrow answers over ADBC. Loaded with the first of them.

A lane (an ADBC connection and its thread) is held while a statement runs, while a transaction is open, and
while session state pins it.
"""

import asyncio
import re
from typing import TYPE_CHECKING

import pyarrow as pa

from queryflux.engines.port import EngineRequest, TransactionStatus
from queryflux.engines.postgres.effects import effects_of
from queryflux.engines.postgres.errors import QUERY_CANCELED
from queryflux.engines.postgres.lane import Lane, StaleLane
from queryflux.engines.postgres.link import Reply
from queryflux.engines.postgres.loss import ENDS_TRANSACTION, Lost, lost_with, session_lost
from queryflux.engines.postgres.settings import settings_of
from queryflux.engines.postgres.text import statement_for
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    QueryCancelled,
    QueryFluxError,
    TransactionFailed,
)
from queryflux.model.statement import Session
from queryflux.results.answer import Answer, Batches, Done, EngineStats, Shape

if TYPE_CHECKING:
    from queryflux.engines.postgres.engine import PostgresEngine

CANCEL_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 4.0)
"""Seconds after each attempt to cancel until the next."""
GRACE = 0.2
_ENDS = re.compile(r"\s*(?:commit|end|rollback|abort)\b", re.IGNORECASE)
_CANCELLED = "The query was cancelled."


class TextBatches(Batches):
    """A small answer of text columns that is in memory already."""

    def __init__(self, reply: Reply) -> None:
        self.stats = EngineStats()
        self.schema = pa.schema([(column.name, pa.string()) for column in reply.columns])
        columns = [
            pa.array(
                [None if (value := row[n]) is None else value.decode() for row in reply.rows], pa.string()
            )
            for n in range(len(reply.columns))
        ]
        self._batch: pa.RecordBatch | None = pa.RecordBatch.from_arrays(columns, schema=self.schema)

    async def next(self) -> pa.RecordBatch | None:
        batch, self._batch = self._batch, None
        return batch

    async def close(self) -> None:
        self._batch = None


class Run:
    """One statement on its way, from ``execute`` to its end."""

    __slots__ = ("acquiring", "cancelled", "lane", "over", "stopping")

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.acquiring: asyncio.Task[Lane] | None = None
        self.cancelled = False
        self.over = False
        self.stopping: asyncio.Task[None] | None = None


class AdbcBatches(Batches):
    """A stream out of a lane."""

    def __init__(self, session: "ArrowSession", run: Run, schema: pa.Schema) -> None:
        self._session = session
        self._run = run
        self.schema = schema
        self.stats = EngineStats()

    async def next(self) -> pa.RecordBatch | None:
        run = self._run
        if run.cancelled:
            raise QueryCancelled(_CANCELLED)
        if run.over or run.lane is None:
            return None
        try:
            batch = await run.lane.run(run.lane.do_read)
        except QueryFluxError as error:
            await self._session.ended(run)
            raise self._session.reason(run, error) from None
        if run.cancelled:
            raise QueryCancelled(_CANCELLED)
        if batch is None:
            await self._session.ended(run)
        return batch

    async def close(self) -> None:
        await self._session.stop(self._run, GRACE)


class ArrowSession:
    """The part of a PostgresConnection that speaks Arrow."""

    def __init__(self, engine: "PostgresEngine", session: Session) -> None:
        self._engine = engine
        self._lanes = engine.lanes
        self._session = session
        self._settings = engine.interned(settings_of(session))
        self._lane: Lane | None = None
        self._run: Run | None = None
        self._lost_state = Lost.NOTHING

    @property
    def transaction(self) -> TransactionStatus:
        """Where the transaction stands."""
        if self._lost_state is Lost.TRANSACTION:
            return TransactionStatus.FAILED
        return self._lane.status if self._lane is not None else TransactionStatus.IDLE

    async def execute(self, request: EngineRequest) -> Answer:
        """Run a statement. Raises as ``EngineConnection.execute``."""
        sql = statement_for(request.sql, request.parameters)
        if not sql:
            return Done("")
        if self._lost_state is Lost.SESSION:
            raise session_lost()
        if self._lost_state is Lost.TRANSACTION and ENDS_TRANSACTION.match(sql):
            self._lost_state = Lost.NOTHING
            return Done("ROLLBACK")
        if self.transaction is TransactionStatus.FAILED and not _ENDS.match(sql):
            raise TransactionFailed(
                "The transaction has failed; statements are ignored until it ends.", hint="Send ROLLBACK."
            )
        if self._run is not None:
            await self.stop(self._run)
        self._follow(request.session)
        run = self._run = Run()
        try:
            return await self._start(run, sql)
        except QueryFluxError as error:
            await self.ended(run)
            raise self.reason(run, error) from error
        except BaseException:
            await self.stop(run)
            raise

    def _follow(self, session: Session) -> None:
        """The client's default schema may have changed since."""
        if session is not self._session:
            self._session = session
            self._settings = self._engine.interned(settings_of(session))

    async def _start(self, run: Run, sql: str) -> Answer:
        effects = effects_of(sql)
        while True:
            lane = await self._lane_for(run)
            if effects is not None and (effects.pins or effects.sets):
                lane.pinned = True
            try:
                started = await lane.run(lane.do_start, sql, self._wanted(lane))
                break
            except StaleLane as error:
                self._stale(lane, error)
        if run.cancelled:
            raise QueryCancelled(_CANCELLED)
        if started.schema is None:
            await self.ended(run)
            return Done(started.tag, started.rows)
        return AdbcBatches(self, run, started.schema)

    def _wanted(self, lane: Lane) -> tuple[tuple[str, str], ...] | None:
        """The settings to make sure of. A change inside a transaction may be rolled back with it, so the lane
        is then kept from others."""
        if lane.settings == self._settings or lane.status is TransactionStatus.FAILED:
            return None
        lane.pinned = lane.pinned or lane.status is TransactionStatus.OPEN
        return self._settings

    async def _lane_for(self, run: Run) -> Lane:
        if self._lane is not None:
            run.lane = self._lane
            return self._lane
        lane = self._lanes.pool.take(self._settings)
        if lane is None:
            run.acquiring = asyncio.get_running_loop().create_task(self._lanes.pool.acquire(self._settings))
            try:
                lane = await run.acquiring
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    self._lanes.pool.keep(run.acquiring)
                    raise
                raise QueryCancelled(_CANCELLED) from None
            finally:
                run.acquiring = None
            if run.cancelled:  # just as the lane came
                self._lanes.pool.give(lane)
                raise QueryCancelled(_CANCELLED)
        self._lane = run.lane = lane
        return lane

    def _stale(self, lane: Lane, error: StaleLane) -> None:
        """Nothing ran: it may go to another connection, unless a transaction died with this one."""
        self._drop(lane)
        if self._lost_state is Lost.TRANSACTION:
            raise EngineConnectionLost(
                f"The connection to PostgreSQL was lost in the midst of a transaction: {error}",
                hint="Send ROLLBACK, then run the whole transaction again.",
            ) from None
        if self._lost_state is Lost.SESSION:
            raise session_lost() from None

    def _drop(self, lane: Lane) -> None:
        if self._lane is lane:
            self._lane = None
            in_transaction = lane.status is not TransactionStatus.IDLE
            self._lost_state = lost_with(transaction=in_transaction, pinned=lane.pinned)
            self._lanes.pool.drop(lane)

    def reason(self, run: Run, error: QueryFluxError) -> QueryFluxError:
        """What to raise: a query that was cancelled says so, whatever the server called it."""
        stopped = isinstance(error, EngineError) and error.sqlstate == QUERY_CANCELED
        if run.cancelled and (stopped or isinstance(error, EngineConnectionLost)):
            return QueryCancelled(_CANCELLED)
        return error

    async def ended(self, run: Run) -> None:
        """A statement is over in its lane: give the lane back if nothing holds it."""
        if run.stopping is not None:
            await asyncio.shield(run.stopping)
        else:
            self._release(run)

    def _release(self, run: Run) -> None:
        run.over = True
        if self._run is run:
            self._run = None
        lane = run.lane
        if lane is None or lane is not self._lane:
            return
        if lane.broken or lane.busy:
            self._drop(lane)
        elif lane.usable:
            self._lane = None
            self._lanes.pool.give(lane)

    async def stop(self, run: Run, grace: float = 0) -> None:
        """End a statement: at the server if it is running there. Returns when it has stopped.

        ``grace``: seconds in which the rest of a stream is read before it is cancelled, where that would fail
        a transaction.
        """
        if run.over:
            return
        run.cancelled = True
        if run.acquiring is not None:
            run.acquiring.cancel()
        if run.stopping is None:
            run.stopping = self._engine.tasks.spawn("stop", self._stop(run, grace))
        await asyncio.shield(run.stopping)

    async def _stop(self, run: Run, grace: float) -> None:
        lane = run.lane
        if lane is not None and lane is self._lane:
            await self._lanes.stop(lane, CANCEL_PAUSES)
            held = lane.pinned or lane.status is not TransactionStatus.IDLE
            if held and not lane.idle and not lane.busy:
                draining = lane.submit(lane.do_drain)
                if grace:
                    await asyncio.wait({draining}, timeout=grace)
                await self._lanes.stop(lane, CANCEL_PAUSES)
            lane.broken = lane.broken or not lane.idle
        self._release(run)

    async def describe(self, request: EngineRequest) -> Shape:
        """The columns and parameter types of a statement. Raises as ``execute``."""
        sql = statement_for(request.sql, ())
        if not sql:
            return Shape((), None)
        if self._lost_state is Lost.SESSION:
            raise session_lost()
        self._follow(request.session)
        run = self._run = Run()
        try:
            while True:
                lane = await self._lane_for(run)
                try:
                    schema, types = await lane.run(lane.do_describe, sql, self._wanted(lane))
                    return Shape(types, schema)
                except StaleLane as error:
                    self._stale(lane, error)
        except asyncio.CancelledError:
            await self.stop(run)
            raise
        finally:
            if not run.over and run.stopping is None:
                self._release(run)

    async def cancel(self) -> None:
        """Stop what runs."""
        if self._run is not None:
            await self.stop(self._run)

    async def close(self) -> None:
        """Stop what runs, roll back, give the lane back."""
        await self.cancel()
        lane = self._lane
        if lane is not None:
            self._drop(lane)
