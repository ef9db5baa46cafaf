"""Starting from a peer: who is asked, what is taken, how old it may be, and how it is confirmed."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest
import pytest_asyncio

from queryflux.config.fleet import PeerBootstrapConfig
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerCall, WorkerEndpoint
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT, PEER_CONFIG
from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, SEQUENCE, WorkerSnapshot
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.worker.client import Caller
from queryflux.worker.offer import Offer
from queryflux.worker.order import Position, Seen
from queryflux.worker.peers import Peers
from queryflux.worker.port import Reply, SecretRefused
from queryflux.worker.state import ConfigState
from queryflux.worker.sync import Sync
from tests.kit.places import NOBODY
from tests.kit.planes import EPOCH_1, document, sent, unchanged
from tests.kit.worker_server import HOST, SECRET, served
from tests.rooms.worker.test_sync import POLL, Follower

A, B = document("a", 5), document("b", 6)
GONE = StoreUnavailable("control:9000: Connection refused")
MAX_AGE = 3600.0


def offer(snapshot: WorkerSnapshot, age: float, sequence: int | None = None, peer: str = "p:1") -> Offer:
    position = Position(snapshot.epoch, sequence or snapshot.sequence)
    return Offer(snapshot, position, age, Seen(-age, -age), peer)


class Neighbours:
    """A PeerSource that a test fills."""

    max_age_secs = MAX_AGE

    def __init__(self) -> None:
        self.there: list[Offer] = []
        self.asked = 0
        self.refusals: list[str] = []

    async def offers(self) -> AsyncGenerator[Offer, None]:
        self.asked += 1
        self.refusals = []
        for one in self.there:
            yield one

    def refuse(self, offer: Offer, why: str) -> None:
        self.refusals.append(f"{offer.peer}: {why}")


class Starter(Follower):
    """A worker with neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.peers = Neighbours()
        self.sync = Sync(
            self.plane,
            self.prepare,
            self.clock,
            self.metrics,
            poll_secs=POLL,
            peers=self.peers,
            changed=self.changed,
            chance=lambda: 1.0,
        )


@pytest_asyncio.fixture
async def one() -> AsyncIterator[Starter]:
    starter = Starter()
    yield starter
    await starter.sync.close()


async def test_a_copy_is_visible_as_one_until_it_is_confirmed(one: Starter) -> None:
    one.peers.there = [offer(A, 100)]
    await one.follow()
    assert one.peers.asked == 0
    await one.plane.fail(GONE)
    status = one.sync.status
    assert one.used == [A.revision]
    assert (status.state, status.source, status.stale) == (ConfigState.STALE, "peer", True)
    assert one.metric("queryflux_worker_config_stale") == 1
    await one.clock.advance(10)
    assert one.sync.confirmed_age == 110, "its true age"
    await one.retry()
    asked = one.plane.asked
    assert (asked.path, asked.headers) == (CONFIG, {"If-None-Match": f'"{A.revision}"'})
    await one.plane.reply(unchanged(A.revision, 5, age=2))
    status = one.sync.status
    assert (status.state, status.source, status.stale) == (ConfigState.FRESH, "controlPlane", False)
    assert one.metric("queryflux_worker_config_stale") == 0
    assert status.confirmed_age == 2
    assert one.plane.asked.path == CONFIG_WAIT
    assert one.used == [A.revision], "nothing was compiled again"


async def test_a_copy_is_replaced(one: Starter) -> None:
    one.peers.there = [offer(A, 0)]
    await one.follow()
    await one.plane.fail(GONE)
    await one.retry()
    await one.plane.reply(sent(B))
    assert one.used == [A.revision, B.revision]
    assert not one.sync.status.stale


async def test_a_control_plane_that_lags_behind_a_copy_does_not_replace_it(one: Starter) -> None:
    one.peers.there = [offer(B, 0)]
    await one.follow()
    await one.plane.fail(GONE)
    await one.retry()
    await one.plane.reply(sent(A))
    assert (one.used, one.sync.state) == ([B.revision], ConfigState.STALE)
    await one.retry()
    assert one.plane.asked.path == CONFIG, "still no long-poll"
    await one.plane.reply(unchanged(B.revision, 6))
    assert one.sync.state is ConfigState.FRESH


async def test_what_a_peer_has_heard_of_the_order_counts(one: Starter) -> None:
    one.peers.there = [offer(A, 0, sequence=9)]
    await one.follow()
    await one.plane.fail(GONE)
    await one.retry()
    await one.plane.reply(sent(document("x", 8)))
    assert one.used == [A.revision]


