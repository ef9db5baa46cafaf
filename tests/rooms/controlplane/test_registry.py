"""Workers as their control plane sees them: calls, GET /admin/workers, warnings, rows that go."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.controlplane.app import operator_app
from queryflux.controlplane.registry import (
    LOOK_SECS,
    REMOVE_SECS,
    Current,
    WorkerRegistry,
    without_earlier_starts,
)
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.fleet.paths import HEARTBEAT, INSTANCE_HEADER, REGISTER, WORKER_HEADER
from queryflux.fleet.registry import (
    Coordination,
    Heartbeat,
    Phase,
    RowState,
    Sync,
    WorkerRow,
    encode_heartbeat,
)
from queryflux.model.errors import StoreUnavailable
from queryflux.persistence.memory_registry import MemoryRegistryStore
from tests.kit.clock import ManualClock
from tests.kit.operators import Asker, Reply, ask

NOW = Current("aa00aa00aa00aa00", "epoch-1", 7)
ONE = Heartbeat(
    instance_id="one-1",
    worker_name="one",
    number=1,
    version="1.2",
    active_revision=NOW.revision,
    epoch=NOW.epoch,
    sequence=NOW.sequence,
    config_source="controlPlane",
    confirmed_age_secs=2.0,
)
TWO = replace(ONE, instance_id="two-1", worker_name="two")
LOCAL = Coordination(mode="local", state="local")


class LosableStore(MemoryRegistryStore):
    """In memory, and away when told so."""

    away = False

    async def rows(self) -> Any:
        if self.away:
            raise StoreUnavailable("the database is away")
        return await super().rows()


class Control:
    """A control plane's registry, the worker API and the admin API over it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = LosableStore(self.clock)
        self.published: Current | None = NOW
        self.turns: list[str] = []
        self.ours = True
        self.registry = WorkerRegistry(
            self.store, self._sweep, lambda: self.published, self.clock, own="control-1"
        )
        self.worker_app = WorkerApp(self.registry.endpoints(), lambda peer, secret, worker: None)
        self.admin = Asker(operator_app(self.registry.admin_endpoints(), self._guard))

    async def _guard(self, caller: Any, credentials: Any) -> None:
        """Everybody may."""

    @asynccontextmanager
    async def _sweep(self, name: str, rest_secs: float) -> AsyncIterator[bool]:
        self.turns.append(name)
        yield self.ours

    async def call(self, path: str, report: Heartbeat, *, raw: bytes | None = None, **headers: str) -> Reply:
        sent = {INSTANCE_HEADER: report.instance_id, WORKER_HEADER: report.worker_name, **headers}
        data = encode_heartbeat(report) if raw is None else raw
        return await ask(self.worker_app, "POST", path, sent, data, "10.0.0.1")

    async def register(self, *reports: Heartbeat) -> None:
        for report in reports:
            assert (await self.call(REGISTER, report)).status == 200

    async def shown(self, target: str = "/admin/workers") -> dict[str, Any]:
        reply = await self.admin("GET", target)
        assert reply.status == 200
        document: dict[str, Any] = reply.json
        return document

    async def workers(self, target: str = "/admin/workers") -> list[dict[str, Any]]:
        workers: list[dict[str, Any]] = (await self.shown(target))["workers"]
        return workers


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    control = Control()
    yield control
    await control.registry.close()


# What workers call.


async def test_a_worker_registers_and_is_shown_with_all_it_reports(control: Control) -> None:
    await control.register(replace(ONE, uptime_secs=1.23456))
    await control.clock.advance(3)
    document = await control.shown()
    (worker,) = document["workers"]
    assert document["revision"] == NOW.revision
    assert (worker["workerName"], worker["instanceId"], worker["version"]) == ("one", "one-1", "1.2")
    assert (worker["online"], worker["current"], worker["notCurrent"]) == (True, True, None)
    assert (worker["activeRevision"], worker["configSource"], worker["stale"]) == (
        NOW.revision,
        "controlPlane",
        False,
    )
    assert (worker["lastSeenSecs"], worker["confirmedAgeSecs"], worker["uptimeSecs"]) == (3.0, 5.0, 1.235)
    assert worker["lastSeenAt"].startswith("2027-01-15T08:00:00")
    assert {"coordination", "historyUplink", "sync", "frontends", "warnings", "phase", "starts"} <= set(
        worker
    )


