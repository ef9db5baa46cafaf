"""A process that serves queries, whatever its role: pipeline, doors, signals, drain.

A role (standalone.py, worker.py) adds where the configuration comes from, what it shares with other
processes, and the order in which all of it begins and ends.
"""

import asyncio
import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from queryflux.admission.slots import Admission
from queryflux.app.activation import Activation
from queryflux.app.doors import DOORS, Behind, Door
from queryflux.app.history import ProcessHistory
from queryflux.app.ops import OpsListener
from queryflux.app.seat import Seat
from queryflux.app.siblings import answer_operators
from queryflux.auth.port import Authenticator
from queryflux.config.clusters import ClusterConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import Snapshot
from queryflux.model.errors import NotConfigured
from queryflux.model.ids import QueryIds, new_instance_id, new_process_tag
from queryflux.pipeline.claims import Claims
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.generation import Generation
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.telemetry.logs import QueryLog
from queryflux.telemetry.prometheus import CONTENT_TYPE, PrometheusMetrics

log = logging.getLogger(__name__)

DRAINING = "draining: queries that run or wait have %g s to end; a second signal (Ctrl-C) ends them now"
LEAVE_SECONDS = 4.0
"""How long it may take, once the last query has ended, until others are told that this process drains."""
LAST_WORDS_SECONDS = 2.0
"""How long clients may take, once the drain is over, to fetch what was written for them."""


@dataclass(frozen=True, slots=True)
class Core:
    """What everything in a process is built on."""

    clock: Clock
    metrics: PrometheusMetrics
    instance_id: str

    @classmethod
    def of(cls, process: ProcessConfig, clock: Clock | None = None) -> "Core":
        """That of one process; the machine's own clock unless told."""
        return cls(clock or SystemClock(), PrometheusMetrics(), process.instance_id or new_instance_id())


async def close_all(*closing: Callable[[], Awaitable[object]]) -> None:
    """One after the other. One that fails does not keep what comes after it open: history, above all."""
    for close in closing:
        try:
            await close()
        except Exception:
            log.exception("closing failed inside QueryFlux; going on")