async def test_too_old_is_refused_and_said(one: Starter) -> None:
    one.peers.there = [offer(A, MAX_AGE + 1, peer="old:1"), offer(B, MAX_AGE, peer="good:1")]
    await one.follow()
    await one.plane.fail(GONE)
    assert one.used == [B.revision]
    assert one.peers.refusals == ["old:1: its configuration was confirmed 3601 s ago, over maxAgeSecs"]


async def test_nothing_to_be_had_says_why_and_goes_on_asking_both(one: Starter) -> None:
    one.peers.there = [offer(A, MAX_AGE + 1)]
    await one.follow()
    await one.plane.fail(GONE)
    status = one.sync.status
    assert status.state is ConfigState.UNCONFIGURED
    assert status.failure.startswith(GONE.message)
    assert "peers: p:1: its configuration was confirmed" in status.failure
    one.peers.there = []
    await one.retry()
    await one.plane.fail(GONE)
    assert one.peers.asked == 2
    await one.retry()
    await one.plane.reply(sent(B))
    assert (one.used, one.sync.state) == ([B.revision], ConfigState.FRESH)


async def test_one_that_cannot_be_used_here_is_passed_over(one: Starter) -> None:
    one.broken[A.revision] = ConfigError("no such folder")
    one.peers.there = [offer(A, 0, peer="a:1"), offer(B, 0, peer="b:1")]
    await one.follow()
    await one.plane.fail(GONE)
    assert one.used == [B.revision]
    assert one.peers.refusals == ["a:1: its configuration cannot be used here: no such folder"]
    assert one.metric("queryflux_config_reload_failures_total") == 1


async def test_a_revision_that_was_refused_is_not_taken_from_a_peer_either(one: Starter) -> None:
    one.broken[A.revision] = ConfigError("no")
    await one.follow(A)
    one.broken.clear()
    one.peers.there = [offer(A, 0)]
    await one.plane.fail(GONE)
    assert (one.used, one.sync.state) == ([], ConfigState.UNCONFIGURED)
    assert one.prepared == [A.revision]


@pytest.mark.parametrize("answer", [sent(B), unchanged(B.revision, 6)])
async def test_a_copy_beside_what_was_refused_before_waits_for_news(one: Starter, answer: Reply) -> None:
    one.broken[B.revision] = ConfigError("no")
    one.peers.there = [offer(A, 0)]
    await one.follow(B)
    await one.plane.fail(GONE)
    assert one.sync.state is ConfigState.STALE
    await one.retry()
    await one.plane.reply(answer)
    assert (one.used, one.sync.state) == ([A.revision], ConfigState.REJECTED)
    assert one.sync.status.stale, "nobody has confirmed it"
    await one.retry()
    asked = one.plane.asked
    assert (asked.path, asked.params["rejected"]) == (CONFIG_WAIT, B.revision)
    assert one.prepared == [B.revision, A.revision]


