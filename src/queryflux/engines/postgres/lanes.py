"""The ADBC connections of one cluster."""

import asyncio
import logging
from typing import TYPE_CHECKING

from queryflux.engines.postgres.lane import Lane
from queryflux.engines.postgres.pool import Pool

if TYPE_CHECKING:
    from queryflux.engines.postgres.engine import PostgresEngine

log = logging.getLogger(__name__)

JOIN_TIMEOUT = 10.0
"""Seconds that a thread gets to end."""


class Lanes:
    """The lanes of one cluster, at most ``poolSize`` of them."""

    def __init__(self, engine: "PostgresEngine") -> None:
        self._engine = engine
        self._count = 0
        self._all: set[Lane] = set()
        target = engine.target
        self.pool: Pool[Lane] = Pool(target.where, target.pool_size, self._open, engine.clock)

    async def _open(self) -> Lane:
        self._count += 1
        lane = Lane(self._engine.target, f"postgres-{self._engine.name}-{self._count}")
        self._all = {known for known in self._all if not known.gone} | {lane}
        try:
            await lane.run(lane.do_open)
        except BaseException:
            lane.close()
            raise
        return lane

    async def stop(self, lane: Lane, pauses: tuple[float, ...]) -> None:
        """Make the thread of a lane come back from the call it is in, by cancelling at the server."""
        for pause in pauses:
            call = lane.call
            if call is None or call.done():
                return
            if lane.pid:
                await self._engine.cancel_backend(lane.pid, lane.started)
            await asyncio.wait({call}, timeout=pause)
        log.warning(
            "PostgreSQL %s did not stop a query within %.0f s of being asked; its connection is dropped",
            self._engine.target.where,
            sum(pauses),
        )
        lane.broken = True

    async def close(self) -> None:
        """Close every lane and return when their threads have ended."""
        self.pool.close()
        for lane in list(self._all):
            lane.close()
        joins = [lane.thread.join() for lane in list(self._all)]
        if joins:
            _, late = await asyncio.wait(
                [asyncio.ensure_future(join) for join in joins], timeout=JOIN_TIMEOUT
            )
            for join in late:
                join.cancel()
                log.error("a thread of PostgreSQL cluster %s does not end", self._engine.name)
