"""The operator port: alive, ready or why not, metrics; and faults of its own configuration."""

import asyncio
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from asyncio import open_connection, to_thread
from pathlib import Path

import pytest

from queryflux.app import bounded_http
from queryflux.app.ops import OpsListener
from queryflux.config.listeners import Address, ListenerTls
from queryflux.controlplane.app import operator_app
from queryflux.controlplane.login import Caller
from queryflux.controlplane.public_api import public_endpoints
from queryflux.model.errors import AuthenticationFailed, ConfigError, ShuttingDown
from tests.kit.pki import Authority


def get(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10, context=context) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def nobody(caller: Caller, credentials: tuple[str, str] | None) -> None:
    raise AuthenticationFailed("nobody may")


class Readiness:
    """Ready until told otherwise."""

    draining = False

    def check(self) -> None:
        if self.draining:
            raise ShuttingDown("this server is shutting down")


def listener(readiness: Readiness, tls: ListenerTls | None = None, port: int = 0) -> OpsListener:
    app = operator_app(public_endpoints(readiness.check, lambda: (b"queryflux_up 1\n", "text/plain")), nobody)
    return OpsListener(Address(host="127.0.0.1", port=port, tls=tls), app)


async def test_health_readiness_and_metrics() -> None:
    readiness = Readiness()
    ops = listener(readiness)
    await ops.start()
    base = f"http://127.0.0.1:{ops.port}"
    assert await to_thread(get, f"{base}/health") == (200, "ok")
    assert await to_thread(get, f"{base}/readyz") == (200, '{"ready":true}')
    assert await to_thread(get, f"{base}/metrics") == (200, "queryflux_up 1\n")
    readiness.draining = True
    status, body = await to_thread(get, f"{base}/readyz")
    assert status == 503
    assert json.loads(body) == {
        "ready": False,
        "code": "SHUTTING_DOWN",
        "reason": "this server is shutting down",
    }
    assert (await to_thread(get, f"{base}/health"))[0] == 200
    assert (await to_thread(get, f"{base}/admin/clusters"))[0] == 404
    await ops.close()


async def test_what_has_to_be_prepared_is_prepared_before_anybody_is_answered() -> None:
    prepared = []

    async def prepare() -> None:
        prepared.append(True)

    app = operator_app(public_endpoints(lambda: None, lambda: (b"", "text/plain")), nobody, prepare=prepare)
    ops = OpsListener(Address(host="127.0.0.1", port=0), app)
    await ops.start()
    assert prepared == [True]
    await ops.close()


async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.server()
    ops = listener(Readiness(), ListenerTls(cert_file=str(made.cert_file), key_file=str(made.key_file)))
    await ops.start()
    url = f"https://localhost:{ops.port}/health"
    assert await to_thread(get, url, authority.client_context()) == (200, "ok")
    await ops.close()


async def test_a_taken_port_and_a_bad_certificate_are_configuration_errors(tmp_path: Path) -> None:
    first = listener(Readiness())
    await first.start()
    with pytest.raises(ConfigError, match="cannot bind"):
        await listener(Readiness(), port=first.port).start()
    await first.close()
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    with pytest.raises(ConfigError, match="nonsense"):
        await listener(Readiness(), ListenerTls(cert_file=str(nonsense), key_file=str(nonsense))).start()


CHUNKED = b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PART = b"y" * 1000


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ", PART),
        (b"GET /health HTTP/1.1\r\nHost: x", b"\r\nX-One: " + PART),
        (b"GET /", PART),
        (CHUNKED + b"1;", PART),
        (CHUNKED + b"0\r\nX-Long: ", PART),
    ],
    ids=["a header", "headers", "a path", "a chunk's extension", "a trailer"],
)
async def test_what_has_no_end_is_refused(begin: bytes, part: bytes) -> None:
    ops = listener(Readiness())
    await ops.start()
    reader, writer = await open_connection("127.0.0.1", ops.port)
    writer.write(begin)
    with contextlib.suppress(ConnectionError):
        for _ in range(1000):
            writer.write(part)
            await writer.drain()
    with contextlib.suppress(ConnectionError):
        assert b"HTTP/1.1 431 " in await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await ops.close()
    assert reader.at_eof() or reader.exception() is not None


async def test_a_long_body_is_no_endless_head_and_a_connection_serves_again() -> None:
    ops = listener(Readiness())
    await ops.start()
    reader, writer = await open_connection("127.0.0.1", ops.port)
    for _ in range(2):
        writer.write(CHUNKED + b"3e8\r\n" + b"\r\n3e8\r\n".join([PART] * 300) + b"\r\n0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(2) == b"ok"
    writer.close()
    await ops.close()


GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("before", "begin"), [(b"", b""), (b"", b"GET /hea"), (GET, b"\r\n"), (GET, b"GET /health HTTP/1.1\r\n")]
)
async def test_who_does_not_come_to_the_point_is_hung_up_on(
    before: bytes, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = listener(Readiness())
    await ops.start()
    if not before:
        monkeypatch.setattr(bounded_http, "HEAD_SECONDS", 0.1)
    reader, writer = await open_connection("127.0.0.1", ops.port)
    if before:
        writer.write(before)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(bounded_http, "HEAD_SECONDS", 0.1)
    writer.write(begin)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await ops.close()


async def test_a_body_and_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = listener(Readiness())
    await ops.start()
    reader, writer = await open_connection("127.0.0.1", ops.port)
    writer.write(GET)
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
    monkeypatch.setattr(bounded_http, "HEAD_SECONDS", 0.1)
    for _ in range(2):
        writer.write(CHUNKED + b"3e8\r\n")
        await asyncio.sleep(0.2)
        writer.write(PART + b"\r\n0\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.2)
    writer.close()
    await ops.close()