class QueryProcess(ABC):
    """A running QueryFlux."""

    def __init__(
        self,
        config: RootConfig,
        file: Snapshot,
        core: Core,
        admission: Admission | None = None,
        seat: Seat | None = None,
    ) -> None:
        """Opens nothing. ``file`` is the file's own snapshot; ``admission`` is the fleet's, where there is
        one; ``seat`` is this process's place among siblings. Raises ConfigError."""
        process = config.queryflux
        self.config = config
        self.file = file
        self.clock = core.clock
        self.metrics = core.metrics
        self.instance_id = core.instance_id
        self.records = ProcessHistory(process, self.instance_id, self.clock, self.metrics)
        self.history = self.records.memory
        self.query_log = QueryLog(
            process.logging.format,
            self.clock,
            enabled=process.logging.level in {"debug", "info"},
            worker=(process.worker_name or "") if seat is not None else "",
        )
        self.seat = seat
        self.process_tag = seat.tag if seat is not None else new_process_tag()
        self.pipeline = QueryPipeline(
            clock=self.clock,
            metrics=self.metrics,
            recorder=Recorder(self.records, self.query_log, self.metrics, self.clock),
            ids=QueryIds(self.process_tag, self.clock.now),
            max_statement_bytes=process.max_statement_bytes,
            admission=admission,
        )
        self.activation = Activation(process, file, self.clock, self.pipeline.activate, self.metrics)
        self.doors: dict[str, Door] = {}
        self.ops: OpsListener | None = None
        self._shown: set[tuple[str, str]] = set()
        self._open = False
        self.when_stopping: Callable[[], None] = lambda: None
        """Called when the first signal has come."""
        self._signalled = asyncio.Event()
        self._hurry = asyncio.Event()

    # What a role does.

    @abstractmethod
    async def start(self) -> None:
        """Open everything. Raises ConfigError; whatever was opened before is closed again."""

    @abstractmethod
    async def close(self, grace: float = 0) -> None:
        """End what is left and close everything; clients may take ``grace`` seconds to fetch what is ready
        for them. May be called twice."""

    @abstractmethod
    async def _leave(self) -> None:
        """The drain begins: tell whom it concerns."""

    # How it is.

    def check_ready(self) -> None:
        """Raises NotConfigured until every door is open, ShuttingDown once the drain has begun."""
        self.pipeline.check_ready()
        if not self._open:
            raise NotConfigured("the doors are not open yet", hint="retry in a moment")

    @property
    def generation(self) -> Generation:
        """The one in use. Raises NotConfigured."""
        return self.pipeline.generation

    @property
    def auth(self) -> Authenticator:
        """Who doors ask. Raises NotConfigured."""
        return self.activation.authenticator()

    def ports(self) -> dict[str, int]:
        """The port of each open door and of the operator port, by their keys."""
        doors = {name: door.port for name, door in self.doors.items()}
        return doors | ({"adminApi": self.ops.port} if self.ops is not None else {})

    def exposition(self) -> tuple[bytes, str]:
        """The metrics document, with the gauges as they are now."""
        self.metrics.gauge("queryflux_history_records").set(self.records.in_memory)
        active = self.pipeline.active
        groups = active.groups if active is not None else {}
        shown = {(name, "") for name in groups}
        for name, plan in groups.items():
            self.metrics.gauge("queryflux_queued_queries", cluster_group=name).set(
                len(plan.admission.waiters)
            )
            for member in plan.admission.members:
                shown.add((name, member.name))
                self.metrics.gauge(
                    "queryflux_running_queries", cluster_group=name, cluster_name=member.name
                ).set(member.running)
        for name, cluster in self._shown - shown:
            if cluster:
                self.metrics.forget("queryflux_running_queries", cluster_group=name, cluster_name=cluster)
            else:
                self.metrics.forget("queryflux_queued_queries", cluster_group=name)
        self._shown = shown
        return self.metrics.render(), CONTENT_TYPE

    def _clusters(self) -> Mapping[str, ClusterConfig]:
        return self.activation.compiled.snapshot.clusters

    # Doors.

    async def _open_doors(self, claims: Claims | None = None) -> None:
        """Raises ConfigError."""
        seat = self.seat
        behind = Behind(
            self.pipeline,
            self.activation.authenticator,
            self.metrics,
            self.clock,
            self.process_tag,
            self.config.queryflux.external_address,
            claims,
            seat.siblings if seat is not None else None,
            seat.shared if seat is not None else {},
        )
        if seat is not None:
            answer_operators(seat.siblings, self.pipeline, self.clock, self.instance_id)
            await seat.siblings.start()
        for name, listener in self.config.queryflux.frontends.named().items():
            if listener.enabled:
                door = DOORS[name](listener, behind)
                await door.start()
                self.doors[name] = door
                log.info("%s listens on %s:%d", name, listener.host, door.port)
        self._open = True

    async def _close_doors(self, grace: float) -> None:
        doors, self.doors = self.doors, {}
        closing = [door.close(grace) for door in doors.values()]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("closing a door failed", exc_info=outcome)
        if self.seat is not None:
            await self.seat.siblings.close()

    # The end.

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
            self.when_stopping()
            await self.drain()
        finally:
            await self.close(0 if self._hurry.is_set() else LAST_WORDS_SECONDS)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def drain(self) -> None:
        """Stop taking clients; let running queries end, at most for shutdownDrainTimeoutSecs or until told to
        hurry. Whom it concerns is told meanwhile, and is not waited for longer than LEAVE_SECONDS."""
        seconds = self.config.queryflux.shutdown_drain_timeout_secs
        log.info(DRAINING, seconds)
        self.pipeline.begin_drain()
        leaving = asyncio.ensure_future(self._leave())
        if self.seat is not None and not self.seat.together:
            for door in self.doors.values():
                door.stop_accepting()  # others are there for new clients
        draining = asyncio.ensure_future(self.pipeline.drain(seconds))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not (leaving.done() or hurry.done()):
            await asyncio.wait({leaving, hurry}, timeout=LEAVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in (leaving, draining, hurry):
            task.cancel()
        left, *_ = await asyncio.gather(leaving, draining, hurry, return_exceptions=True)
        if isinstance(left, Exception):
            log.error("taking leave failed inside QueryFlux; going on", exc_info=left)
