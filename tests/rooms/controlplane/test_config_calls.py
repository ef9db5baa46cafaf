"""GET /worker/config and /worker/config/wait: what is answered, and what is asked wrongly."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from queryflux.controlplane import config_calls as module
from queryflux.controlplane.config_calls import ConfigCalls, asked
from queryflux.controlplane.publisher import Asker, Offer, SnapshotPublisher
from queryflux.controlplane.worker_app import WorkerApp, WorkerCall
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, MEDIA_TYPE, SEQUENCE, read
from queryflux.model.errors import InvalidRequest
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics
from tests.kit.operators import Reply
from tests.kit.worker_requests import WorkerRequest, call
from tests.rooms.controlplane.test_publisher import REVISION_A, REVISION_B, A, B


class Bench:
    """The two calls, over a publisher whose clock a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.publisher = SnapshotPublisher(
            clock=self.clock, metrics=NoMetrics(), build_secs=10, most_sends=2, chance=lambda: 0.0
        )
        self.app = WorkerApp(ConfigCalls(self.publisher).endpoints(), lambda peer, secret, worker: None)

    async def publish(self, sequence: int = 1, epoch: str = "e") -> None:
        self.publisher.offer(Offer(A if sequence % 2 else B, epoch, sequence, self.clock.monotonic()))
        await self.publisher.built()

    async def get(self, target: str = CONFIG, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await call(self.app, "GET", target, named)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.publisher.close()


def wait_for(revision: str = REVISION_A, epoch: str = "e", sequence: int = 1, more: str = "") -> str:
    return f"{CONFIG_WAIT}?revision={revision}&epoch={epoch}&sequence={sequence}&timeoutSecs=20{more}"


async def test_the_snapshot_with_its_revision_and_where_it_stands(bench: Bench) -> None:
    await bench.publish(7)
    await bench.clock.advance(2.5)
    reply = await bench.get()
    assert (reply.status, reply.headers["content-type"]) == (200, MEDIA_TYPE)
    assert MEDIA_TYPE == "application/vnd.queryflux.worker-config.v1+json"
    assert reply.headers["etag"] == f'"{REVISION_A}"'
    assert (reply.headers[EPOCH.lower()], reply.headers[SEQUENCE.lower()]) == ("e", "7")
    assert reply.headers[CONFIRMED_AGE.lower()] == "2.500"
    assert read(reply.body).revision == REVISION_A
    assert "content-encoding" not in reply.headers


@pytest.mark.parametrize("accept", ["gzip", "br, gzip;q=0.5", "*", "GZIP", "gzip; q=1.0"])
async def test_it_is_zipped_for_who_takes_it(bench: Bench, accept: str) -> None:
    await bench.publish()
    reply = await bench.get(accept_encoding=accept)
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert read(gzip.decompress(reply.body)).revision == REVISION_A
    assert reply.body is bench.publisher.current.zipped or reply.body == bench.publisher.current.zipped


@pytest.mark.parametrize("accept", ["", "identity", "br", "gzip;q=0", "gzip;q=0.000, br", "*;q=0"])
async def test_it_is_plain_for_who_does_not(bench: Bench, accept: str) -> None:
    await bench.publish()
    reply = await bench.get(accept_encoding=accept)
    assert "content-encoding" not in reply.headers
    assert reply.body == bench.publisher.current.body


@pytest.mark.parametrize("tag", [f'"{REVISION_A}"', f'W/"{REVISION_A}"', f'"x", "{REVISION_A}"', "*"])
async def test_who_has_it_already_is_told_so(bench: Bench, tag: str) -> None:
    await bench.publish(3)
    await bench.clock.advance(4)
    reply = await bench.get(if_none_match=tag)
    assert (reply.status, reply.body) == (304, b"")
    assert reply.headers["etag"] == f'"{REVISION_A}"'
    assert reply.headers[CONFIRMED_AGE.lower()] == "4.000"
    assert (reply.headers[EPOCH.lower()], reply.headers[SEQUENCE.lower()]) == ("e", "3")


@pytest.mark.parametrize("tag", [f'"{REVISION_B}"', REVISION_A, '""', ""])
async def test_who_has_another_one_gets_it(bench: Bench, tag: str) -> None:
    await bench.publish()
    assert (await bench.get(if_none_match=tag)).status == 200


async def test_before_there_is_one_it_says_when_to_come_back(bench: Bench) -> None:
    for target in (CONFIG, wait_for()):
        reply = await bench.get(target)
        assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (
            503,
            "NOT_CONFIGURED",
            "1",
        )


async def test_a_wait_ends_with_the_news(bench: Bench) -> None:
    await bench.publish(1)
    request = WorkerRequest(bench.app, "GET", wait_for(), {"accept-encoding": "gzip"})
    await settle()
    assert not request.begun
    await bench.publish(2)
    reply = await request.reply()
    assert (reply.status, reply.headers["etag"]) == (200, f'"{REVISION_B}"')
    assert read(gzip.decompress(reply.body)).sequence == 2


async def test_a_wait_without_news_ends_with_304_and_the_age(bench: Bench) -> None:
    await bench.publish(1)
    request = WorkerRequest(bench.app, "GET", wait_for())
    await bench.clock.advance(20)
    reply = await request.reply()
    assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", f'"{REVISION_A}"')
    assert reply.headers[CONFIRMED_AGE.lower()] == "20.000"


async def test_a_304_of_a_control_plane_that_is_behind_does_not_name_the_askers_revision(
    bench: Bench,
) -> None:
    await bench.publish(1)
    request = WorkerRequest(bench.app, "GET", wait_for(REVISION_B, sequence=2))
    await bench.clock.advance(20)
    reply = await request.reply()
    assert (reply.status, reply.headers["etag"], reply.headers[SEQUENCE.lower()]) == (
        304,
        f'"{REVISION_A}"',
        "1",
    )


async def test_a_wait_lasts_no_longer_than_the_control_plane_wants(bench: Bench) -> None:
    await bench.publish(1)
    target = f"{CONFIG_WAIT}?revision={REVISION_A}&epoch=e&sequence=1&timeoutSecs=86400"
    request = WorkerRequest(bench.app, "GET", target)
    await bench.clock.advance(module.MOST_SECS)
    assert (await request.reply()).status == 304


async def test_a_worker_that_hangs_up_frees_its_place(bench: Bench) -> None:
    await bench.publish(1)
    request = WorkerRequest(bench.app, "GET", wait_for())
    await settle()
    assert bench.publisher.state.waiting == 1
    request.hang_up()
    await request.task
    assert bench.publisher.state.waiting == 0


async def test_a_rejected_revision_is_not_sent_again(bench: Bench) -> None:
    await bench.publish(2)
    request = WorkerRequest(bench.app, "GET", wait_for(more=f"&rejected={REVISION_B}"))
    await settle()
    assert not request.begun
    await bench.publish(3)
    reply = await request.reply()
    assert (reply.status, reply.headers["etag"]) == (304, f'"{REVISION_A}"')


async def test_during_the_drain_waits_end_and_new_ones_are_sent_elsewhere(bench: Bench) -> None:
    await bench.publish(1)
    request = WorkerRequest(bench.app, "GET", wait_for())
    await settle()
    bench.publisher.begin_drain()
    assert (await request.reply()).status == 304
    reply = await bench.get(wait_for())
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "SHUTTING_DOWN", "1")
    assert (await bench.get()).status == 200


