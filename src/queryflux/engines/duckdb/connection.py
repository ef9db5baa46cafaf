"""One client's way to a DuckDB cluster.

A statement takes a lane and gives it back with its last batch. Two things make the client keep its lane: a
transaction, until its end, and session state (SET, PREPARE, temporary tables), for good; a lane that holds
session state is thrown away with its cursor, never given to anybody else.
"""

from typing import TYPE_CHECKING

from queryflux.engines.duckdb.batches import DuckDbBatches
from queryflux.engines.duckdb.lanes import Lane
from queryflux.engines.duckdb.running import Running
from queryflux.engines.duckdb.statements import Control, Effect, control
from queryflux.engines.duckdb.work import Outcome
from queryflux.engines.port import ConnectionSpec, EngineConnection, EngineRequest, TransactionStatus
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineUnavailable,
    InvalidRequest,
    QueryCancelled,
    TransactionFailed,
)
from queryflux.results.answer import Answer, Done, EngineStats, Shape

if TYPE_CHECKING:
    from queryflux.engines.duckdb.engine import DuckDbEngine


class DuckDbConnection(EngineConnection):
    """Holds no lane between statements, unless a transaction or session state needs it."""

    def __init__(self, engine: "DuckDbEngine", spec: ConnectionSpec) -> None:
        self._engine = engine
        self._spec = spec
        self._status = TransactionStatus.IDLE
        self._kept: Lane | None = None
        self._has_session_state = False
        self._litter = False
        self._cancels = 0
        self._running: Running | None = None
        self._closed = False

    @property
    def transaction(self) -> TransactionStatus:
        return self._status

    async def execute(self, request: EngineRequest) -> Answer:
        self._check_free()
        command = control(request.sql)
        if command is not None:
            return await self._control(command)
        self._check_not_failed()
        began = self._engine.clock.monotonic()
        target = await self._target(request)
        running = self._start()
        try:
            outcome: Outcome = await running.call(
                self._engine.worker.start, running.lane, request.sql, request.parameters, target
            )
        except BaseException as error:
            self._after_error(error)
            running.finish()
            raise
        self._remember(outcome.effect, running)
        if outcome.ended:
            running.finish()
        stats = EngineStats(elapsed_ms=round((self._engine.clock.monotonic() - began) * 1000))
        if outcome.schema is None:
            return Done(outcome.tag, outcome.affected, stats)
        return DuckDbBatches(self._engine.worker, running, request.sql, outcome, self._fail, stats)

    async def describe(self, request: EngineRequest) -> Shape:
        self._check_free()
        if control(request.sql) is not None:
            return Shape((), None)
        self._check_not_failed()
        target = await self._target(request)
        running = self._start()
        try:
            return await running.call(
                self._engine.worker.describe, running.lane, request.sql, target, request.parameters
            )
        except BaseException as error:
            self._after_error(error)
            raise
        finally:
            running.finish()

    async def cancel(self) -> None:
        self._cancels += 1
        if self._running is not None:
            self._fail()
            await self._running.stop()

    async def sync(self) -> None:
        """Nothing to do: DuckDB has no batches of statements."""

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._running is not None:
            await self._running.stop()
        if self._kept is not None:
            await self._leave_transaction()
        self._engine.forget(self)

    # Beginning and ending a statement.

    def _check_free(self) -> None:
        if self._closed:
            raise InvalidRequest("the connection is closed")
        self._engine.check_open()
        if self._running is not None:
            raise InvalidRequest("another statement's result is still open; read or close it first")

    def _check_not_failed(self) -> None:
        if self._status is TransactionStatus.FAILED:
            raise TransactionFailed(
                "the transaction has failed; nothing runs in it any more", hint="Send ROLLBACK first."
            )

    async def _target(self, request: EngineRequest) -> str | None:
        """Where its names are looked up, which may have to be asked. Raises QueryCancelled when ``cancel``
        came meanwhile."""
        cancels = self._cancels
        target = await self._engine.namespaces.target(request.session)
        if self._cancels != cancels:
            raise QueryCancelled("the query was cancelled")
        self._check_free()
        return target

    def _start(self) -> Running:
        lane = self._kept or self._engine.lanes.take()
        self._running = Running(lane, self._engine.tasks, self._released)
        return self._running

    def _released(self, running: Running) -> None:
        self._running = None
        if running.lane is self._kept:
            return
        if self._litter:
            self._litter = False
            self._engine.lanes.discard(running.lane)
        else:
            self._engine.lanes.put_back(running.lane)

    def _remember(self, effect: Effect, running: Running) -> None:
        if effect is Effect.SESSION:
            self._has_session_state = True
            self._kept = running.lane
        elif effect is Effect.LITTER:
            self._litter = True

    def _after_error(self, error: BaseException) -> None:
        self._fail()
        if isinstance(error, EngineConnectionLost):
            self._engine.reopen()

    def _fail(self) -> None:
        if self._status is TransactionStatus.OPEN:
            self._status = TransactionStatus.FAILED

    # Transactions.

    async def _control(self, command: Control) -> Done:
        """As PostgreSQL does: BEGIN in a transaction and COMMIT outside one change nothing, and COMMIT of
        a failed transaction rolls it back."""
        inside = self._status is not TransactionStatus.IDLE
        if command.tag == "BEGIN":
            if self._status is TransactionStatus.FAILED:
                self._check_not_failed()
            if not inside:
                await self._begin(command.sql)
            return Done("BEGIN")
        if not inside:
            return Done(command.tag)
        if command.tag == "COMMIT" and self._status is TransactionStatus.OPEN:
            await self._end("COMMIT")
            return Done("COMMIT")
        await self._end("ROLLBACK")
        return Done("ROLLBACK")

    async def _begin(self, sql: str) -> None:
        running = self._start()
        self._litter = True  # unless BEGIN is known to have come back, nobody else may get this lane
        try:
            await running.call(self._engine.worker.command, running.lane, sql)
        except BaseException:
            running.finish()
            raise
        self._litter = False
        self._kept = running.lane
        self._status = TransactionStatus.OPEN
        running.finish()

    async def _end(self, sql: str) -> None:
        running = self._start()
        ended = False
        try:
            await running.call(self._engine.worker.command, running.lane, sql)
            ended = True
        finally:
            self._status = TransactionStatus.IDLE
            running.finish()
            if self._kept is not None and not self._has_session_state:
                lane, self._kept = self._kept, None
                # One of which it is not known that the transaction is over goes with its cursor.
                (self._engine.lanes.put_back if ended else self._engine.lanes.discard)(lane)

    async def _leave_transaction(self) -> None:
        """The client has gone: what it left open is rolled back with the cursor."""
        lane, self._kept = self._kept, None
        self._status = TransactionStatus.IDLE
        if lane is not None:
            self._engine.lanes.discard(lane)


def unavailable(name: str) -> EngineUnavailable:
    """What a statement gets once the cluster is shut down."""
    return EngineUnavailable(f"cluster {name} is shut down")
