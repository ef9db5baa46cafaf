"""An engine that does what its script says, and counts what it is asked: for tests of the rooms before it.

It is no kinder than a real one: it runs one statement per connection, a statement takes until the test lets
it go, cancel is answered by an error, and closing an answer early is noticed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pyarrow as pa

from queryflux.engines.port import (
    Capability,
    ColumnRef,
    ConnectionSpec,
    Engine,
    EngineConnection,
    EngineRequest,
    TableRef,
    TransactionStatus,
)
from queryflux.model.errors import EngineConnectionLost, EngineError, QueryCancelled
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import Answer, Batches, Done, EngineStats, Shape

ONE = pa.table({"x": pa.array([1], pa.int32())})


@dataclass
class Step:
    """What a statement does: waits for ``gate``, then fails with ``error``, or answers ``table`` in batches
    of ``rows_per_batch``, waiting for ``batch_gate`` before each; ``done`` answers a count instead."""

    table: pa.Table = field(default_factory=lambda: ONE)
    error: Exception | None = None
    gate: asyncio.Event | None = None
    batch_gate: asyncio.Semaphore | None = None
    rows_per_batch: int = 1024
    done: Done | None = None
    fail_after: int | None = None


class ScriptedEngine(Engine):
    """``script`` gives the step for each statement; without one every statement answers one row."""

    engine_key = "scripted"

    def __init__(
        self,
        name: str = "scripted",
        script: Callable[[EngineRequest], Step] | None = None,
        *,
        dialect: str = "postgres",
        native: ClientProtocol | None = None,
        capabilities: frozenset[Capability] = frozenset(Capability),
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.native_protocol = native
        self.capabilities = capabilities
        self.script = script or (lambda request: Step())
        self.requests: list[EngineRequest] = []
        self.running = 0
        self.peak = 0
        self.cancels = 0
        self.connections: list[ScriptedConnection] = []
        self.probe_error: Exception | None = None
        self.probes = 0
        self.listing: list[TableRef] = []
        self.column_listing: list[ColumnRef] = []
        self.closed = False

    @property
    def statements(self) -> list[str]:
        """The SQL of every request, in order."""
        return [request.sql for request in self.requests]

    @property
    def open_connections(self) -> int:
        """Connections that nobody has closed."""
        return sum(not connection.closed for connection in self.connections)

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        connection = ScriptedConnection(self)
        self.connections.append(connection)
        return connection

    async def probe(self) -> None:
        self.probes += 1
        if self.probe_error is not None:
            raise self.probe_error

    async def tables(self) -> list[TableRef]:
        return self.listing

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        return [
            column
            for column in self.column_listing
            if (schema is None or column.table.schema == schema)
            and (table is None or column.table.name == table)
        ]

    async def close(self) -> None:
        self.closed = True


class ScriptedConnection(EngineConnection):
    """One client's way to a ScriptedEngine."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._status = TransactionStatus.IDLE
        self._cancelled = asyncio.Event()
        self._busy = False
        self.syncs = 0
        self._broken = False
        self.closed = False

    @property
    def transaction(self) -> TransactionStatus:
        return self._status

    async def execute(self, request: EngineRequest) -> Answer:
        assert not self.closed, "execute on a closed connection"
        assert not self._busy, "two statements at once on one connection"
        self._engine.requests.append(request)
        if self._broken:
            self._broken = False
            self._status = TransactionStatus.IDLE
            raise EngineConnectionLost("reset by peer")
        if (control := self._control(request.sql)) is not None:
            return control
        self._cancelled.clear()
        self._begin()
        try:
            return await self._run(self._engine.script(request))
        except BaseException:
            self.finish()
            if self._status is TransactionStatus.OPEN:
                self._status = TransactionStatus.FAILED
            raise

    def lose(self) -> None:
        """The link breaks at the next statement; a new one works."""
        self._broken = True

    async def _run(self, step: Step) -> Answer:
        if step.gate is not None:
            await self.wait_or_cancel(step.gate.wait())
        if step.error is not None:
            raise step.error
        if step.done is not None:
            self.finish()
            return step.done
        return ScriptedBatches(self, step)

    def _control(self, sql: str) -> Done | None:
        word = sql.split()[0].upper() if sql.split() else ""
        if word not in {"BEGIN", "START", "COMMIT", "ROLLBACK"} or " TO " in sql:
            if self._status is TransactionStatus.FAILED:
                raise EngineError("the transaction has failed", sqlstate="25P02")
            return None
        self._status = TransactionStatus.OPEN if word in {"BEGIN", "START"} else TransactionStatus.IDLE
        return Done(word)

    def _begin(self) -> None:
        self._busy = True
        self._engine.running += 1
        self._engine.peak = max(self._engine.peak, self._engine.running)

    def finish(self) -> None:
        """The statement is over."""
        if self._busy:
            self._busy = False
            self._engine.running -= 1

    async def wait_or_cancel(self, wait: Coroutine[object, object, object]) -> None:
        """Wait, but not past a cancel. Raises QueryCancelled."""
        waiting = asyncio.ensure_future(wait)
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({waiting, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiting, cancelled):
                task.cancel()
            await asyncio.gather(waiting, cancelled, return_exceptions=True)
        if self._cancelled.is_set():
            raise QueryCancelled("cancelled at the engine")

    async def describe(self, request: EngineRequest) -> Shape:
        return Shape((), self._engine.script(request).table.schema)

    async def cancel(self) -> None:
        if self._busy:
            self._engine.cancels += 1
            self._cancelled.set()
            self.finish()

    async def sync(self) -> None:
        self.syncs += 1

    async def close(self) -> None:
        await self.cancel()
        self._status = TransactionStatus.IDLE
        self.closed = True


class ScriptedBatches(Batches):
    """The answer of a step."""

    def __init__(self, connection: ScriptedConnection, step: Step) -> None:
        self.schema = step.table.schema
        self.stats = EngineStats(backend_query_id="scripted-1")
        self._connection = connection
        self._step = step
        self._batches = iter(step.table.to_batches(max_chunksize=step.rows_per_batch))
        self._given = 0

    async def next(self) -> pa.RecordBatch | None:
        if self._step.batch_gate is not None:
            await self._connection.wait_or_cancel(self._step.batch_gate.acquire())
        if self._step.fail_after is not None and self._given >= self._step.fail_after:
            self._connection.finish()
            raise EngineError("failed midway")
        batch = next(self._batches, None)
        self._given += 1
        if batch is None:
            self._connection.finish()
        return batch

    async def close(self) -> None:
        self._connection.finish()
