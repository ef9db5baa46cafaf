"""The application under /worker: who is let in, what is read, and what comes of everything that is wrong."""

import asyncio
import logging

import pytest

from queryflux.controlplane import worker_app as module
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerApp, WorkerCall, WorkerEndpoint
from queryflux.controlplane.worker_login import WorkerLogin
from queryflux.model.errors import NotConfigured
from queryflux.model.secret import Secret
from tests.kit.clock import ManualClock, settle
from tests.kit.worker_requests import SECRET, WorkerRequest, call


class Bench:
    """An application with a few calls, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[WorkerCall] = []
        self.ended: list[str] = []
        self.news: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
        self.turns = asyncio.Semaphore(1)
        self.body = b"x" * 10
        endpoints = [
            WorkerEndpoint("GET", "/worker/thing", self.thing),
            WorkerEndpoint("POST", "/worker/thing", self.thing, max_body=2000),
            WorkerEndpoint("POST", "/worker/packed", self.thing, packed=True),
            WorkerEndpoint("GET", "/worker/wait", self.wait, patient=True),
            WorkerEndpoint("GET", "/worker/large", self.large),
            WorkerEndpoint("GET", "/worker/open", self.thing, public=True),
            WorkerEndpoint("GET", "/worker/broken", self.broken),
            WorkerEndpoint("GET", "/worker/later", self.later),
        ]
        self.app = WorkerApp(endpoints, WorkerLogin([Secret(SECRET)], ManualClock()))

    async def thing(self, call: WorkerCall) -> WorkerAnswer:
        self.calls.append(call)
        return WorkerAnswer(200, b'{"a":1}', headers={"X-More": "1"})

    async def wait(self, call: WorkerCall) -> WorkerAnswer:
        try:
            return await asyncio.shield(self.news)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def large(self, call: WorkerCall) -> WorkerAnswer:
        return WorkerAnswer(200, self.body, turn=self.turns)

    async def broken(self, call: WorkerCall) -> WorkerAnswer:
        raise RuntimeError("of ours: secret")

    async def later(self, call: WorkerCall) -> WorkerAnswer:
        raise NotConfigured("not yet")


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_call_is_handed_over_whole(bench: Bench) -> None:
    reply = await call(bench.app, "POST", "/worker/thing?a=%C3%A9&b=", {"X-One": "1"}, b"y" * 1500)
    assert (reply.status, reply.json, reply.headers["content-type"]) == (200, {"a": 1}, "application/json")
    assert reply.headers["x-more"] == "1"
    assert reply.headers["cache-control"] == "no-store"
    (handed,) = bench.calls
    assert (handed.path, handed.params, handed.body) == ("/worker/thing", {"a": "é", "b": ""}, b"y" * 1500)
    assert handed.headers["x-one"] == "1"


@pytest.mark.parametrize("target", ["/worker/thing", "/worker/nothing", "/worker/"])
async def test_without_the_secret_nothing_is_told(bench: Bench, target: str) -> None:
    for secret in (None, "wrong"):
        reply = await call(bench.app, "GET", target, secret=secret)
        assert reply.status == 401
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.json["code"] == "AUTHENTICATION_FAILED"
    assert bench.calls == []


async def test_the_guard_comes_before_the_body(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "POST", "/worker/thing", data=b"x" * 5000, secret="wrong")
    assert (await request.reply()).status == 401
    assert len(request._parts) == 5


async def test_a_public_call_needs_no_secret(bench: Bench) -> None:
    assert (await call(bench.app, "GET", "/worker/open", secret=None)).status == 200


async def test_unknown_paths_and_methods_are_problems(bench: Bench) -> None:
    missing = await call(bench.app, "POST", "/worker/capacity/acquire-everything")
    assert (missing.status, missing.json["code"]) == (404, "NOT_FOUND")
    wrong = await call(bench.app, "DELETE", "/worker/thing")
    assert (wrong.status, wrong.json["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "GET, POST"


async def test_head_is_get_without_the_body(bench: Bench) -> None:
    reply = await call(bench.app, "HEAD", "/worker/thing")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "7")
    assert (await call(bench.app, "HEAD", "/worker/packed")).status == 405


async def test_a_body_that_is_too_long_is_not_read_to_its_end(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "POST", "/worker/thing", data=b"x" * 100_000)
    reply = await request.reply()
    assert (reply.status, reply.json["code"]) == (413, "TOO_LARGE")
    assert len(request._parts) == 97
    assert bench.calls == []


async def test_a_packed_body_is_for_those_who_can_unpack_it(bench: Bench) -> None:
    headers = {"Content-Encoding": "gzip"}
    reply = await call(bench.app, "POST", "/worker/thing", headers, b"x")
    assert (reply.status, reply.json["code"]) == (415, "NOT_PLAIN")
    assert (await call(bench.app, "POST", "/worker/packed", headers, b"x")).status == 200
    assert (await call(bench.app, "POST", "/worker/thing", {"Content-Encoding": "identity"})).status == 200


@pytest.mark.parametrize(
    "query",
    ["a=%", "a=%2", "a=%zz", "%=1", "a=%ff", "a=%C3%28", "a=1&a=2", "&".join(f"a{n}" for n in range(101))],
)
async def test_a_query_string_that_means_nothing_is_refused(bench: Bench, query: str) -> None:
    reply = await call(bench.app, "GET", f"/worker/thing?{query}")
    assert (reply.status, reply.json["code"]) == (400, "INVALID_REQUEST")
    assert bench.calls == []


async def test_a_fault_of_ours_is_in_the_log_and_not_in_the_answer(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await call(bench.app, "GET", "/worker/broken")
    assert (reply.status, reply.json["code"]) == (500, "INTERNAL")
    assert "of ours" not in reply.body.decode()
    assert "of ours" in caplog.text


async def test_who_cannot_answer_yet_says_when_to_come_back(bench: Bench) -> None:
    reply = await call(bench.app, "GET", "/worker/later")
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "NOT_CONFIGURED", "1")


async def test_a_patient_call_is_answered_when_there_is_something(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "GET", "/worker/wait")
    await settle()
    assert not request.begun
    bench.news.set_result(WorkerAnswer(304, headers={"ETag": '"r"'}))
    reply = await request.reply()
    assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", '"r"')
    assert "content-length" not in reply.headers
    assert bench.ended == []


async def test_a_caller_that_hangs_up_ends_its_wait(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "GET", "/worker/wait")
    await settle()
    request.hang_up()
    await request.task
    assert not request.begun
    assert bench.ended == ["cancelled"]


async def test_a_caller_that_hangs_up_within_its_body_is_let_go(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "POST", "/worker/thing", data=b"x" * 1500)
    request.hang_up()
    await request.task
    assert not request.begun
    assert bench.calls == []


async def test_a_body_that_does_not_come_is_waited_for_no_longer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_READING_SECS", 0.01)
    request = WorkerRequest(bench.app, "POST", "/worker/thing", data=b"x" * 1500, stalls=True)
    reply = await request.reply()
    assert (reply.status, reply.json["code"]) == (408, "TOO_SLOW")
    assert bench.calls == []


async def test_the_end_of_the_server_is_told_to_who_is_still_sending_or_waiting(bench: Bench) -> None:
    sending = WorkerRequest(bench.app, "POST", "/worker/thing", data=b"x" * 1500, stalls=True)
    waiting = WorkerRequest(bench.app, "GET", "/worker/wait")
    await settle()
    for request in (sending, waiting):
        request.task.cancel()
        reply = await request.reply()
        assert (reply.status, reply.json["code"]) == (503, "SHUTTING_DOWN")
        assert reply.headers["retry-after"] == "1"
    assert bench.ended == ["cancelled"]


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 3000, 3500])
async def test_a_long_body_goes_in_pieces(bench: Bench, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 1000)
    bench.body = bytes(at % 251 for at in range(size))
    request = WorkerRequest(bench.app, "GET", "/worker/large")
    reply = await request.reply()
    assert reply.body == bench.body
    assert reply.headers["content-length"] == str(size)
    assert len(request._messages) - 1 == max(1, -(-size // 1000))


async def test_bodies_on_their_way_are_bounded(bench: Bench) -> None:
    slow = WorkerRequest(bench.app, "GET", "/worker/large", takes=False)
    await settle()
    second = WorkerRequest(bench.app, "GET", "/worker/large")
    await settle()
    assert slow.begun
    assert not second.begun
    slow.take()
    assert (await second.reply()).status == 200


async def test_who_does_not_take_its_answer_does_not_keep_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_SENDING_SECS", 0.01)
    with caplog.at_level(logging.WARNING):
        await WorkerRequest(bench.app, "GET", "/worker/large", takes=False).task
    assert "did not take its answer" in caplog.text
    assert (await call(bench.app, "GET", "/worker/large")).status == 200


async def test_who_goes_while_it_is_sent_to_frees_its_place(bench: Bench) -> None:
    request = WorkerRequest(bench.app, "GET", "/worker/large", takes=False)
    await settle()
    request.task.cancel()
    await asyncio.gather(request.task, return_exceptions=True)
    assert (await call(bench.app, "GET", "/worker/large")).status == 200