async def test_a_copy_that_grows_too_old_stays_and_is_told_once(
    one: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    one.peers.there = [offer(A, MAX_AGE - 30)]
    await one.follow()
    await one.plane.fail(GONE)
    for _ in range(12):
        await one.retry()
        await one.plane.fail(GONE)
    age = one.sync.confirmed_age
    assert age is not None
    assert age > MAX_AGE
    assert one.used == [A.revision]
    assert sum("was confirmed over 3600 s ago" in line for line in caplog.messages) == 1


async def test_peers_are_not_asked_by_who_has_a_configuration_or_the_wrong_secret(one: Starter) -> None:
    one.peers.there = [offer(B, 0)]
    await one.follow()
    await one.plane.fail(SecretRefused("refused"))
    assert one.peers.asked == 0
    await one.retry_slowly()
    await one.plane.reply(sent(A))
    await one.plane.fail(GONE)
    assert one.peers.asked == 0


async def test_a_fault_of_ours_does_not_end_the_following(
    one: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> AsyncGenerator[Offer, None]:
        raise RuntimeError("a fault")

    monkeypatch.setattr(one.peers, "offers", broken)
    await one.follow()
    await one.plane.fail(GONE)
    await one.retry()
    await one.plane.reply(sent(A))
    assert one.used == [A.revision]


# Over the network.


def answering(snapshot: WorkerSnapshot, age: str = "7.5", sequence: int = 5) -> WorkerAnswer:
    headers = {"ETag": f'"{snapshot.revision}"', EPOCH: EPOCH_1, SEQUENCE: str(sequence), CONFIRMED_AGE: age}
    return WorkerAnswer(200, snapshot.data, headers={key: value for key, value in headers.items() if value})


def endpoint(answer: WorkerAnswer) -> list[WorkerEndpoint]:
    async def handle(call: WorkerCall) -> WorkerAnswer:
        return answer

    return [WorkerEndpoint("GET", PEER_CONFIG, handle)]


def asking(ports: Sequence[int], secret: str = SECRET, clock: Clock | None = None) -> Peers:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        assert (host, port) == ("workers", 9100)
        return [(HOST, port) for port in ports]

    config = PeerBootstrapConfig(address="workers:9100", max_age_secs=int(MAX_AGE))
    caller = Caller(Secret(secret), "i1", "w1")
    return Peers(config, caller, clock or SystemClock(), resolve=resolve, shuffle=lambda found: None)


async def found(peers: Peers) -> list[Offer]:
    return [one async for one in peers.offers()]


async def test_every_address_is_asked_in_turn() -> None:
    async with (
        served(endpoint(answering(A, sequence=8))) as first,
        served(endpoint(answering(B, "0.25"))) as second,
    ):
        peers = asking([NOBODY, first, second])
        one, two = await found(peers)
    assert (one.snapshot.data, one.age, one.peer) == (A.data, 7.5, f"{HOST}:{first}")
    assert one.position == Position(EPOCH_1, 8)
    assert (two.snapshot.revision, two.age, two.position.sequence) == (B.revision, 0.25, 6)
    assert len(peers.refusals) == 1
    assert peers.refusals[0].endswith("is not there")


async def test_slow_peers_do_not_keep_a_worker_from_its_control_plane() -> None:
    class Jumping(SystemClock):
        gone = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.gone

    clock = Jumping()

    async def slow(call: WorkerCall) -> WorkerAnswer:
        clock.gone += 9
        return WorkerAnswer(500)

    async with served([WorkerEndpoint("GET", PEER_CONFIG, slow)]) as port:
        peers = asking([port] * 20, clock=clock)
        assert await found(peers) == []
    assert len(peers.refusals) == 4
    assert peers.refusals[-1] == "there was no time to ask the others"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answering(A, age=""), "does not say how old"),
        (answering(A, age="-5"), "does not say how old"),
        (answering(A, age="nan"), "does not say how old"),
        (WorkerAnswer(503), "has no configuration or is not ready"),
        (WorkerAnswer(500), "it answers 500"),
        (answering(A)._replace(body=b'{"schemaVersion":2}'), "schema version 2; this worker knows 1"),
        (answering(A)._replace(body=A.data.replace(b'"a"', b'"z"')), "it was changed on its way"),
        (answering(A)._replace(body=b"<html>"), "cannot be read"),
    ],
)
async def test_what_cannot_be_taken_is_refused_with_the_reason(
    answer: WorkerAnswer, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(endpoint(answer)) as port:
        peers = asking([port])
        for _ in range(2):
            assert await found(peers) == []
            (refusal,) = peers.refusals
            assert refusal.startswith(f"{HOST}:{port}: ")
            assert said in refusal
    assert sum(said in line for line in caplog.messages) == 1, "said once"


async def test_an_age_that_grows_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    async with served(endpoint(answering(A))) as port:
        peers = asking([port])
        for age in range(90, 93):
            async for one in peers.offers():
                peers.refuse(one, f"its configuration was confirmed {age} s ago, over maxAgeSecs")
    assert sum("over maxAgeSecs" in line for line in caplog.messages) == 1


async def test_a_wrong_secret_and_a_name_without_addresses() -> None:
    async with served(endpoint(answering(A))) as port:
        peers = asking([port], secret="another one")
        assert await found(peers) == []
        assert peers.refusals == [f"{HOST}:{port}: it refuses the shared secret"]

    async def nobody(host: str, port: int) -> Sequence[tuple[str, int]]:
        raise OSError("Name or service not known")

    lost = Peers(
        PeerBootstrapConfig(address="workers:9100"),
        Caller(Secret("x"), "i", "w"),
        SystemClock(),
        resolve=nobody,
    )
    assert await found(lost) == []
    assert lost.refusals == ["the name workers has no address: Name or service not known"]
