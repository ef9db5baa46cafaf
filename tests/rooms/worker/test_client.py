"""The client of a worker: several addresses, kept-alive connections, TLS, bounds, deadlines, secrets."""

import asyncio
import gzip
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from queryflux.config.fleet import CallerTls
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.wire.http1 import Request
from queryflux.worker import client as client_module
from queryflux.worker.client import PROBLEM, Caller, HttpControlPlane, address_of
from queryflux.worker.port import SecretRefused
from tests.kit.clock import ManualClock
from tests.kit.pki import Authority
from tests.kit.places import NOBODY
from tests.rooms.engine_trino.coordinator import Coordinator, Reply, Script, coordinator

SECRET = "shared-secret-of-workers"
CALLER = Caller(Secret(SECRET), "qf-i1", "w1")


def saying(text: str, status: int = 200) -> Script:
    return lambda request: Reply(text.encode(), status)


def client(*ports: int, clock: Clock | None = None, tls: CallerTls | None = None) -> HttpControlPlane:
    scheme = "https" if tls is not None else "http"
    urls = [f"{scheme}://127.0.0.1:{port}" for port in ports]
    return HttpControlPlane([address_of(url, tls) for url in urls], CALLER, clock or SystemClock())


@pytest_asyncio.fixture
async def first() -> AsyncIterator[Coordinator]:
    async with coordinator(saying("first")) as found:
        yield found


@pytest_asyncio.fixture
async def second() -> AsyncIterator[Coordinator]:
    async with coordinator(saying("second")) as found:
        yield found


async def until(what: Callable[[], object]) -> None:
    for _ in range(5000):
        if what():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


async def said(plane: HttpControlPlane, path: str = "/worker/config", seconds: float = 5) -> str:
    return (await plane.call("GET", path, seconds=seconds)).body.decode()


async def test_every_call_says_who_calls(first: Coordinator) -> None:
    plane = client(first.port)
    await plane.call("POST", "/worker/x?y=1", b"{}", headers={"content-type": "text/x"}, seconds=5)
    await plane.call("GET", "/worker/y", seconds=5)
    plane.close()
    posted, got = first.seen
    assert (posted.method, posted.target, posted.body) == ("POST", "/worker/x?y=1", b"{}")
    assert (got.method, got.target, got.body) == ("GET", "/worker/y", b"")
    for request in (posted, got):
        assert request.headers["authorization"] == f"Bearer {SECRET}"
        assert request.headers["x-queryflux-instance"] == "qf-i1"
        assert request.headers["x-queryflux-worker"] == "w1"
        assert request.headers["host"] == f"127.0.0.1:{first.port}"
    assert posted.headers["content-type"] == "text/x"
    assert first.connections == 1, "kept alive"


async def test_a_path_before_the_workers_own() -> None:
    async with coordinator(saying("x")) as found:
        plane = HttpControlPlane(
            [address_of(f"http://127.0.0.1:{found.port}/behind/proxy/", None)], CALLER, SystemClock()
        )
        await said(plane, "/worker/config")
        plane.close()
        assert found.asked("GET") == ["/behind/proxy/worker/config"]


async def test_a_wait_keeps_no_other_call_waiting() -> None:
    news = asyncio.Event()

    def script(request: Request) -> Reply:
        return Reply(b"news", wait=news) if request.target == "/wait" else Reply(b"at once")

    async with coordinator(script) as found:
        plane = client(found.port)
        waiting = asyncio.ensure_future(said(plane, "/wait"))
        assert [await said(plane) for _ in range(3)] == ["at once"] * 3
        assert not waiting.done()
        news.set()
        assert await waiting == "news"
        plane.close()
        assert found.connections == 2


# Which address.


async def test_others_are_tried_and_the_one_that_answered_is_first(
    first: Coordinator, second: Coordinator
) -> None:
    plane = client(NOBODY, first.port, second.port)
    assert [await said(plane), await said(plane)] == ["first", "first"]
    await first.stop()
    first.script = saying("", 503)
    assert await said(plane) == "second"
    first.script = saying("first")
    assert await said(plane) == "second"
    assert plane.answering == f"127.0.0.1:{second.port}"
    plane.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_one_that_is_unable_is_passed_over(status: int, second: Coordinator) -> None:
    async with coordinator(saying("no", status)) as unable:
        plane = client(unable.port, second.port)
        assert await said(plane) == "second"
        plane.close()
        alone = client(unable.port)
        with pytest.raises(StoreUnavailable, match=f"it answers {status}") as caught:
            await said(alone)
        assert not isinstance(caught.value, SecretRefused)
        alone.close()


@pytest.mark.parametrize("status", [404, 405])
async def test_who_knows_nothing_of_configurations_is_no_control_plane(
    status: int, second: Coordinator
) -> None:
    async with coordinator(saying("what?", status)) as stranger:
        plane = client(stranger.port, second.port)
        assert await said(plane) == "second"
        assert plane.answering == f"127.0.0.1:{second.port}"
        plane.close()
        alone = client(stranger.port)
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{stranger.port}: it answers {status}: is wor"):
            await said(alone)
        assert (await alone.call("POST", "/worker/heartbeat", b"", seconds=5)).status == status
        alone.close()