async def test_a_heartbeat_of_a_worker_that_is_not_known_is_told_to_register(control: Control) -> None:
    reply = await control.call(HEARTBEAT, ONE)
    assert (reply.status, reply.json["code"]) == (404, "UNKNOWN_WORKER")
    await control.register(ONE)
    assert (await control.call(HEARTBEAT, replace(ONE, number=2))).status == 200


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "INVALID_REQUEST"),
        (b"{}", "INVALID_REQUEST"),
        (b'{"schemaVersion":2,"instanceId":[],"workerName":{}}', "UNKNOWN_SCHEMA_VERSION"),
        (b'{"instanceId":"other","workerName":"one"}', "INVALID_REQUEST"),
        (b'{"instanceId":"one-1","workerName":"line\\nbreak"}', "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("path", [REGISTER, HEARTBEAT])
async def test_what_is_no_report_is_refused(control: Control, path: str, raw: bytes, code: str) -> None:
    reply = await control.call(path, ONE, raw=raw)
    assert (reply.status, reply.json["code"]) == (400, code)
    assert await control.workers() == []


async def test_a_call_says_which_instance_it_is_of(control: Control) -> None:
    reply = await ask(control.worker_app, "POST", REGISTER, {}, encode_heartbeat(ONE), "")
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("path", [REGISTER, HEARTBEAT])
async def test_nobody_is_the_control_plane_itself(control: Control, path: str) -> None:
    reply = await control.call(path, replace(ONE, instance_id="control-1"))
    assert (reply.status, reply.json["code"]) == (409, "INSTANCE_ID_TAKEN")
    assert "is the instance id of this control plane itself" in reply.json["detail"]
    assert await control.workers() == []


# Online and offline.


async def test_two_processes_with_one_instance_id_are_told_of(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await control.register(replace(ONE, uptime_secs=5.0))
    await control.register(replace(ONE, uptime_secs=6.0), replace(TWO, uptime_secs=1.0))
    assert caplog.messages == [], "one process that calls twice, and another with an id of its own"
    await control.register(replace(ONE, uptime_secs=1.0))
    await control.register(replace(ONE, uptime_secs=9.0, worker_name="other"))
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("worker one registers as instance one-1, under which worker one was")
    assert caplog.messages[1].startswith("worker other registers as instance one-1, under which worker one")
    leaving = replace(TWO, number=2, phase=Phase.STOPPED.value, uptime_secs=20.0)
    assert (await control.call(HEARTBEAT, leaving)).status == 200
    await control.register(replace(TWO, uptime_secs=1.0))
    assert len(caplog.messages) == 2, "a start after an orderly end"


async def test_a_worker_is_offline_after_three_intervals_of_silence(control: Control) -> None:
    await control.register(replace(ONE, heartbeat_interval_secs=20), TWO)
    await control.clock.advance(31)
    assert [(it["workerName"], it["online"]) for it in await control.workers()] == [
        ("one", True),
        ("two", False),
    ]
    await control.clock.advance(30)
    assert [it["online"] for it in await control.workers()] == [False, False]
    await control.call(HEARTBEAT, replace(TWO, number=2))
    assert [it["online"] for it in await control.workers()] == [False, True]


async def test_last_words_take_a_worker_offline_at_once(control: Control) -> None:
    await control.register(ONE)
    await control.call(HEARTBEAT, replace(ONE, number=2, phase=Phase.DRAINING.value))
    (worker,) = await control.workers()
    assert (worker["online"], worker["phase"]) == (True, "draining")
    await control.call(HEARTBEAT, replace(ONE, number=3, phase=Phase.STOPPED.value))
    (worker,) = await control.workers()
    assert (worker["online"], worker["phase"]) == (False, "stopped")


async def test_a_worker_whose_end_is_known_is_offline_at_once(control: Control) -> None:
    await control.register(ONE, TWO)
    await control.registry.ended("one-1")
    await control.registry.ended("never-seen")
    assert [(one["online"], one["phase"]) for one in await control.workers()] == [
        (False, "stopped"),
        (True, "serving"),
    ]


async def test_a_worker_that_starts_again_is_shown_once_when_its_earlier_start_is_offline(
    control: Control,
) -> None:
    for start in range(4):
        await control.register(replace(ONE, instance_id=f"one-{start}"))
        await control.clock.advance(40)
    await control.register(replace(ONE, instance_id="one-9"), TWO)
    (one, two) = await control.workers()
    assert (one["instanceId"], one["online"], one["starts"]) == ("one-9", True, 5)
    assert two["starts"] == 1
    everything = await control.workers("/admin/workers?all=true")
    assert [it["instanceId"] for it in everything] == ["one-9", "one-3", "one-2", "one-1", "one-0", "two-1"]


def row(name: str, instance: str, *, seen: float) -> WorkerRow:
    report = Heartbeat(instance_id=instance, worker_name=name)
    return WorkerRow(report=report, registered_secs=seen, seen_secs=seen)


def test_the_latest_start_is_kept_offline_or_not_and_every_start_that_is_online() -> None:
    rows = [row("a", "3", seen=50), row("a", "2", seen=1), row("a", "1", seen=60), row("b", "1", seen=60)]
    kept = [(it.report.worker_name, it.report.instance_id) for it in without_earlier_starts(rows)]
    assert kept == [("a", "3"), ("a", "2"), ("b", "1")]


# Current or not, and why.


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"active_revision": None}, "no configuration yet"),
        ({"active_revision": "old", "sequence": 6}, "not taken yet"),
        (
            {
                "active_revision": "old",
                "sequence": 6,
                "rejected_revision": NOW.revision,
                "rejected_error": "clusters.x: no driver",
            },
            "refused: clusters.x: no driver",
        ),
        ({"active_revision": "old", "sequence": 6, "rejected_revision": "older"}, "not taken yet"),
        (
            {"active_revision": "old", "sequence": 6, "sync": Sync(error="connection refused")},
            "cannot follow: connection refused",
        ),
        (
            {"active_revision": "new", "sequence": 9},
            "behind: the control plane is at 7, the worker at 9; after a restore of the database run "
            "queryflux migrate --new-epoch",
        ),
        ({"active_revision": "new", "sequence": 9, "epoch": "another"}, "not taken yet"),
        (
            {"active_revision": "other", "sequence": 7},
            "another configuration at 7 than the control plane has there: after a restore of the database "
            "run queryflux migrate --new-epoch",
        ),
    ],
)
async def test_why_a_worker_does_not_run_what_is_published(
    control: Control, changed: dict[str, Any], why: str | None
) -> None:
    await control.register(replace(ONE, **changed))
    (worker,) = await control.workers()
    assert (worker["current"], worker["notCurrent"]) == (why is None, why)


