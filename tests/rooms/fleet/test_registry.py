"""A worker's report on the wire, and what becomes of its row."""

import itertools
import json

import pytest

from queryflux.fleet.registry import (
    MAX_ITEMS,
    MAX_TEXT,
    RETENTION_SECS,
    Coordination,
    Frontend,
    Heartbeat,
    Phase,
    RowEvent,
    RowState,
    Sync,
    Uplink,
    WorkerRow,
    after,
    decode_heartbeat,
    encode_heartbeat,
)

FULL = Heartbeat(
    instance_id="qf-a-1",
    worker_name="a",
    number=7,
    version="1.2",
    advertise_address="10.0.0.1:8080",
    heartbeat_interval_secs=5,
    phase=Phase.DRAINING.value,
    uptime_secs=12.5,
    active_revision="00ff00ff00ff00ff",
    epoch="5cf0a6c0-0000-4000-8000-000000000000",
    sequence=12,
    rejected_revision="11ff00ff00ff00ff",
    rejected_error="routers[0]: no such group",
    config_source="peer",
    stale=True,
    confirmed_age_secs=61.0,
    sync=Sync(last_success_secs=60.5, failures=3, error="connection refused", failing_secs=60.5),
    coordination=Coordination(
        mode="local", on_unavailable="localLimits", state="local", slots_held=4, leases_held=3, leases_lost=1
    ),
    history_uplink=Uplink(delivered=10, dropped=1, rejected=2, waiting=3, error="503"),
    frontends=(Frontend(name="trinoHttp", port=8080),),
    warnings=("the control plane is plain http",),
)


def row(report: Heartbeat = FULL, *, seen: float = 0.0, registered: float = 0.0) -> WorkerRow:
    return WorkerRow(report=report, registered_secs=registered, seen_secs=seen)


def test_a_report_travels_whole() -> None:
    assert decode_heartbeat(encode_heartbeat(FULL)) == FULL


def test_names_on_the_wire_are_those_of_the_document() -> None:
    sent = json.loads(encode_heartbeat(FULL))
    assert (sent["configSource"], sent["stale"], sent["historyUplink"]["dropped"]) == ("peer", True, 1)
    assert sent["heartbeatIntervalSecs"] == 5
    assert sent["coordination"]["onUnavailable"] == "localLimits"


def test_what_a_newer_worker_adds_is_tolerated_and_what_it_leaves_out_has_its_default() -> None:
    sent = b'{"instanceId":"i","workerName":"w","new":[{}],"sync":{"new":1,"failures":2},"phase":"dreaming"}'
    assert decode_heartbeat(sent) == Heartbeat(
        instance_id="i", worker_name="w", sync=Sync(failures=2), phase="dreaming"
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[]",
        b'{"workerName":"w"}',
        b'{"instanceId":"","workerName":"w"}',
        b'{"instanceId":"i","workerName":"w\\u0000"}',
        b'{"instanceId":"i","workerName":"w","number":-1}',
        b'{"instanceId":"i","workerName":"w","heartbeatIntervalSecs":0}',
        b'{"instanceId":"i","workerName":"w","sequence":9007199254740993}',
        b'{"instanceId":"i","workerName":"w","warnings":"none"}',
        b'{"instanceId":"i","workerName":"w","new":' + b"[" * 100_000,
        b'{"instanceId":"i","workerName":"w","schemaVersion":2}',
    ],
)
def test_what_is_no_report_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_heartbeat(sent)


def test_no_text_of_a_worker_costs_it_its_report() -> None:
    odd = Heartbeat(
        instance_id="i",
        worker_name="w",
        rejected_error="x\0y\ud800" + "z" * 2 * MAX_TEXT,
        sync=Sync(error="e" * (MAX_TEXT + 1)),
        warnings=("w",) * (MAX_ITEMS + 1),
    )
    arrived = decode_heartbeat(encode_heartbeat(odd))
    assert arrived.rejected_error.startswith("x y?zzz")
    assert (len(arrived.rejected_error), len(arrived.sync.error), len(arrived.warnings)) == (
        MAX_TEXT,
        MAX_TEXT,
        MAX_ITEMS,
    )


# The life of a row.

ONLINE, OFFLINE, GONE = RowState
REGISTER, HEARTBEAT, STOP, SILENCE, RETENTION = RowEvent
BECOMES: dict[RowState, dict[RowEvent, RowState]] = {
    ONLINE: {REGISTER: ONLINE, HEARTBEAT: ONLINE, STOP: OFFLINE, SILENCE: OFFLINE},
    OFFLINE: {REGISTER: ONLINE, HEARTBEAT: ONLINE, STOP: OFFLINE, SILENCE: OFFLINE, RETENTION: GONE},
    GONE: {REGISTER: ONLINE, HEARTBEAT: GONE, STOP: GONE},
}


@pytest.mark.parametrize(("state", "event"), [*itertools.product(RowState, RowEvent)])
def test_every_pair_of_state_and_event(state: RowState, event: RowEvent) -> None:
    becomes = BECOMES[state].get(event)
    if becomes is None:
        with pytest.raises(LookupError, match=f"a worker that is {state.value} cannot"):
            after(state, event)
    else:
        assert after(state, event) is becomes


@pytest.mark.parametrize(
    ("interval", "silence"),
    [(1, 30), (10, 30), (10.5, 31.5), (60, 180), (1e9, RETENTION_SECS)],
)
def test_a_worker_is_offline_after_three_intervals_and_not_before_30_s(
    interval: float, silence: float
) -> None:
    report = Heartbeat(instance_id="i", worker_name="w", heartbeat_interval_secs=interval)
    assert row(report, seen=silence - 0.01).state is ONLINE
    assert row(report, seen=silence).state is (GONE if silence == RETENTION_SECS else OFFLINE)


def test_a_worker_that_says_that_it_stops_is_offline_at_once() -> None:
    report = Heartbeat(instance_id="i", worker_name="w", phase=Phase.STOPPED.value)
    assert (row(report).state, row(report, seen=1e9).state) == (OFFLINE, GONE)


def test_a_row_is_gone_after_a_day() -> None:
    assert row(seen=RETENTION_SECS - 1).state is OFFLINE
    assert row(seen=RETENTION_SECS).state is GONE