async def test_who_refused_the_secret_refuses_it_still_when_it_only_says_wait(first: Coordinator) -> None:
    plane = client(first.port)
    for status in (401, 429, 429):
        first.script = saying("no", status)
        with pytest.raises(SecretRefused, match=f"the shared secret is refused .{status}."):
            await said(plane)
    first.script = saying("in")
    assert await said(plane) == "in"
    first.script = saying("no", 429)
    with pytest.raises(StoreUnavailable, match="it answers 429") as caught:
        await said(plane)
    assert not isinstance(caught.value, SecretRefused)
    plane.close()


async def test_other_statuses_are_answers() -> None:
    for status in (200, 304, 400, 404, 409, 413, 500):
        async with coordinator(saying("", status)) as found:
            plane = client(found.port)
            assert (await plane.call("GET", "/x", seconds=5)).status == status
            plane.close()


async def test_a_redirect_is_not_followed(second: Coordinator) -> None:
    there = (("Location", f"http://127.0.0.1:{second.port}/"),)
    async with coordinator(lambda request: Reply(b"", 302, there)) as found:
        plane = client(found.port)
        assert (await plane.call("GET", "/x", seconds=5)).status == 302
        plane.close()
    assert second.seen == [], "the secret goes nowhere else"


async def test_a_connection_that_broke_sends_the_call_elsewhere(second: Coordinator) -> None:
    async with coordinator(lambda request: Reply(b"half of it", cut_at=60)) as broken:
        plane = client(broken.port, second.port)
        assert await said(plane) == "second"
        plane.close()


async def test_a_connection_closed_while_idle_costs_nothing() -> None:
    async with coordinator(lambda request: Reply(b"x", close=True)) as found:
        plane = client(found.port)
        assert [await said(plane) for _ in range(3)] == ["x"] * 3
        plane.close()
        assert found.connections == 3


async def test_a_wrong_secret_is_an_error_of_its_own_and_names_no_secret(first: Coordinator) -> None:
    first.script = saying("who?", 401)
    plane = client(first.port)
    with pytest.raises(SecretRefused) as caught:
        await said(plane)
    assert SECRET not in f"{caught.value!r} {caught.value} {caught.value.hint} {CALLER!r} {plane!r}"
    plane.close()


async def test_nobody_there() -> None:
    plane = client(NOBODY, NOBODY + 1)
    with pytest.raises(StoreUnavailable) as caught:
        await said(plane)
    assert caught.value.message.count("127.0.0.1:") == 2
    assert SECRET not in caught.value.message
    plane.close()


# Deadlines.


async def test_no_answer_in_time_ends_the_call_and_the_next_goes_elsewhere(second: Coordinator) -> None:
    never = asyncio.Event()
    async with coordinator(lambda request: Reply(b"late", wait=never)) as stuck:
        clock = ManualClock()
        plane = client(stuck.port, second.port, clock=clock)
        call = asyncio.ensure_future(said(plane, seconds=5))
        await until(lambda: stuck.seen)
        await clock.advance(4.9)
        assert not call.done()
        await clock.advance(0.2)
        with pytest.raises(StoreUnavailable, match="no answer within 5 s"):
            await call
        assert await said(plane) == "second"
        plane.close()
        assert clock.pending == 0


@pytest.mark.parametrize(("after", "elsewhere"), [(1.0, True), (10.0, False)])
async def test_a_wait_that_breaks_late_is_not_begun_again(
    second: Coordinator, after: float, elsewhere: bool
) -> None:
    never = asyncio.Event()
    async with coordinator(lambda request: Reply(b"late", wait=never)) as found:
        clock = ManualClock()
        plane = client(found.port, second.port, clock=clock)
        call = asyncio.ensure_future(said(plane, seconds=40))
        await until(lambda: found.seen)
        await clock.advance(after)
        await found.stop()
        if elsewhere:
            assert await call == "second"
        else:
            with pytest.raises(StoreUnavailable, match="closed before the answer"):
                await call
            assert await said(plane) == "second", "and the next call goes there first"
        plane.close()


async def test_a_call_that_is_given_up_takes_its_connection_along() -> None:
    never = asyncio.Event()
    async with coordinator(lambda request: Reply(b"late", wait=never)) as found:
        plane = client(found.port)
        call = asyncio.ensure_future(said(plane))
        await until(lambda: found.seen)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: all(stream.closed for stream in found.streams))
        plane.close()


async def test_an_address_that_takes_no_connection_is_passed_over(
    second: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 0.5)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # and the queue is full
            plane = client(port, second.port)
            assert await said(plane) == "second"
            plane.close()


# Bodies.


