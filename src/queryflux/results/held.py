"""An answer that is already here, as a stream of batches."""

import pyarrow as pa

from queryflux.results.answer import Batches, EngineStats


class HeldTable(Batches):
    """The batches of a table in memory."""

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self.stats = EngineStats()
        self._batches = iter(table.to_batches())

    async def next(self) -> pa.RecordBatch | None:
        return next(self._batches, None)

    async def close(self) -> None:
        self._batches = iter(())
