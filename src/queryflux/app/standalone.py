"""One process that serves queries from its own configuration: role ``standalone``.

Start: compile everything, open the operator port, open the doors. End (SIGTERM, SIGINT): /readyz says 503, no
new clients, running queries get shutdownDrainTimeoutSecs, then they are ended; a second signal ends them at
once.
"""

import asyncio
import logging
import signal

from queryflux.app.compile import compile_generation
from queryflux.app.doors import DOORS, Behind, Door
from queryflux.app.ops import OpsListener, ops_app
from queryflux.auth.build import build_authenticator
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.history.memory import MemoryHistory
from queryflux.model.errors import NotConfigured
from queryflux.model.ids import QueryIds, new_process_tag
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.telemetry.logs import QueryLog
from queryflux.telemetry.prometheus import CONTENT_TYPE, PrometheusMetrics

log = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 2.0
"""How long clients may take, once the drain is over, to fetch what was written for them."""


class Standalone:
    """A running QueryFlux."""

    def __init__(self, config: RootConfig, snapshot: Snapshot, clock: Clock | None = None) -> None:
        """Compiles the configuration; opens nothing. Raises ConfigError."""
        process = config.queryflux
        self.config = config
        self.clock = clock or SystemClock()
        self.metrics = PrometheusMetrics()
        self.history = MemoryHistory(process.history.max_records)
        self.query_log = QueryLog(
            process.logging.format, self.clock, enabled=process.logging.level in {"debug", "info"}
        )
        self.process_tag = new_process_tag()
        self.pipeline = QueryPipeline(
            clock=self.clock,
            metrics=self.metrics,
            recorder=Recorder(self.history, self.query_log, self.metrics),
            ids=QueryIds(self.process_tag, self.clock.now),
            max_statement_bytes=process.max_statement_bytes,
        )
        self.auth = build_authenticator(config.auth, self.clock)
        self.generation = compile_generation(
            snapshot, self.clock, untagged_metrics=process.metrics.tags_deny_list
        )
        self.doors: dict[str, Door] = {}
        self.ops = OpsListener(process.admin_api, ops_app(self.check_ready, self.exposition))
        self._open = False
        self._signalled = asyncio.Event()
        self._hurry = asyncio.Event()

    def check_ready(self) -> None:
        """Raises NotConfigured until every door is open, ShuttingDown once the drain has begun."""
        self.pipeline.check_ready()
        if not self._open:
            raise NotConfigured("the doors are not open yet", hint="retry in a moment")

    def exposition(self) -> tuple[bytes, str]:
        """The metrics document, with the gauges as they are now."""
        self.metrics.gauge("queryflux_history_records").set(len(self.history))
        for name, plan in self.generation.groups.items():
            self.metrics.gauge("queryflux_queued_queries", cluster_group=name).set(
                len(plan.admission.waiters)
            )
            for member in plan.admission.members:
                self.metrics.gauge(
                    "queryflux_running_queries", cluster_group=name, cluster_name=member.name
                ).set(member.running)
        return self.metrics.render(), CONTENT_TYPE

    def _warm_translation(self) -> None:
        """Load now what every statement of some door will need: its dialect, where no cluster speaks it. A
        process whose doors all have an engine of their own stays small."""
        engines = [cluster.engine for cluster in self.generation.clusters.values()]
        spoken = {engine.native_protocol for engine in engines}
        doors = self.config.queryflux.frontends.named()
        foreign = [
            ClientProtocol(name)
            for name, listener in doors.items()
            if listener.enabled and ClientProtocol(name) not in spoken
        ]
        self.generation.translator.warm(
            {(protocol.dialect, engine.dialect) for protocol in foreign for engine in engines}
        )

    async def start(self) -> None:
        """Open the operator port, activate the configuration, open the doors. Raises ConfigError; whatever
        was opened before is closed again."""
        try:
            await self.ops.start()
            self._warm_translation()
            self.pipeline.activate(self.generation)
            behind = Behind(
                self.pipeline,
                lambda: self.auth,
                self.metrics,
                self.clock,
                self.process_tag,
                self.config.queryflux.external_address,
            )
            for name, listener in self.config.queryflux.frontends.named().items():
                if listener.enabled:
                    door = DOORS[name](listener, behind)
                    await door.start()
                    self.doors[name] = door
                    log.info("%s listens on %s:%d", name, listener.host, door.port)
            self._open = True
            log.info("operator port listens on %s:%d", self.config.queryflux.admin_api.host, self.ops.port)
        except BaseException:
            await self.close()
            raise

    def request_stop(self) -> None:
        """What a signal does: the first begins the drain, the second ends it."""
        if self._signalled.is_set():
            self._hurry.set()
        self._signalled.set()

    async def run(self) -> None:
        """Serve until a signal comes, then drain and close."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request_stop)
        try:
            await self._signalled.wait()
            await self.drain()
        finally:
            await self.close(0 if self._hurry.is_set() else LAST_WORDS_SECONDS)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def drain(self) -> None:
        """Stop taking clients; let running queries end, at most for shutdownDrainTimeoutSecs or until told to
        hurry."""
        seconds = self.config.queryflux.shutdown_drain_timeout_secs
        log.info("draining: running queries have %g s to end", seconds)
        draining = asyncio.ensure_future(self.pipeline.drain(seconds))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurry):
            task.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)

    async def close(self, grace: float = 0) -> None:
        """End what is left and close everything; clients may take ``grace`` seconds to fetch what is ready
        for them. May be called twice."""
        await self.pipeline.close()
        doors, self.doors = self.doors, {}
        closing = [door.close(grace) for door in doors.values()]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("closing a door failed", exc_info=outcome)
        await self.ops.close()
        self.query_log.flush()