async def test_nothing_is_current_or_not_before_something_is_published(control: Control) -> None:
    control.published = None
    await control.register(ONE)
    document = await control.shown()
    assert document["revision"] is None
    assert (document["workers"][0]["current"], document["workers"][0]["notCurrent"]) == (None, None)


# What is wrong with the fleet as a whole.


async def test_two_live_workers_of_one_name_are_told_and_one_that_started_again_is_not(
    control: Control,
) -> None:
    again = replace(ONE, instance_id="one-again")
    await control.register(ONE)
    await control.clock.advance(5)
    await control.register(again)
    for number in range(2, 5):
        await control.clock.advance(5)
        await control.call(HEARTBEAT, replace(again, number=number))
        assert (await control.shown())["warnings"] == []
    await control.call(HEARTBEAT, replace(ONE, number=2))
    (warning,) = (await control.shown())["warnings"]
    assert warning.startswith("several workers that run go by the name one: ")


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= level]
    caplog.clear()
    return found


async def test_local_limits_of_one_of_several_workers_are_warned_about_once_per_change(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    control.registry.start()
    await control.register(replace(ONE, coordination=LOCAL))
    await control.clock.advance(LOOK_SECS)
    assert (await control.shown())["warnings"] == []  # alone, its limits are the fleet's
    assert said(caplog) == []

    await control.register(TWO)
    (warning,) = (await control.shown())["warnings"]
    assert "these go by limits of their own: one" in warning
    for number in range(2, 5):
        for report in (replace(ONE, coordination=LOCAL), TWO):
            await control.call(HEARTBEAT, replace(report, number=number))
        await control.clock.advance(LOOK_SECS)
    assert said(caplog) == [warning]

    degraded = replace(TWO, number=5, coordination=Coordination(on_unavailable="localLimits", state="local"))
    await control.call(HEARTBEAT, degraded)
    await control.call(HEARTBEAT, replace(ONE, number=5, coordination=LOCAL))
    await control.clock.advance(LOOK_SECS)
    (warning,) = said(caplog)
    assert "their own: one, two (" in warning

    await control.call(HEARTBEAT, replace(ONE, number=6))
    await control.call(HEARTBEAT, replace(TWO, number=6))
    await control.clock.advance(LOOK_SECS)
    assert any(
        "what was wrong with the fleet as a whole is over" in line for line in said(caplog, logging.INFO)
    )
    assert (await control.shown())["warnings"] == []


async def test_workers_that_are_offline_do_not_count_for_the_warning(control: Control) -> None:
    await control.register(replace(ONE, coordination=LOCAL), TWO)
    assert (await control.shown())["warnings"]
    await control.call(HEARTBEAT, replace(TWO, number=2, phase=Phase.STOPPED.value))
    assert (await control.shown())["warnings"] == []


async def test_a_warning_names_a_few(control: Control) -> None:
    for number in range(8):
        name = f"w{number}"
        await control.register(replace(ONE, instance_id=name, worker_name=name, coordination=LOCAL))
    (warning,) = (await control.shown())["warnings"]
    assert "their own: w0, w1, w2, w3, w4 and 3 more (" in warning


# Now and then.


async def test_the_log_says_that_a_worker_went_offline_and_once(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    control.registry.start()
    await control.register(ONE, TWO)
    await control.clock.advance(LOOK_SECS)
    assert said(caplog, logging.INFO)[0].startswith("worker one registered from 10.0.0.1")
    await control.call(HEARTBEAT, replace(TWO, number=2, phase=Phase.STOPPED.value))
    await control.clock.advance(10 * LOOK_SECS)
    told = said(caplog, logging.INFO)
    assert told == [
        "worker two has stopped (instance two-1)",
        "worker one is offline: not heard of for 30 s (instance one-1)",
    ]


async def test_who_was_offline_when_we_began_is_no_news_and_who_came_and_went_since_is(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    await control.register(replace(ONE, phase=Phase.STOPPED.value))
    control.registry.start()
    await control.clock.advance(1)
    await control.register(replace(TWO, phase=Phase.STOPPED.value))
    caplog.set_level(logging.INFO)
    await control.clock.advance(LOOK_SECS)
    assert said(caplog, logging.INFO) == ["worker two has stopped (instance two-1)"]


async def test_rows_go_after_a_day_of_silence_when_it_is_our_turn(control: Control) -> None:
    control.ours = False
    control.registry.start()
    await control.register(ONE)
    await control.clock.advance(86400)
    assert await control.workers() == []  # not shown, whoever removes it
    assert len(await control.store.rows()) == 1
    control.ours = True
    await control.clock.advance(REMOVE_SECS)
    assert await control.store.rows() == []
    assert set(control.turns) == {"worker-registry"}
    assert (await control.call(HEARTBEAT, replace(ONE, number=2))).status == 404


async def test_a_store_that_is_away_is_said_once_and_looked_at_again(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    control.registry.start()
    await control.register(ONE, TWO)
    await control.clock.advance(LOOK_SECS)
    control.store.away = True
    await control.clock.advance(60)
    assert said(caplog) == ["the workers of the fleet cannot be looked at: the database is away"]
    assert (await control.admin("GET", "/admin/workers")).status == 503
    assert said(caplog) == []
    control.store.away = False
    await control.clock.advance(2 * LOOK_SECS)
    assert said(caplog) == [], "workers could not be heard of, and get their time to report"
    await control.call(HEARTBEAT, replace(TWO, number=2))
    await control.clock.advance(25)
    assert [line[:21] for line in said(caplog)] == ["worker one is offline"]
    assert [row.state for row in await control.store.rows()] == [RowState.OFFLINE, RowState.ONLINE]
