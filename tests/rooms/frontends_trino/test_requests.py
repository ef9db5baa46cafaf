"""What is not a statement: bad input, slow input, authentication, readiness, limits, the other endpoints."""

import asyncio
import base64
import gzip
import json
from typing import Any

import pyarrow as pa
import pytest

from queryflux.auth.build import build_authenticator
from queryflux.auth.port import Authenticator
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.config.listeners import ListenerConfig
from queryflux.model.errors import NotConfigured
from queryflux.model.secret import Secret
from tests.kit.pipelines import Bench
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_trino.served import document, served


async def test_a_body_that_is_not_utf8() -> None:
    async with served() as run:
        client = await run.client()
        response = await client.ask("POST", "/v1/statement", b"SELECT '\xff'")
        assert response.status == 400
        assert "byte 8" in document(response)["error"]["message"]
        assert await client.rows("SELECT 1") == [[1]]
        assert run.bench.records[0].sql_text == "SELECT 1"


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_an_empty_statement(body: bytes) -> None:
    async with served() as run:
        response = await (await run.client()).ask("POST", "/v1/statement", body)
        assert (response.status, document(response)["error"]["errorName"]) == (400, "SYNTAX_ERROR")


async def test_a_statement_over_the_limit_is_refused_before_it_is_read() -> None:
    async with served(max_statement_bytes=1000) as run:
        client = await run.client()
        head = client.request("POST", "/v1/statement", Content_Length="1001", Content_Type="text/plain")
        response = await client.send(head, "POST")
        assert response.status == 413
        assert not response.keep_alive
        assert document(response)["error"]["errorCode"] >= 0
        chunked = client.request("POST", "/v1/statement", Transfer_Encoding="chunked")
        other = await run.client()
        response = await other.send(chunked + b"3e9\r\n" + b"x" * 1001 + b"\r\n", "POST")
        assert response.status == 413


async def test_the_refused_are_still_listened_to_for_a_moment() -> None:
    async with served(max_statement_bytes=1000) as run:
        client = await run.client()
        head = client.request("POST", "/v1/statement", Content_Length="500000")
        assert (await client.send(head + b"x" * 200_000, "POST")).status == 413
        assert not client.stream.closed
        await run.advance(4)
        assert await client.stream.read() == b""


async def test_chunks_and_expect_continue() -> None:
    async with served() as run:
        client = await run.client()
        head = client.request("POST", "/v1/statement", Transfer_Encoding="chunked")
        response = await client.send(head + b"7\r\nSELECT \r\n1\r\n1\r\n0\r\n\r\n", "POST")
        assert document(response)["data"] == [[1]]
        head = client.request("POST", "/v1/statement", Content_Length="8", Expect="100-continue")
        client.stream.write(head)
        assert (await client.stream.read()).startswith(b"HTTP/1.1 100 ")
        assert document(await client.send(b"SELECT 1", "POST"))["data"] == [[1]]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /v1/info HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /v1/info HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /v1/statement HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
)
async def test_what_is_not_http(data: bytes, status: int) -> None:
    async with served() as run:
        client = await run.client()
        response = await client.send(data)
        assert response.status == status
        assert not response.keep_alive


async def test_a_byte_a_second_is_cut() -> None:
    async with served() as run:
        client = await run.client()
        client.expect("POST")
        for byte in client.request("POST", "/v1/statement", b"SELECT 1")[:32]:
            client.stream.write(bytes([byte]))
            await run.advance(1)
        response = await client.receive()
        assert response.status == 408
        assert await client.stream.read() == b""


async def test_a_body_that_trickles_is_cut() -> None:
    async with served() as run:
        client = await run.client()
        client.expect("POST")
        client.stream.write(client.request("POST", "/v1/statement", Content_Length="1000"))
        await run.advance(20)
        client.stream.write(b"SELECT")
        await run.advance(15)
        assert (await client.receive()).status == 408


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async with served() as run:
        client = await run.client()
        await run.advance(32)
        assert await client.stream.read() == b""
        other = await run.client()
        assert await other.rows("SELECT 1") == [[1]]
        await run.advance(500)
        assert not other.stream.closed
        await run.advance(102)
        assert await other.stream.read() == b""


