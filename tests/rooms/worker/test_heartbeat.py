"""A worker reports: at the start, every interval, soon after a change, and when it stops."""

import logging
from collections.abc import AsyncIterator, Mapping
from random import Random

import pytest
from msgspec.structs import replace

from queryflux.controlplane.registry import WorkerRegistry
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.fleet.paths import HEARTBEAT, INSTANCE_HEADER, REGISTER
from queryflux.fleet.registry import Heartbeat, Phase, RowState, WorkerRow
from queryflux.history.upkeep import alone
from queryflux.model.errors import StoreUnavailable
from queryflux.persistence.memory_registry import MemoryRegistryStore
from queryflux.telemetry.prometheus import PrometheusMetrics
from queryflux.worker.heartbeat import LAST_CALL_SECS, Reports
from queryflux.worker.port import NO_HEADERS, Reply
from tests.kit.clock import ManualClock
from tests.kit.operators import ask

INTERVAL = 10.0


class Road:
    """A control plane that can be reached, or cannot; ``answer`` stands for what it would say itself."""

    def __init__(self, clock: ManualClock) -> None:
        self.store = MemoryRegistryStore(clock)
        registry = WorkerRegistry(self.store, alone, lambda: None, clock)
        self.app = WorkerApp(registry.endpoints(), lambda peer, secret, worker: None)
        self.calls: list[str] = []
        self.seconds: list[float] = []
        self.cut = False
        self.answer: Reply | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        self.calls.append(path)
        self.seconds.append(seconds)
        if self.cut:
            raise StoreUnavailable("connection refused")
        if self.answer is not None:
            return self.answer
        sent = {**headers, INSTANCE_HEADER: "w-1"}
        reply = await ask(self.app, method, path, sent, body, "")
        return Reply(reply.status, reply.headers, reply.body)

    async def row(self) -> WorkerRow:
        (row,) = await self.store.rows()
        return row


class Worker:
    """A worker that reports."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.road = Road(self.clock)
        self.metrics = PrometheusMetrics()
        self.report = Heartbeat(instance_id="w-1", worker_name="w")
        self.reports = Reports(
            self.road,
            lambda: self.report,
            self.clock,
            self.metrics,
            interval_secs=INTERVAL,
            chance=Random(1),
        )


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    worker = Worker()
    yield worker
    await worker.reports.close()


async def test_it_registers_at_the_start_and_then_sends_heartbeats(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(0)
    assert worker.road.calls == [REGISTER]
    await worker.clock.advance(60)
    assert worker.road.calls[1:] == [HEARTBEAT] * len(worker.road.calls[1:])
    assert 5 <= len(worker.road.calls[1:]) <= 6
    assert (await worker.road.row()).report.number == len(worker.road.calls)


async def test_a_heartbeat_says_how_things_are_then(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(0)
    worker.report = replace(worker.report, active_revision="ff")
    await worker.clock.advance(1.2 * INTERVAL)
    assert (await worker.road.row()).report.active_revision == "ff"


async def test_a_change_is_told_within_a_second(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(1)
    worker.report = replace(worker.report, rejected_revision="ff", rejected_error="no such driver")
    worker.reports.soon()
    await worker.clock.advance(1)
    assert (await worker.road.row()).report.rejected_error == "no such driver"
    assert worker.road.calls == [REGISTER, HEARTBEAT]


async def test_what_is_pressing_is_told_at_once(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(1)
    worker.report = replace(worker.report, phase=Phase.SERVING.value, active_revision="ff")
    worker.reports.soon()
    await worker.clock.advance(0)
    assert worker.road.calls == [REGISTER]
    worker.reports.at_once()
    await worker.clock.advance(0)
    assert (await worker.road.row()).report.active_revision == "ff"
    await worker.clock.advance(2)
    assert worker.road.calls == [REGISTER, HEARTBEAT]


async def test_a_change_while_a_report_is_under_way_is_told_too(worker: Worker) -> None:
    worker.reports.start()
    worker.reports.soon()
    await worker.clock.advance(1)
    assert worker.road.calls == [REGISTER, HEARTBEAT]


async def test_it_registers_again_when_the_control_plane_does_not_know_it(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(0)
    await worker.road.store.remove(0)  # it has started again, and keeps rows in memory
    await worker.clock.advance(1.2 * INTERVAL)
    assert worker.road.calls == [REGISTER, HEARTBEAT, REGISTER]
    assert (await worker.road.row()).state is RowState.ONLINE


async def test_failures_are_counted_and_said_once(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worker.road.cut = True
    worker.reports.start()
    await worker.clock.advance(10 * INTERVAL)
    assert worker.reports.failures == len(worker.road.calls) >= 9
    assert worker.reports.failing == "connection refused"
    assert f"queryflux_worker_heartbeat_failures_total {worker.reports.failures:.1f}".encode() in (
        worker.metrics.render()
    )
    worker.road.cut = False
    await worker.clock.advance(2 * INTERVAL)
    said = [record.getMessage() for record in caplog.records if "reports of this worker" in record.message]
    assert said == [
        "the control plane does not take reports of this worker: connection refused",
        "the control plane takes reports of this worker again",
    ]
    assert (await worker.road.row()).state is RowState.ONLINE
    assert worker.reports.failing == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Reply(404, {}, b'{"code":"NOT_FOUND","detail":"nothing is there"}'), "404 nothing is there"),
        (Reply(409, {}, b'{"code":"INSTANCE_ID_TAKEN","detail":"it is my own"}'), "409 it is my own"),
        (Reply(400, {}, b"<html>"), "400"),
        (Reply(400, {}, b"[" * 100_000), "400"),
        (Reply(200, {}, b""), ""),
    ],
)
async def test_a_refusal_is_a_failure_and_tried_again(worker: Worker, answer: Reply, why: str) -> None:
    worker.road.answer = answer
    worker.reports.start()
    await worker.clock.advance(3.5 * INTERVAL)
    assert worker.reports.failing == (f"it answered {why}" if why else "")
    assert len(worker.road.calls) >= 3


async def test_last_words_take_it_offline_at_once(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(0)
    worker.report = replace(worker.report, phase=Phase.DRAINING.value)
    worker.reports.soon()
    await worker.clock.advance(1)
    assert (await worker.road.row()).state is RowState.ONLINE
    await worker.reports.close()
    row = await worker.road.row()
    assert (row.report.phase, row.state) == ("stopped", RowState.OFFLINE)
    assert worker.road.seconds[-1] == LAST_CALL_SECS


async def test_a_worker_that_nobody_knows_says_no_good_bye(worker: Worker) -> None:
    worker.road.cut = True
    worker.reports.start()
    await worker.clock.advance(1)
    await worker.reports.close()
    assert worker.road.calls == [REGISTER]


async def test_good_bye_is_not_insisted_on(worker: Worker) -> None:
    worker.reports.start()
    await worker.clock.advance(0)
    worker.road.cut = True
    await worker.reports.close()
    assert worker.road.calls == [REGISTER, HEARTBEAT]


async def test_a_fault_in_the_description_is_not_the_end(worker: Worker) -> None:
    broken = worker.report
    worker.report = None  # type: ignore[assignment]
    worker.reports.start()
    await worker.clock.advance(1)
    worker.report = broken
    await worker.clock.advance(1.2 * INTERVAL)
    assert worker.road.calls == [REGISTER]
