"""A worker's reports to its control plane: at the start, every so often, soon after something worth telling
has happened, and for the last time when it stops, so that it is not taken for lost.

What it reports is somebody else's business; nothing of the worker waits for a report.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

import msgspec
from msgspec.structs import replace

from queryflux.fleet.paths import HEARTBEAT, REGISTER
from queryflux.fleet.registry import UNKNOWN_WORKER, Heartbeat, Phase, encode_heartbeat
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.worker.port import ControlPlane, Reply

log = logging.getLogger(__name__)

CALL_SECS = 5.0
LAST_CALL_SECS = 2.0
"""How long the last report may keep a worker that stops."""
SOON_SECS = 1.0
"""Within this time a change is told; a fleet that takes the same change does not call all at once."""
JSON = {"content-type": "application/json"}


class Reports:
    """Sends them. ``failures`` counts those that did not arrive; ``failing`` says why the latest did not."""

    def __init__(
        self,
        control_plane: ControlPlane,
        describe: Callable[[], Heartbeat],
        clock: Clock,
        metrics: Metrics,
        *,
        interval_secs: float,
        chance: Random | None = None,
    ) -> None:
        """``describe`` gives a report as of now, except for its number."""
        self._control_plane = control_plane
        self._describe = describe
        self._clock = clock
        self._interval = interval_secs
        self._chance = chance or Random()
        self._counter = metrics.counter("queryflux_worker_heartbeat_failures_total")
        self._tasks = TaskGroup("reports")
        self._woken = asyncio.Event()
        self._pressing = asyncio.Event()
        self._number = 0
        self._registered = False
        self.failures = 0
        self.failing = ""

    def start(self) -> None:
        """Register, and go on reporting."""
        self._tasks.spawn("report", self._keep_reporting())

    def soon(self) -> None:
        """Something has changed that operators look for: do not wait for the next heartbeat."""
        self._woken.set()

    def at_once(self) -> None:
        """Something has changed that operators look for, once in a process's life: do not wait at all."""
        self._pressing.set()
        self._woken.set()

    async def close(self) -> None:
        """Say good-bye, if the control plane knows us."""
        await self._tasks.close()
        if self._registered:
            try:
                await self._send(HEARTBEAT, LAST_CALL_SECS, phase=Phase.STOPPED.value)
            except StoreUnavailable as error:
                log.info("the control plane was not told that this worker stops: %s", error.message)

    async def _keep_reporting(self) -> None:
        while True:
            try:
                await self._report()
            except StoreUnavailable as error:
                self._failed(error.message)
            except Exception:
                log.exception("a report to the control plane failed inside QueryFlux; trying again")
            await self._until_due()

    async def _until_due(self) -> None:
        await self._wait(self._woken, self._interval * self._chance.uniform(0.9, 1))
        await self._wait(self._pressing, min(SOON_SECS, self._interval / 10) * self._chance.random())
        self._woken.clear()
        self._pressing.clear()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """For an event, which comes by itself after so long."""
        timer = self._clock.call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()

    async def _report(self) -> None:
        """One report that arrives. Raises StoreUnavailable."""
        seconds = min(CALL_SECS, self._interval)
        if self._registered:
            reply = await self._send(HEARTBEAT, seconds)
            self._registered = not _is_unknown(reply)
        if not self._registered:
            reply = await self._send(REGISTER, seconds)
            self._registered = 200 <= reply.status < 300
        if not 200 <= reply.status < 300:
            self._failed(f"it answered {reply.status} {_detail(reply)}".strip())
            return
        if self.failing:
            log.info("the control plane takes reports of this worker again")
        self.failing = ""

    async def _send(self, path: str, seconds: float, phase: str | None = None) -> Reply:
        self._number += 1
        report = replace(self._describe(), number=self._number)
        if phase is not None:
            report = replace(report, phase=phase)
        body = encode_heartbeat(report)
        return await self._control_plane.call("POST", path, body, headers=JSON, seconds=seconds)

    def _failed(self, why: str) -> None:
        """Count it; the first of several is told."""
        self.failures += 1
        self._counter.inc()
        if not self.failing:
            log.warning("the control plane does not take reports of this worker: %s", why)
        self.failing = why


def _is_unknown(reply: Reply) -> bool:
    return reply.status == 404 and _problem(reply).get("code") == UNKNOWN_WORKER


def _detail(reply: Reply) -> str:
    return str(_problem(reply).get("detail", ""))


def _problem(reply: Reply) -> dict[str, object]:
    """The problem document of a refusal, if it is one."""
    try:
        document = msgspec.json.decode(reply.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