async def test_a_long_query_is_not_cut() -> None:
    gate = asyncio.Event()
    async with served(ScriptedEngine(script=lambda request: Step(gate=gate))) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(1.1)
        page = await posted
        for _ in range(40):
            polled = asyncio.create_task(client.ask("GET", page["nextUri"]))
            await run.advance(1.1)
            page = document(await polled)
        gate.set()
        assert document(await client.ask("GET", page["nextUri"]))["data"] == [[1]]


async def test_requests_in_a_row_are_answered_in_order() -> None:
    async with served(ScriptedEngine(script=_echo)) as run:
        client = await run.client()
        client.expect("POST")
        sent = [client.request("POST", "/v1/statement", f"SELECT {n}".encode()) for n in range(3)]
        client.stream.write(b"".join(sent))
        got = b""
        while got.count(b'"warnings"') < 3:
            got += await client.stream.read()
        places = [got.index(b'"data":[["SELECT %d' % n) for n in range(3)]
        assert places == sorted(places)


def _echo(request: Any) -> Step:
    return Step(pa.table({"sql": [request.sql]}))


async def test_old_clients_and_close() -> None:
    async with served() as run:
        client = await run.client()
        response = await client.send(b"GET /v1/info HTTP/1.0\r\nX-Trino-User: a\r\n\r\n")
        assert response.status == 200
        assert await client.stream.read() == b""
        client = await run.client()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1", Connection="close")
        assert not response.keep_alive
        assert await client.stream.read() == b""


async def test_large_answers_are_packed_for_those_who_accept() -> None:
    table = pa.table({"t": ["text"] * 20_000})
    async with served(ScriptedEngine(script=lambda request: Step(table, rows_per_batch=20_000))) as run:
        client = await run.client()
        plain = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert "content-encoding" not in plain.headers
        packed = await client.ask("POST", "/v1/statement", b"SELECT 1", Accept_Encoding="gzip, deflate")
        assert packed.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(packed.body))["data"] == document(plain)["data"]
        assert len(packed.body) * 5 < len(plain.body)
        small = await client.ask("GET", "/v1/info", Accept_Encoding="gzip")
        assert "content-encoding" not in small.headers


async def test_the_other_endpoints() -> None:
    async with served() as run:
        client = await run.client()
        info = document(await client.ask("GET", "/v1/info"))
        assert (info["coordinator"], info["starting"]) == (True, False)
        assert (await client.ask("GET", "/v1/info/state")).body == b'"ACTIVE"'
        assert (await client.ask("HEAD", "/v1/info")).body == b""
        for target in ("/", "/ui/", "/v1/statement", "/v1/nothing", "/v1/statement/a/b/c"):
            response = await client.ask("GET", target)
            assert response.status == 404
            assert document(response)["error"]["errorName"] == "NOT_FOUND"
        assert (await client.ask("PUT", "/v1/info", b"x")).status == 405
        assert (await client.ask("GET", "/v1/query/20240101_000000_00001_test2")).status == 404


async def test_before_a_configuration_is_active_and_during_the_drain() -> None:
    async with served() as run:
        client = await run.client()

        def not_yet() -> None:
            raise NotConfigured("no configuration is active yet")

        ready = run.bench.pipeline.check_ready
        run.bench.pipeline.check_ready = not_yet  # type: ignore[method-assign]
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert (await client.ask("GET", "/v1/info/state")).body == b'"STARTING"'
        run.bench.pipeline.check_ready = ready  # type: ignore[method-assign]
        run.door.stop_accepting()
        run.bench.pipeline.begin_drain()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert document(response)["error"]["errorName"] == "SERVER_SHUTTING_DOWN"
        assert response.status == 503
        assert (await client.ask("GET", "/v1/info/state")).body == b'"SHUTTING_DOWN"'