async def test_gzip_is_asked_for_and_undone(first: Coordinator) -> None:
    packed = gzip.compress(b"config" * 1000)
    first.script = lambda request: Reply(packed, headers=(("Content-Encoding", "gzip"),), chunked=True)
    plane = client(first.port)
    assert await said(plane) == "config" * 1000
    assert first.seen[0].headers["accept-encoding"] == "gzip"
    plane.close()


async def test_a_long_body_is_unpacked_beside_the_loop(
    first: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[str] = []

    async def in_thread(name: str, function: Any, *args: Any) -> Any:
        beside.append(name)
        return function(*args)

    monkeypatch.setattr(client_module, "in_thread", in_thread)
    text = random.Random(1).randbytes(200_000).hex()
    packed = gzip.compress(text.encode())
    assert len(packed) > client_module.LONG_BYTES
    first.script = lambda request: Reply(packed, headers=(("Content-Encoding", "gzip"),))
    plane = client(first.port)
    assert await said(plane) == text
    assert beside == ["unpack"]
    plane.close()


async def test_a_problem_that_is_none_is_a_failure_without_a_reason(first: Coordinator) -> None:
    deep = b'{"more": ' + b"[" * 100_000
    head = b"HTTP/1.1 503 No\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    first.script = lambda request: Reply(raw=head % (PROBLEM.encode(), len(deep)) + deep)
    plane = client(first.port)
    with pytest.raises(StoreUnavailable, match=r"it answers 503 Service Unavailable$"):
        await said(plane)
    plane.close()


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"x" * 2000, ()),
        (gzip.compress(b"x" * 2000), (("Content-Encoding", "gzip"),)),
        (b"not gzip", (("Content-Encoding", "gzip"),)),
        (b"?", (("Content-Encoding", "br"),)),
    ],
    ids=["plain", "a bomb", "broken", "unasked"],
)
async def test_bodies_are_bounded_and_whole(
    first: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    coding: tuple[tuple[str, str], ...],
) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1000)
    first.script = lambda request: Reply(body, headers=coding)
    plane = client(first.port)
    with pytest.raises(StoreUnavailable):
        await said(plane)
    plane.close()


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/worker/config", True),
        ("/worker/config/wait?timeoutSecs=30", True),
        ("/worker/capacity/counts", False),
        ("/worker/heartbeat", False),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
async def test_only_a_configuration_is_long(
    first: Coordinator, monkeypatch: pytest.MonkeyPatch, path: str, whole: bool, packed: bool
) -> None:
    monkeypatch.setattr(client_module, "MAX_SHORT_BYTES", 1000)
    body = gzip.compress(b"x" * 2000) if packed else b"x" * 2000
    first.script = lambda request: Reply(body, headers=(("Content-Encoding", "gzip"),) if packed else ())
    plane = client(first.port)
    if whole:
        assert len(await said(plane, path)) == 2000
    else:
        with pytest.raises(StoreUnavailable, match="than 1000 bytes"):
            await said(plane, path)
    plane.close()


async def test_what_is_no_http_is_a_failure(first: Coordinator) -> None:
    first.script = lambda request: Reply(raw=b"SSH-2.0-x\r\n\r\n")
    plane = client(first.port)
    with pytest.raises(StoreUnavailable):
        await said(plane)
    plane.close()


# TLS.


async def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with coordinator(saying("in secret"), authority.server().context()) as found:
        plane = client(found.port, tls=CallerTls(ca_file=str(authority.ca_file)))
        assert await said(plane) == "in secret"
        plane.close()
        stranger = client(found.port, tls=CallerTls())
        with pytest.raises(StoreUnavailable, match="certificate"):
            await said(stranger)
        stranger.close()
        trusting = client(found.port, tls=CallerTls(insecure_skip_verify=True))
        assert await said(trusting) == "in secret"
        trusting.close()


async def test_tls_to_a_server_of_another_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with coordinator(saying("x"), authority.server("control.internal").context()) as found:
        wrong = client(found.port, tls=CallerTls(ca_file=str(authority.ca_file)))
        with pytest.raises(StoreUnavailable, match="certificate"):
            await said(wrong)
        wrong.close()
        named = CallerTls(ca_file=str(authority.ca_file), server_name="control.internal")
        plane = client(found.port, tls=named)
        assert await said(plane) == "x"
        plane.close()


def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="caFile"):
        address_of("https://x", CallerTls(ca_file=str(tmp_path / "none.pem")))


def test_addresses() -> None:
    plain = address_of("http://control", None)
    assert (plain.host, plain.port, plain.authority, plain.tls) == ("control", 80, "control", None)
    secure = address_of("https://[::1]:9000/qf/", None)
    assert (secure.host, secure.port, secure.authority, secure.base) == ("::1", 9000, "[::1]:9000", "/qf")
    assert isinstance(secure.tls, ssl.SSLContext)
    for text in ("control:9000", "ftp://x", "http://", "http://x:99999", ""):
        with pytest.raises(ConfigError):
            address_of(text, None)
