"""Queries that any process of one database answers for: what is shared of them, and their sweeps."""

from queryflux.admission.claims import ClaimStore
from queryflux.admission.port import SweepCoordinator
from queryflux.config.fleet import CoordinationConfig
from queryflux.config.process import ProcessConfig
from queryflux.pipeline.claims import Claims
from queryflux.pipeline.eviction import Eviction
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics


class SharedQueries:
    """This process's part in them."""

    def __init__(
        self,
        claims: ClaimStore,
        sweeps: SweepCoordinator,
        process: ProcessConfig,
        pipeline: QueryPipeline,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        settings = process.coordination or CoordinationConfig()
        self.claims = Claims(
            claims,
            clock,
            metrics,
            reachable=process.advertise_address is not None,
            refresh_secs=settings.claim_refresh_secs,
            stale_secs=settings.claim_stale_secs,
        )
        self._eviction = Eviction(
            claims,
            sweeps,
            pipeline,
            clock,
            metrics,
            interval_secs=settings.sweep_interval_secs,
            stale_secs=settings.claim_stale_secs,
            refresh_secs=settings.claim_refresh_secs,
        )

    async def start(self) -> None:
        """Begin to refresh and to sweep. Raises StoreUnavailable."""
        await self.claims.start()
        self.claims.tasks.spawn("eviction", self._eviction.run())

    async def close(self) -> None:
        """For when no query is left."""
        await self.claims.close()
