"""A DuckDB result as it is read."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from queryflux.engines.duckdb.running import Running
from queryflux.engines.duckdb.work import Outcome, Worker
from queryflux.model.errors import QueryCancelled, QueryFluxError
from queryflux.results.answer import Batches, EngineStats

if TYPE_CHECKING:
    import pyarrow as pa


class DuckDbBatches(Batches):
    """What the first call brought is answered at once; each further batch is one call in the lane's thread,
    made when somebody asks."""

    def __init__(
        self,
        worker: Worker,
        running: Running,
        sql: str,
        outcome: Outcome,
        failed: Callable[[], None],
        stats: EngineStats,
    ) -> None:
        assert outcome.schema is not None
        self.schema = outcome.schema
        self.stats = stats
        self._worker = worker
        self._running = running
        self._sql = sql
        self._failed = failed
        self._ready = deque(outcome.batches)
        self._ended = outcome.ended
        self._closed = False

    async def next(self) -> "pa.RecordBatch | None":
        while True:
            if self._running.cancelled:
                self._ready.clear()
                raise QueryCancelled("the query was cancelled")
            if self._closed:
                return None
            if self._ready:
                return self._ready.popleft()
            if self._ended:
                return None
            await self._read()

    async def _read(self) -> None:
        try:
            batches, self._ended = await self._running.call(
                self._worker.read_more, self._running.lane, self.schema, self._sql
            )
        except QueryFluxError:
            self._ended = True
            self._failed()
            self._running.finish()
            raise
        self._ready.extend(batches)
        if self._ended:
            self._running.finish()

    async def close(self) -> None:
        self._closed = True
        self._ready.clear()
        if not self._ended:
            self._ended = True
            await self._running.stop()
