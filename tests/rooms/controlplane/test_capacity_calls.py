"""What workers ask of a control plane about capacity: messages that are refused, a store that is away, sweeps
that are nobody else's to do, and callers who hang up."""

import asyncio
from typing import Any

import msgspec
import pytest

from queryflux.admission.memory import Ledger
from queryflux.admission.port import SWEEP_LOCK_SECS, Lease
from queryflux.controlplane.capacity_calls import CapacityCalls
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.fleet import paths
from queryflux.fleet.capacity import FIVE_MINUTES, MAX_BODY_BYTES, MOST_LEASES
from queryflux.fleet.paths import INSTANCE_HEADER
from queryflux.model.errors import StoreUnavailable
from queryflux.pipeline.reconcile import LOCK
from queryflux.runtime.clock import SystemClock
from queryflux.worker.coordination import RemoteCoordinationStore
from tests.kit.capacity import FaultyStore
from tests.kit.clock import ManualClock, settle
from tests.kit.operators import Reply, ask
from tests.kit.worker_server import Client, served


class ControlPlane:
    """Its calls about capacity, over a store that can be disturbed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.store = FaultyStore(self.ledger, "one")
        self.calls = CapacityCalls(lambda instance: self.store, self.store, {LOCK}, own="own")
        self.app = WorkerApp(self.calls.endpoints(), lambda peer, secret, worker: None)

    async def post(self, path: str, message: Any, instance: str | None = "one") -> Reply:
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        headers = {INSTANCE_HEADER: instance} if instance is not None else {}
        return await ask(self.app, "POST", path, headers, body, "127.0.0.1")


@pytest.fixture
def control_plane() -> ControlPlane:
    return ControlPlane()


ASK = {"cluster": "c", "queryId": "a", "limit": 1}


async def test_messages_may_say_more_than_is_known(control_plane: ControlPlane) -> None:
    reply = await control_plane.post(paths.ACQUIRE, {**ASK, "priority": 3})
    assert (reply.status, reply.json) == (200, {"granted": True})
    group = {"cluster": "c", "wanted": [{"queryId": "b", "limit": 2, "priority": 3}], "order": "fair"}
    assert (await control_plane.post(paths.ACQUIRE_BATCH, group)).json == {"granted": [True]}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (paths.ACQUIRE, b""),
        (paths.ACQUIRE, b"\xff"),
        (paths.ACQUIRE, b"[]"),
        (paths.ACQUIRE, {**ASK, "limit": -1}),
        (paths.ACQUIRE, {**ASK, "limit": 2**63}),
        (paths.ACQUIRE, {**ASK, "queryId": ""}),
        (paths.ACQUIRE, {**ASK, "cluster": "c\0"}),
        (paths.ACQUIRE, {**ASK, "queryId": "a" * 256}),
        (paths.ACQUIRE_BATCH, {"cluster": "c", "wanted": []}),
        (paths.ACQUIRE_BATCH, {"cluster": "c", "wanted": [{"queryId": "a", "limit": 1}] * (MOST_LEASES + 1)}),
        (paths.RENEW, {"leases": [{"cluster": "c"}]}),
        (paths.RELEASE_BATCH, {}),
        (paths.SWEEP_ACQUIRE, {"name": LOCK, "holdSecs": 0}),
        (paths.SWEEP_RELEASE, {"name": LOCK, "token": "t", "restSecs": -1}),
    ],
)
async def test_a_message_that_cannot_be_meant_is_refused(
    control_plane: ControlPlane, path: str, message: Any
) -> None:
    reply = await control_plane.post(path, message)
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert not control_plane.store.calls


async def test_a_message_that_is_too_large_is_not_read(control_plane: ControlPlane) -> None:
    reply = await control_plane.post(paths.RELEASE_BATCH, b" " * (MAX_BODY_BYTES + 1))
    assert (reply.status, reply.json["code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize("instance", [None, "", "i" * 256])
async def test_who_asks_has_to_be_said(control_plane: ControlPlane, instance: str | None) -> None:
    reply = await control_plane.post(paths.ACQUIRE, ASK, instance)
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert not control_plane.ledger.rows


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (paths.ACQUIRE, ASK),
        (paths.ACQUIRE_BATCH, {"cluster": "c", "wanted": [{"queryId": "a", "limit": 1}]}),
        (paths.RENEW, {"leases": []}),
        (paths.RELEASE, {"cluster": "c", "queryId": "a"}),
        (paths.RELEASE_BATCH, {"leases": []}),
        (paths.RELEASE_ALL, {}),
        (paths.RUNNING, {"cluster": "c", "running": 1}),
    ],
)
async def test_leases_of_the_control_plane_itself_are_no_workers(
    control_plane: ControlPlane, path: str, message: Any
) -> None:
    reply = await control_plane.post(path, message, "own")
    assert (reply.status, reply.json["code"]) == (409, "INSTANCE_ID_TAKEN")
    assert not control_plane.store.calls


async def test_while_the_store_does_not_answer_calls_are_refused_until_later(
    control_plane: ControlPlane,
) -> None:
    control_plane.store.down = "the database cannot be reached"
    leases = {"leases": [{"cluster": "c", "queryId": "a"}]}
    for path, message in ((paths.ACQUIRE, ASK), (paths.RENEW, leases), (paths.RELEASE_BATCH, leases)):
        reply = await control_plane.post(path, message)
        assert (reply.status, reply.json["code"]) == (503, "STORE_UNAVAILABLE")
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json["detail"] == "the database cannot be reached"


async def test_counts_of_all_and_what_engines_run(control_plane: ControlPlane) -> None:
    await control_plane.post(paths.ACQUIRE, ASK)
    assert (await control_plane.post(paths.RUNNING, {"cluster": "c", "running": 7})).status == 200
    reply = await ask(control_plane.app, "GET", paths.COUNTS, {INSTANCE_HEADER: "two"}, b"", "127.0.0.1")
    assert reply.json == {"leases": {"c": 1}, "running": {"c": 7}}


async def test_a_sweep_lock_is_dropped_after_five_minutes_however_long_was_asked_for(
    control_plane: ControlPlane,
) -> None:
    assert FIVE_MINUTES == SWEEP_LOCK_SECS == 300
    token = (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK, "holdSecs": 1e9})).json["token"]
    assert token is not None
    await control_plane.clock.advance(299)
    assert (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK})).json == {"token": None}
    await control_plane.clock.advance(2)
    assert (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK})).json["token"] is not None


async def test_a_sweep_rests_no_longer_than_five_minutes_at_a_workers_word(
    control_plane: ControlPlane,
) -> None:
    token = (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK})).json["token"]
    done = {"name": LOCK, "token": token, "restSecs": 1e9}
    assert (await control_plane.post(paths.SWEEP_RELEASE, done)).status == 200
    assert (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK})).json == {"token": None}
    await control_plane.clock.advance(301)
    assert (await control_plane.post(paths.SWEEP_ACQUIRE, {"name": LOCK})).json["token"] is not None


@pytest.mark.parametrize("path", [paths.SWEEP_ACQUIRE, paths.SWEEP_RELEASE])
async def test_other_sweeps_are_not_a_workers(control_plane: ControlPlane, path: str) -> None:
    reply = await control_plane.post(path, {"name": "capacity-leases", "token": "t"})
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert not control_plane.ledger.sweeps


async def test_what_was_granted_to_a_caller_that_hung_up_is_found_by_asking_again_or_released(
    control_plane: ControlPlane,
) -> None:
    """The call is done to its end, and never twice."""
    async with served(control_plane.calls.endpoints()) as port:
        client = Client(port, "one")
        store = RemoteCoordinationStore(client, "one", SystemClock(), acquire_secs=-1.9)
        for query_id in ("a", "b"):
            control_plane.store.hold()
            with pytest.raises(StoreUnavailable):
                await store.try_acquire("c", query_id, 2)
            control_plane.store.let_go()
            await settle()
        assert set(control_plane.ledger.rows) == {"a", "b"}
        patient = RemoteCoordinationStore(client, "one", SystemClock())
        assert await patient.try_acquire("c", "a", 2)
        await patient.release_many([Lease("c", "b")])
        assert set(control_plane.ledger.rows) == {"a"}
        assert not await patient.try_acquire("c", "x", 1)
        client.close()


async def test_a_grant_of_which_nobody_hears_counts_until_it_runs_out(control_plane: ControlPlane) -> None:
    control_plane.store.hold_replies()
    asked = asyncio.ensure_future(control_plane.post(paths.ACQUIRE, ASK))
    await settle()
    asked.cancel()
    control_plane.store.let_go()
    assert await control_plane.store.counts() == {"c": 1}
    await control_plane.clock.advance(301)
    assert await control_plane.store.expire(300) == 1
