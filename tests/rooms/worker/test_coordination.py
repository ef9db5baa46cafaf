"""Leases of a worker, by calls: grouped ones and what becomes of them with an older control plane, answers
that cannot be used, and how long an answer is waited for."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import Lease, Wanted
from queryflux.controlplane.capacity_calls import CapacityCalls
from queryflux.controlplane.worker_app import WorkerApp
from queryflux.fleet import paths
from queryflux.fleet.capacity import MOST_LEASES
from queryflux.fleet.paths import INSTANCE_HEADER
from queryflux.model.errors import StoreUnavailable
from queryflux.worker.coordination import OLDER_SECS, RemoteCoordinationStore
from queryflux.worker.port import NO_HEADERS, Reply
from tests.kit.clock import ManualClock
from tests.kit.operators import ask


class Scripted:
    """A control plane in memory. ``missing`` are paths that it does not have, ``says`` answers that it gives
    instead of its own."""

    def __init__(self, ledger: Ledger, instance: str = "one") -> None:
        store = MemoryCapacityStore(ledger, "")
        calls = CapacityCalls(lambda name: MemoryCapacityStore(ledger, name), store, {"engine-reconcile"})
        self._app = WorkerApp(calls.endpoints(), lambda peer, secret, worker: None)
        self._instance = instance
        self.missing: set[str] = set()
        self.says: dict[str, Reply] = {}
        self.calls: list[tuple[str, Any]] = []
        self.seconds: set[float] = set()

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        self.calls.append((path.removeprefix("/worker/capacity/"), msgspec.json.decode(body or b"null")))
        self.seconds.add(seconds)
        if path in self.says:
            return self.says[path]
        target = f"{path}/missing" if path in self.missing else path
        reply = await ask(self._app, method, target, {INSTANCE_HEADER: self._instance}, body, "127.0.0.1")
        return Reply(*reply)

    @property
    def made(self) -> list[str]:
        """Which calls there were, and from now on are again."""
        made = [name for name, _ in self.calls]
        self.calls.clear()
        return made


class Bench:
    """A worker's store and what it asks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.control_plane = Scripted(self.ledger)
        self.store = RemoteCoordinationStore(self.control_plane, "one", self.clock, acquire_secs=5)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_group_is_one_call_with_what_it_releases(bench: Bench) -> None:
    await bench.store.try_acquire("c", "old", 2)
    wanted = [Wanted("a", 2), Wanted("b", 2), Wanted("x", 2)]
    assert await bench.store.try_acquire_many("c", wanted, ["old"]) == [True, True, False]
    path, sent = bench.control_plane.calls[-1]
    assert (path, len(bench.control_plane.calls)) == ("acquire-batch", 2)
    assert sent == {
        "cluster": "c",
        "released": ["old"],
        "wanted": [{"queryId": name, "limit": 2} for name in "abx"],
    }


async def test_releases_that_go_together_are_one_call(bench: Bench) -> None:
    await bench.store.try_acquire_many("c", [Wanted("a", 2), Wanted("b", 2)])
    bench.control_plane.calls.clear()
    await bench.store.release_many([Lease("c", "a"), Lease("c", "b")])
    assert bench.control_plane.made == ["release-batch"]
    assert not bench.ledger.rows