async def test_results_can_be_fetched_to_their_end_during_the_drain() -> None:
    big = pa.table({"t": ["some text"] * 300_000})
    async with served(ScriptedEngine(script=lambda request: Step(big, rows_per_batch=100_000))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        run.door.stop_accepting()
        run.bench.pipeline.begin_drain()
        count = len(page["data"])
        while "nextUri" in page:
            page = document(await client.ask("GET", page["nextUri"]))
            count += len(page["data"])
        assert count == 300_000


async def test_too_many_connections() -> None:
    async with served(config=ListenerConfig(host="127.0.0.1", max_connections=1)) as run:
        first = await run.client()
        assert await first.rows("SELECT 1") == [[1]]
        response = await (await run.client()).ask("POST", "/v1/statement", b"SELECT 1")
        assert response.status == 503
        assert "maxConnections" in document(response)["error"]["message"]


# Authentication.


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def static(behind: Bench, *, required: bool = True) -> Authenticator:
    users = StaticUsers(
        users={name: StaticUser(password=Secret(f"{name}-secret")) for name in ("ann", "bob")}
    )
    config = AuthConfig(provider="static", required=required, static_users=users)
    return build_authenticator(config, behind.clock)


async def test_nothing_is_answered_before_the_client_has_proved_itself() -> None:
    async with served(auth=static) as run:
        for header in (
            "",
            "Basic",
            "Basic !!!",
            "Basic " + base64.b64encode(b"no colon").decode(),
            "Basic " + base64.b64encode(b"\xff:\xff").decode(),
            basic("ann", "wrong"),
            basic("nobody", "ann-secret"),
            basic("", ""),
            "Bearer nonsense",
            "Digest x",
        ):
            client = await run.client()
            # A body that would be an error of its own is not even looked at.
            for method, target, body in (
                ("POST", "/v1/statement", b"\xff"),
                ("GET", "/v1/info", None),
                ("GET", "/v1/statement/qf/executing/x/y/1", None),
            ):
                response = await client.ask(method, target, body, Authorization=header)
                assert response.status == 401, header
                assert 'Basic realm="QueryFlux"' in response.headers["www-authenticate"]
                assert "secret" not in response.body.decode()
        assert run.bench.records == []
        assert run.bench.metric("queryflux_auth_failures_total", protocol="TrinoHttp") == 30


async def test_a_large_body_does_not_come_before_the_credentials() -> None:
    async with served(auth=static, max_statement_bytes=1000) as run:
        client = await run.client()
        head = client.request("POST", "/v1/statement", Content_Length="1001")
        assert (await client.send(head, "POST")).status == 401


async def test_the_right_password_in_any_spelling_of_the_scheme() -> None:
    async with served(auth=static) as run:
        client = await run.client()
        for scheme in ("Basic", "basic", "BASIC"):
            header = basic("ann", "ann-secret").replace("Basic", scheme)
            page = await client.post("SELECT 1", Authorization=header)
            assert page["data"] == [[1]]
        assert run.bench.records[0].username == "ann"


async def test_each_request_proves_itself_anew() -> None:
    async with served(auth=static) as run:
        client = await run.client()
        right = basic("ann", "ann-secret")
        assert await client.post("SELECT 1", Authorization=right)
        for wrong in ("", basic("ann", "wrong")):
            assert (await client.ask("POST", "/v1/statement", b"SELECT 1", Authorization=wrong)).status == 401
        assert await client.post("SELECT 1", Authorization=right)
        await run.advance(61)
        assert await client.post("SELECT 1", Authorization=right)


async def test_nobody_speaks_for_somebody_else() -> None:
    async with served(auth=static) as run:
        client = await run.client("bob")
        response = await client.ask(
            "POST", "/v1/statement", b"SELECT 1", Authorization=basic("ann", "ann-secret")
        )
        assert response.status == 403
        assert "cannot impersonate" in document(response)["error"]["message"]
        quiet = await run.client("")
        assert await quiet.post("SELECT 1", Authorization=basic("ann", "ann-secret"))


async def test_a_token_of_ours() -> None:
    authenticators: list[Authenticator] = []

    def keep(behind: Bench) -> Authenticator:
        authenticators.append(static(behind))
        return authenticators[0]

    async with served(auth=keep) as run:
        ann = await authenticators[0].verify_password("ann", "ann-secret", encrypted=True)
        token = authenticators[0].issue_token(ann)
        client = await run.client()
        assert await client.post("SELECT 1", Authorization=f"Bearer {token}")


async def test_a_token_counts_where_nobody_needs_one() -> None:
    authenticators: list[Authenticator] = []

    def keep(behind: Bench) -> Authenticator:
        authenticators.append(static(behind, required=False))
        return authenticators[0]

    async with served(auth=keep) as run:
        ann = await authenticators[0].verify_password("ann", "ann-secret", encrypted=True)
        token = authenticators[0].issue_token(ann)
        client = await run.client("")
        assert await client.post("SELECT 1", Authorization=f"Bearer {token}")
        response = await client.ask("POST", "/v1/statement", b"SELECT 1", Authorization="Bearer nonsense")
        assert response.status == 401
        assert await client.post("SELECT 1")
        assert [record.username for record in run.bench.records] == ["ann", "anonymous"]


async def test_without_authentication_a_name_is_taken_at_its_word() -> None:
    async with served() as run:
        for header in ("", basic("ann", "anything"), "Bearer anything"):
            client = await run.client("ann")
            assert await client.post("SELECT 1", Authorization=header)
        assert await (await run.client("")).post("SELECT 1")
        assert [record.username for record in run.bench.records] == ["ann", "ann", "ann", "anonymous"]


async def test_passwords_in_clear_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served(auth=static) as run:
        for password in ("ann-secret", "wrong"):
            client = await run.client()
            await client.ask("POST", "/v1/statement", b"SELECT 1", Authorization=basic("ann", password))
        warnings = [record for record in caplog.records if "without TLS" in record.message]
        assert len(warnings) == 1
        assert "ann-secret" not in caplog.text


async def test_a_client_that_does_not_take_its_reply_is_cut() -> None:
    table = pa.table({"t": ["x" * 1000] * 100})
    step = Step(pa.concat_tables([table] * 200), rows_per_batch=1000)
    async with served(ScriptedEngine(script=lambda request: step)) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        path = page["nextUri"].removeprefix("http://door:8080")
        transport = client.stream._transport
        assert transport is not None
        transport.pause_reading()
        for _ in range(40):  # more than the sockets' buffers take
            client.stream.write(client.request("GET", path))
        await run.advance(200)
        transport.resume_reading()
        while await client.stream.read():
            pass
        other = await run.client()
        assert (await other.ask("DELETE", page["nextUri"])).status == 204


async def test_what_the_uri_of_a_querys_page_gives() -> None:
    gate = asyncio.Event()
    async with served(ScriptedEngine(script=lambda request: Step(gate=gate))) as run:
        client, other = await run.client(), await run.client("bob")
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(0.2)
        page = await posted
        told = document(await client.ask("GET", page["infoUri"]))
        assert (told["queryId"], told["state"], told["query"]) == (page["id"], "RUNNING", "SELECT 1")
        assert document(await client.ask("GET", told["self"]))["state"] == "RUNNING"
        assert (await other.ask("GET", page["infoUri"])).status == 403
        assert (await client.ask("DELETE", page["infoUri"])).status == 405
        gate.set()
        while "nextUri" in page:
            page = document(await client.ask("GET", page["nextUri"]))
        assert document(await client.ask("GET", page["infoUri"]))["state"] == "FINISHED"
        quick = await client.post("SET SESSION a = 1")
        response = await client.ask("GET", quick["infoUri"])
        assert response.status == 200
        assert "queryflux queries" in document(response)["note"]
        assert (await client.ask("GET", "/ui/query.html?" + "x" * 500)).status == 200