async def test_full_bodies_on_their_way_are_bounded_and_others_are_not_held_up(bench: Bench) -> None:
    await bench.publish(1)
    slow = [WorkerRequest(bench.app, "GET", CONFIG, takes=False) for _ in range(3)]
    await settle()
    assert [request.begun for request in slow] == [True, True, False]
    assert (await bench.get(if_none_match=f'"{REVISION_A}"')).status == 304
    slow[0].take()
    await settle()
    assert slow[2].begun
    for request in slow:
        request.take()
    assert [(await request.reply()).status for request in slow] == [200] * 3


def params(**given: str) -> WorkerCall:
    return WorkerCall(CONFIG_WAIT, given, {}, b"", "")


def test_what_a_wait_says() -> None:
    asker, seconds = asked(
        params(
            revision=REVISION_A, epoch="e", sequence="5", rejected=REVISION_B, timeoutSecs="12.5", later="1"
        )
    )
    assert (asker, seconds) == (Asker(REVISION_A, "e", 5, REVISION_B), 12.5)
    assert asked(params()) == (Asker(""), module.USUAL_SECS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"revision": "short"},
        {"revision": REVISION_A.upper()},
        {"rejected": "x" * 16},
        {"timeoutSecs": "soon"},
        {"timeoutSecs": "-1"},
        {"timeoutSecs": "nan"},
        {"timeoutSecs": "1e999"},
        {"timeoutSecs": ""},
        {"sequence": "first"},
        {"sequence": "9" * 30},
        {"sequence": str(2**63)},
        {"sequence": "-2"},
        {"sequence": "\u0661"},
        {"epoch": "x" * 101},
    ],
)
def test_what_a_wait_cannot_say(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(params(**wrong))
    assert next(iter(wrong)) in caught.value.message


async def test_thousands_of_waits_are_cheap_and_all_end(bench: Bench) -> None:
    await bench.publish(1)
    requests = [WorkerRequest(bench.app, "GET", wait_for()) for _ in range(2000)]
    await settle()
    assert bench.publisher.state.waiting == 2000
    await bench.publish(2)
    replies = await asyncio.gather(*(request.reply() for request in requests))
    assert {reply.headers["etag"] for reply in replies} == {f'"{REVISION_B}"'}