async def test_an_older_control_plane_gets_each_release_by_itself(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.store.try_acquire_many("c", [Wanted(f"q{number}", 40) for number in range(40)])
    bench.control_plane.missing.add(paths.RELEASE_BATCH)
    bench.control_plane.calls.clear()
    await bench.store.release_many([Lease("c", f"q{number}") for number in range(39)])
    assert bench.control_plane.made == ["release-batch"] + ["release"] * 39
    await bench.store.release_many([Lease("c", "q39")])
    assert bench.control_plane.made == ["release"], "the grouped call is not tried for a while"
    assert not bench.ledger.rows
    assert caplog.text.count("older version") == 1
    bench.control_plane.missing.clear()
    await bench.clock.advance(OLDER_SECS)
    await bench.store.release_many([Lease("c", "q39")])
    assert bench.control_plane.made == ["release-batch"], "it has been upgraded"


async def test_an_older_control_plane_gets_each_acquire_by_itself_in_order(bench: Bench) -> None:
    await bench.store.try_acquire("c", "old", 2)
    bench.control_plane.missing.add(paths.ACQUIRE_BATCH)
    bench.control_plane.calls.clear()
    wanted = [Wanted("a", 2), Wanted("b", 2), Wanted("x", 2)]
    assert await bench.store.try_acquire_many("c", wanted, ["old"]) == [True, True, False]
    assert await bench.store.try_acquire_many("c", [Wanted("x", 3)]) == [True]
    named = [sent.get("queryId") for path, sent in bench.control_plane.calls if path == "acquire"]
    assert named == ["a", "b", "x", "x"]
    assert bench.control_plane.made == ["acquire-batch", "release-batch", *["acquire"] * 4]


async def test_a_release_that_failed_among_others_is_told(bench: Bench) -> None:
    bench.control_plane.missing.add(paths.RELEASE_BATCH)
    bench.control_plane.says[paths.RELEASE] = Reply(500, {}, b"oh dear")
    with pytest.raises(StoreUnavailable, match="answered 500"):
        await bench.store.release_many([Lease("c", "a"), Lease("c", "b")])


async def test_what_is_too_much_for_a_message_goes_in_several(bench: Bench) -> None:
    many = MOST_LEASES + 1
    leases = [Lease("c", f"q{number}") for number in range(many)]
    granted = await bench.store.try_acquire_many("c", [Wanted(lease.query_id, many) for lease in leases])
    assert granted == [True] * many
    assert len(await bench.store.renew(leases)) == many
    assert bench.control_plane.made == ["acquire-batch"] * 2 + ["renew"] * 2
    released = [lease.query_id for lease in leases]
    assert await bench.store.try_acquire_many("c", [Wanted("next", 1)], released) == [True]
    assert bench.control_plane.made == ["release-batch"] * 2 + ["acquire-batch"]
    assert set(bench.ledger.rows) == {"next"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(500, {}, b"{}"),
        Reply(302, {"location": "/elsewhere"}, b""),
        Reply(200, {}, b"<html>"),
        Reply(200, {}, b'{"granted": "perhaps"}'),
        Reply(200, {}, b'{"granted": [true]}'),
        Reply(200, {}, b'{"more": ' + b"[" * 100_000),
    ],
)
async def test_an_answer_that_cannot_be_used_is_no_grant(bench: Bench, reply: Reply) -> None:
    bench.control_plane.says = {paths.ACQUIRE: reply, paths.ACQUIRE_BATCH: reply}
    with pytest.raises(StoreUnavailable):
        await bench.store.try_acquire("c", "a", 1)
    with pytest.raises(StoreUnavailable):
        await bench.store.try_acquire_many("c", [Wanted("a", 1), Wanted("b", 1)])


async def test_a_control_plane_without_any_capacity_calls_grants_nothing(bench: Bench) -> None:
    bench.control_plane.missing |= {paths.ACQUIRE, paths.ACQUIRE_BATCH, paths.COUNTS}
    with pytest.raises(StoreUnavailable, match="answered 404"):
        await bench.store.try_acquire_many("c", [Wanted("a", 1), Wanted("b", 1)])
    with pytest.raises(StoreUnavailable, match="answered 404"):
        await bench.store.counts()


async def test_answers_may_say_more_than_is_known(bench: Bench) -> None:
    bench.control_plane.says[paths.ACQUIRE] = Reply(200, {}, b'{"granted": true, "since": 7}')
    assert await bench.store.try_acquire("c", "a", 1)


async def test_a_call_listens_until_the_control_plane_itself_has_given_up(bench: Bench) -> None:
    """Which is a second after acquireTimeoutSecs: so that what came of it is nearly always known."""
    await bench.store.try_acquire("c", "a", 1)
    assert bench.control_plane.seconds == {7.0}


async def test_a_worker_may_count_what_engines_run_and_do_no_other_sweep(bench: Bench) -> None:
    token = await bench.store.try_lock("engine-reconcile")
    assert token is not None
    assert await bench.store.try_lock("engine-reconcile") is None
    await bench.store.unlock("engine-reconcile", token, 27)
    for name in ("capacity-leases", "history"):
        with pytest.raises(StoreUnavailable, match="answered 400"):
            await bench.store.try_lock(name)
