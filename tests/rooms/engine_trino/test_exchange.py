"""The protocol's ordinary course and its mishaps, over real sockets."""

import asyncio
import gzip
from pathlib import Path

import pytest

from queryflux.config.clusters import ClusterConfig, EngineAuth, EngineTls
from queryflux.engines.port import ConnectionSpec, TransactionStatus
from queryflux.engines.trino import build
from queryflux.engines.trino import statement as statement_module
from queryflux.engines.trino.statement import TRIES, query_id_in
from queryflux.model.errors import (
    ConfigError,
    EngineConnectionLost,
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    InvalidRequest,
    ProtocolViolation,
    QueryCancelled,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.secret import Secret
from queryflux.model.statement import Session
from queryflux.results.answer import Batches, Done, Frames
from queryflux.runtime.clock import SystemClock
from queryflux.runtime.connections import ANSWER_SECONDS, IDLE_SECONDS
from queryflux.wire.http1 import Request
from queryflux.wire.trino.native import TrinoFrames, TrinoPage
from tests.kit.clock import ManualClock
from tests.kit.pki import Authority
from tests.rooms.engine_trino.coordinator import (
    SESSION,
    THREE_PAGES,
    Reply,
    Script,
    Talk,
    asked_for,
    coordinator,
    engine_at,
    number_of,
    page,
    pages,
    rows,
    talk,
)

ERROR = {
    "message": "line 1:8: Column 'nope' cannot be resolved",
    "errorCode": 47,
    "errorName": "COLUMN_NOT_FOUND",
    "errorType": "USER_ERROR",
    "errorLocation": {"lineNumber": 1, "columnNumber": 8},
    "failureInfo": {"stack": []},
}


def shaped(script: Script, **how: object) -> Script:
    """The same answers, sent another way."""

    def reshaped(request: Request) -> Reply:
        reply = script(request)
        for name, value in how.items():
            setattr(reply, name, value)
        return reply

    return reshaped


@pytest.mark.parametrize(
    "how", [{}, {"chunked": True}, {"piece": 1}, {"piece": 3, "chunked": True}, {"close": True}]
)
async def test_pages_become_batches(how: dict[str, object]) -> None:
    async with talk(shaped(pages(*THREE_PAGES), **how)) as (there, client):
        assert await client.values() == [1, 2, 3]
        assert there.asked("GET") == [f"/v1/statement/executing/q/s/{n}?x=1" for n in (1, 2)]
        assert there.connections == (3 if how.get("close") else 1)


@pytest.mark.parametrize("how", [{}, {"chunked": True}, {"piece": 1}])
async def test_pages_are_relayed_as_they_are(how: dict[str, object]) -> None:
    async with talk(shaped(pages(*THREE_PAGES), **how)) as (_, client):
        found = await client.pages()
        assert [page.body for page in found] == list(THREE_PAGES)
        assert [page.next_uri is None for page in found] == [False, False, True]


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + page(None, **rows(7))
    async with talk(lambda _: Reply(raw=raw, close=True)) as (_, client):
        assert await client.values() == [7]
        assert await client.values() == [7]


async def test_a_packed_body_is_unpacked() -> None:
    def script(request: Request) -> Reply:
        return Reply(gzip.compress(page(None, **rows(7))), headers=(("Content-Encoding", "gzip"),))

    async with talk(script) as (there, client):
        assert await client.values() == [7]
        assert [p.body for p in await client.pages()] == [page(None, **rows(7))]
        assert there.seen[0].headers["accept-encoding"] == "identity"


async def test_what_the_coordinator_is_told() -> None:
    session = Session(ClientProtocol.MYSQL_WIRE, database="tpch.tiny")
    async with coordinator(pages(page(None, **rows(1)))) as there:
        engine = engine_at(there.port, path="/gate/")
        client = Talk(engine, session)
        await client.connection.execute(
            client.request("SELECT 'é'", tags={"team": "etl", "odd": None, "a,b": "c"})
        )
        asked = there.seen[0]
        assert (asked.target, asked.body) == ("/gate/v1/statement", "SELECT 'é'".encode())
        expected = {
            "host": f"127.0.0.1:{there.port}",
            "x-trino-user": "alice",
            "x-trino-source": "queryflux",
            "x-trino-catalog": "tpch",
            "x-trino-schema": "tiny",
            "x-trino-client-tags": "team:etl,odd",
            "x-trino-client-capabilities": "PARAMETRIC_DATETIME,PATH",
            "x-trino-transaction-id": "NONE",
        }
        assert {name: asked.headers.get(name) for name in expected} == expected
        await client.execute("SELECT 1", native=True)
        asked = there.seen[1]
        assert asked.headers["x-trino-session"] == "a=b"
        assert asked.headers["x-trino-user"] == "alice"
        assert "x-trino-client-capabilities" not in asked.headers
        await engine.close()


@pytest.mark.parametrize(
    ("auth", "authorization", "user"),
    [
        (EngineAuth(type="basic", username="svc", password=Secret("pw")), "Basic c3ZjOnB3", "svc"),
        (EngineAuth(type="bearer", token=Secret("t0k")), "Bearer t0k", None),
    ],
)
async def test_the_clusters_own_credentials(auth: EngineAuth, authorization: str, user: str | None) -> None:
    async with talk(pages(*THREE_PAGES), auth=auth) as (there, client):
        await client.values()
        for asked in there.seen:
            assert asked.headers["authorization"] == authorization
            assert asked.headers.get("x-trino-user") == user
        assert authorization not in repr(client.engine._target)


@pytest.mark.parametrize("user", ["a\r\nX-Trino-User: root", "a\x00b", "Łucja"])
async def test_a_user_name_that_fits_no_header(user: str) -> None:
    async with talk(pages(*THREE_PAGES)) as (there, client):
        connection = client.engine.connect(ConnectionSpec(VerifiedIdentity(user), SESSION))
        with pytest.raises(InvalidRequest):
            await connection.execute(client.request("SELECT 1"))
        with pytest.raises(InvalidRequest):
            await connection.execute(client.request("BEGIN"))
        await connection.close()
        assert there.seen == []


def test_configuration_that_cannot_be_used() -> None:
    for config in (
        ClusterConfig(engine="trino", endpoint="trino:8080"),
        ClusterConfig(engine="trino", endpoint="ftp://trino"),
        ClusterConfig(engine="trino", endpoint="https://trino", tls=EngineTls(ca_file="/does/not/exist")),
        ClusterConfig(engine="trino", endpoint="https://trino", auth=EngineAuth(type="keyPair")),
    ):
        with pytest.raises(ConfigError, match=r"clusters\.t"):
            build("t", config, SystemClock())


async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = authority.server("localhost").context()
    trusting = EngineTls(ca_file=str(authority.ca_file), server_name="localhost")
    async with coordinator(pages(*THREE_PAGES), context) as there:
        for tls, works in (
            (trusting, True),
            (EngineTls(insecure_skip_verify=True), True),
            (EngineTls(ca_file=str(authority.ca_file), server_name="elsewhere"), False),
            (None, False),
        ):
            config = ClusterConfig(engine="trino", endpoint=f"https://127.0.0.1:{there.port}", tls=tls)
            engine = build("trino", config, SystemClock())
            if works:
                assert await Talk(engine).values() == [1, 2, 3]
            else:
                with pytest.raises(EngineUnavailable):
                    await Talk(engine).values()
            await engine.close()


# Errors that the coordinator reports.


async def test_an_error_on_a_page() -> None:
    script = pages(page(1), page(None, error=ERROR))
    async with talk(script) as (there, client):
        with pytest.raises(EngineError) as caught:
            await client.execute("SELECT nope")
        error = caught.value
        assert (error.kind, error.name, error.number) == (
            EngineErrorKind.COLUMN_NOT_FOUND,
            "COLUMN_NOT_FOUND",
            47,
        )
        assert (error.position, error.message) == (7, "Column 'nope' cannot be resolved")
        found = await client.pages("SELECT nope")
        assert len(found) == 2
        assert there.asked("DELETE") == []


async def test_an_error_after_rows() -> None:
    async with talk(pages(page(1, **rows(1)), page(None, error=ERROR))) as (_, client):
        answer = await client.execute("SELECT n")
        assert isinstance(answer, Batches)
        assert await answer.next() is not None
        with pytest.raises(EngineError):
            await answer.next()
        relayed = await client.execute("SELECT n", native=True)
        assert isinstance(relayed, Frames)
        while await relayed.next() is not None:
            pass
        assert isinstance(relayed.failure, EngineError)


# Overload and hiccups.


def failing_first(times: int, reply: Reply, then: Script) -> Script:
    left = {"POST": times, "GET": times}

    def script(request: Request) -> Reply:
        if left.get(request.method, 0) > 0:
            left[request.method] -= 1
            return reply
        return then(request)

    return script


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_hiccups_are_tried_again(status: int) -> None:
    script = failing_first(2, Reply(b"busy", status), pages(*THREE_PAGES))
    async with talk(script) as (there, client):
        assert await client.values() == [1, 2, 3]
        assert len(there.asked("POST")) == 3
        assert len(there.asked("GET")) == 4


async def test_retry_after_is_kept() -> None:
    clock = ManualClock()
    script = failing_first(1, Reply(b"", 429, (("Retry-After", "3"),)), pages(page(None, **rows(1))))
    async with talk(script, clock) as (there, client):
        waiting = asyncio.create_task(client.values())
        await asked_for(there, 1)
        await clock.advance(2.9)
        assert len(there.seen) == 1
        await clock.advance(0.2)
        assert await waiting == [1]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_coordinator_that_stays_busy_is_unavailable(status: int) -> None:
    async with talk(lambda _: Reply(b"no room", status)) as (there, client):
        with pytest.raises(EngineUnavailable, match="no room"):
            await client.values()
        assert len(there.seen) == TRIES


async def test_a_query_whose_pages_stay_away_is_lost_and_cancelled() -> None:
    def script(request: Request) -> Reply:
        return Reply(status=503) if request.method == "GET" else pages(*THREE_PAGES)(request)

    async with talk(script) as (there, client):
        for native in (False, True):
            there.seen.clear()
            with pytest.raises(EngineConnectionLost):
                await (client.pages() if native else client.values())
            assert len(there.asked("GET")) == TRIES
            assert there.asked("DELETE") == there.asked("GET")[:1]


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, EngineError), (401, EngineError), (403, EngineError), (404, EngineError), (500, EngineError)],
)
async def test_a_statement_that_is_refused(status: int, error: type[Exception]) -> None:
    async with talk(lambda _: Reply(b"because", status)) as (there, client):
        with pytest.raises(error):
            await client.values()
        assert len(there.seen) == 1


@pytest.mark.parametrize("status", [404, 410, 500, 302])
async def test_a_page_that_is_refused(status: int) -> None:
    def script(request: Request) -> Reply:
        return Reply(b"gone", status) if request.method == "GET" else Reply(page(1))

    async with talk(script) as (_, client):
        with pytest.raises(EngineConnectionLost):
            await client.values()


# Garbage and broken connections.


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{",
        b"[]",
        b'{"id": 1}',
        b'{"id":"q","stats":7}',
        b"\xff\xfe",
        b'{"id":"q"' + b" " * 99,
    ],
)
async def test_a_page_that_is_none(body: bytes) -> None:
    async with talk(lambda _: Reply(body)) as (_, client):
        with pytest.raises(EngineConnectionLost):
            await client.values()
        with pytest.raises(EngineConnectionLost):
            await client.pages()


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"HTTP/1.",
    ],
)
async def test_what_is_not_http(raw: bytes) -> None:
    async with talk(lambda _: Reply(raw=raw, close=True)) as (there, client):
        with pytest.raises(EngineConnectionLost):
            await client.values()
        assert len(there.seen) == 1


async def test_an_answer_cut_anywhere() -> None:
    whole = len(Reply(THREE_PAGES[1]).encoded())
    for cut in (*range(0, whole - 1, 37), whole - 1):

        def script(request: Request, cut: int = cut) -> Reply:
            reply = pages(*THREE_PAGES)(request)
            if request.method == "GET" and number_of(request) == 1:
                reply.cut_at = cut
            return reply

        async with talk(script) as (there, client):
            for native in (False, True):
                there.seen.clear()
                # Cut before its first byte, on a connection that had been used: that alone may be repeated.
                with pytest.raises(EngineConnectionLost):
                    await (client.pages() if native else client.values())
                assert len(there.asked("DELETE")) == 1, cut


async def test_a_connection_closed_while_idle_is_replaced() -> None:
    async with talk(pages(*THREE_PAGES)) as (there, client):
        for _ in range(3):
            assert await client.values() == [1, 2, 3]
            for stream in there.streams:
                stream.close()
            await asyncio.sleep(0)
        assert there.connections == 3


async def test_a_connection_idle_for_long_is_not_used() -> None:
    clock = ManualClock()
    async with talk(pages(*THREE_PAGES), clock) as (there, client):
        await client.values()
        await clock.advance(IDLE_SECONDS + 1)
        await client.values()
        assert there.connections == 2
        assert clock.pending == 1  # that of the one connection there is
        await client.engine.close()
        assert clock.pending == 0


async def test_a_coordinator_that_never_answers() -> None:
    clock = ManualClock()
    never = asyncio.Event()
    async with talk(lambda _: Reply(wait=never), clock) as (there, client):
        waiting = asyncio.create_task(client.values())
        await asked_for(there, 1)
        await clock.advance(ANSWER_SECONDS + 1)
        with pytest.raises(EngineConnectionLost):
            await waiting
        assert clock.pending == 0


async def test_each_request_of_a_connection_has_its_own_time() -> None:
    clock = ManualClock()
    never = asyncio.Event()

    def script(request: Request) -> Reply:
        if request.body == b"SELECT slow":
            return Reply(wait=never)
        return pages(*THREE_PAGES)(request)

    async with talk(script, clock) as (there, client):
        await client.values()
        await clock.advance(IDLE_SECONDS - 1)
        waiting = asyncio.create_task(client.values("SELECT slow"))
        await asked_for(there, 4)
        assert there.connections == 1
        await clock.advance(ANSWER_SECONDS - 1)
        assert not waiting.done()
        await clock.advance(2)
        # It was not closed while idle: the statement is not sent again.
        with pytest.raises(EngineConnectionLost, match="no answer within 300 s"):
            await asyncio.wait_for(waiting, 5)
        assert there.connections == 1


async def test_headers_are_kept_encoded_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_module, "MAX_KEPT", 2)
    blocks = statement_module.HeaderBlocks()
    base = (("Host", "h"),)
    first = blocks.encoded(base, (("A", "1"),))
    assert first == b"Host: h\r\nA: 1\r\n"
    assert blocks.encoded(base, (("A", "1"),)) is first
    for number in range(2):
        blocks.encoded(base, (("B", str(number)),))
    large = (("C", "x" * 10_000),)
    assert blocks.encoded(base, large) is not blocks.encoded(base, large)
    assert blocks.encoded(base, (("A", "1"),)) is not first
    with pytest.raises(ProtocolViolation):
        blocks.encoded(base, (("A", "1\r\nB: 2"),))


async def test_a_coordinator_that_is_not_there() -> None:
    async with coordinator(pages(*THREE_PAGES)) as there:
        port = there.port
    engine = engine_at(port)
    with pytest.raises(EngineUnavailable):
        await Talk(engine).values()
    with pytest.raises(EngineUnavailable):
        await engine.probe()
    await engine.close()


@pytest.mark.parametrize(
    ("reply", "up"),
    [
        (Reply(b'{"starting": false}'), True),
        (Reply(b'{"starting": true}'), False),
        (Reply(b"{}"), False),
        (Reply(b"[]"), False),
        (Reply(b"<html>"), False),
        (Reply(b'{"starting": false}', 503), False),
        (Reply(cut_at=20), False),
    ],
)
async def test_probe(reply: Reply, up: bool) -> None:
    async with talk(lambda _: reply) as (there, client):
        if up:
            await client.engine.probe()
        else:
            with pytest.raises(EngineUnavailable):
                await client.engine.probe()
        assert there.asked("GET")[0] == "/v1/info"


# Endings.


def holding(gate: asyncio.Event, held: str) -> Script:
    """Keeps the answers to a method back until ``gate`` opens."""

    def script(request: Request) -> Reply:
        reply = pages(*THREE_PAGES)(request)
        if request.method == held:
            reply.wait = gate
        return reply

    return script


@pytest.mark.parametrize("native", [False, True])
async def test_cancel_while_a_page_is_awaited(native: bool) -> None:
    async with talk(holding(asyncio.Event(), "GET")) as (there, client):
        waiting = asyncio.create_task(client.pages() if native else client.values())
        await asked_for(there, 2)
        await client.connection.cancel()
        assert there.asked("DELETE") == ["/v1/statement/executing/q/s/1?x=1"]
        with pytest.raises(QueryCancelled):
            await waiting
        await client.connection.cancel()
        assert len(there.asked("DELETE")) == 1


async def test_cancel_before_the_coordinator_has_answered_at_all() -> None:
    async with talk(holding(asyncio.Event(), "POST")) as (there, client):
        waiting = asyncio.create_task(client.values())
        await asked_for(there, 1)
        await client.connection.cancel()
        with pytest.raises(QueryCancelled):
            await waiting
        assert there.asked("DELETE") == []


@pytest.mark.parametrize("native", [False, True])
async def test_cancel_between_two_pages(native: bool) -> None:
    async with talk(pages(*THREE_PAGES)) as (there, client):
        answer = await client.execute("SELECT n", native=native)
        assert isinstance(answer, Batches | Frames)
        assert await answer.next() is not None
        await client.connection.cancel()
        assert len(there.asked("DELETE")) == 1
        with pytest.raises(QueryCancelled):
            await answer.next()
        await answer.close()
        assert len(there.asked("DELETE")) == 1


@pytest.mark.parametrize("native", [False, True])
async def test_a_cancelled_task_cancels_the_query(native: bool) -> None:
    async with talk(holding(asyncio.Event(), "GET")) as (there, client):
        waiting = asyncio.create_task(client.pages() if native else client.values())
        await asked_for(there, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(there.asked("DELETE")) == 1


@pytest.mark.parametrize("native", [False, True])
async def test_an_answer_closed_early_is_cancelled(native: bool) -> None:
    async with talk(pages(*THREE_PAGES)) as (there, client):
        answer = await client.execute("SELECT n", native=native)
        assert isinstance(answer, Batches | Frames)
        await answer.close()
        await answer.close()
        assert len(there.asked("DELETE")) == 1
        assert await client.values() == [1, 2, 3]
        assert len(there.asked("DELETE")) == 1


async def test_a_cancel_that_cannot_be_delivered_still_ends_the_query() -> None:
    def script(request: Request) -> Reply:
        return Reply(cut_at=0) if request.method == "DELETE" else pages(*THREE_PAGES)(request)

    async with talk(script) as (there, client):
        answer = await client.execute("SELECT n")
        assert isinstance(answer, Batches)
        await answer.close()
        assert len(there.asked("DELETE")) == 2
        assert await client.values() == [1, 2, 3]


async def test_a_closed_engine_breaks_off_everything() -> None:
    async with talk(holding(asyncio.Event(), "GET")) as (there, client):
        waiting = asyncio.create_task(client.values())
        await asked_for(there, 2)
        await client.engine.close()
        with pytest.raises(QueryCancelled):
            await waiting
        assert len(there.asked("DELETE")) == 1
        for question in (client.engine.probe(), client.engine.tables(), Talk(client.engine).values()):
            with pytest.raises(EngineUnavailable):
                await question


async def test_one_statement_at_a_time() -> None:
    async with talk(pages(*THREE_PAGES)) as (_, client):
        answer = await client.execute("SELECT n")
        with pytest.raises(InvalidRequest):
            await client.execute("SELECT 2")
        assert isinstance(answer, Batches)
        await answer.close()
        await client.connection.close()
        with pytest.raises(InvalidRequest):
            await client.execute("SELECT 2")


async def test_heartbeat_and_partial_cancel() -> None:
    async with talk(pages(*THREE_PAGES)) as (there, client):
        frames = await client.execute("SELECT n", native=True)
        assert isinstance(frames, TrinoFrames)
        await frames.heartbeat()
        assert there.asked("HEAD") == ["/v1/statement/executing/q/s/1?x=1"]
        await frames.partial_cancel("http://other.invalid/v1/statement/partialCancel/q/0/s")
        assert there.asked("DELETE") == ["/v1/statement/partialCancel/q/0/s"]
        found = [await frames.next() for _ in range(4)]
        assert [isinstance(frame, TrinoPage) for frame in found] == [True, True, True, False]
        await frames.heartbeat()
        assert len(there.asked("HEAD")) == 1


# Statements without rows, sessions, transactions.


async def test_a_statement_without_rows() -> None:
    script = pages(page(1), page(None, columns=[], updateType="CREATE TABLE"))
    async with talk(script) as (_, client):
        done = await client.execute("CREATE TABLE t (a integer)")
        assert isinstance(done, Done)
        assert (done.tag, done.rows) == ("CREATE TABLE", None)
    count = {"columns": [{"name": "rows", "type": "bigint"}], "updateType": "INSERT"}
    script = pages(page(1, **count), page(None, **count, data=[[5]], updateCount=5))
    async with talk(script) as (_, client):
        done = await client.execute("INSERT INTO t SELECT 1")
        assert isinstance(done, Done)
        assert (done.tag, done.rows) == ("INSERT", 5)


async def test_figures_of_the_coordinator() -> None:
    stats = {
        "state": "FINISHED", "elapsedTimeMillis": 7, "cpuTimeMillis": 3, "processedRows": 10,
        "processedBytes": 100, "physicalInputBytes": 90, "peakMemoryBytes": 80, "totalSplits": 4,
    }  # fmt: skip
    async with talk(pages(page(1), page(None, **{**rows(1), "stats": stats}))) as (_, client):
        relayed = await client.execute("SELECT n", native=True)
        decoded = None
        assert isinstance(relayed, Frames)
        while await relayed.next() is not None:
            pass
        decoded = await client.execute("SELECT n")
        assert isinstance(decoded, Batches)
        while await decoded.next() is not None:
            pass
        for found in (relayed.stats, decoded.stats):
            assert found.backend_query_id == "20261129_213144_00042_abcde"
            assert (found.elapsed_ms, found.cpu_ms, found.processed_rows, found.total_splits) == (7, 3, 10, 4)


def transactional(request: Request) -> Reply:
    sql = request.body.decode()
    if sql.startswith("START"):
        return Reply(page(None, columns=[]), headers=(("X-Trino-Started-Transaction-Id", "tx-1"),))
    if sql == "FAIL":
        return Reply(page(None, error=ERROR))
    return Reply(page(None, **rows(1)))


@pytest.mark.parametrize("native", [False, True])
async def test_a_transaction_carries_its_id(native: bool) -> None:
    async with talk(transactional) as (there, client):

        async def say(sql: str) -> str:
            answer = await client.execute(sql, native=native)
            if isinstance(answer, Batches | Frames):
                while await answer.next() is not None:
                    pass
            return answer.tag if isinstance(answer, Done) else ""

        assert await say("COMMIT") == "COMMIT"
        assert there.seen == []
        assert await say("begin isolation level repeatable read, read only") == "BEGIN"
        assert client.connection.transaction is TransactionStatus.OPEN
        await say("SELECT n")
        assert await say("commit") == "COMMIT"
        await say("SELECT n")
        told = [(request.body.decode(), request.headers["x-trino-transaction-id"]) for request in there.seen]
        assert told == [
            ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", "NONE"),
            ("SELECT n", "tx-1"),
            ("COMMIT", "tx-1"),
            ("SELECT n", "NONE"),
        ]


@pytest.mark.parametrize("native", [False, True])
async def test_a_failed_transaction(native: bool) -> None:
    async with talk(transactional) as (there, client):
        await client.execute("BEGIN", native=native)
        if native:
            await client.pages("FAIL")
        else:
            with pytest.raises(EngineError):
                await client.execute("FAIL")
        assert client.connection.transaction is TransactionStatus.FAILED
        with pytest.raises(InvalidRequest):
            await client.execute("SELECT n", native=native)
        done = await client.execute("COMMIT", native=native)
        assert isinstance(done, Done)
        assert done.tag == "ROLLBACK"
        assert there.seen[-1].body == b"ROLLBACK"


@pytest.mark.parametrize("native", [False, True])
async def test_an_answer_closed_early_fails_its_transaction(native: bool) -> None:
    """Trino ends a transaction in which a query was cancelled."""

    def script(request: Request) -> Reply:
        begins = request.body.startswith(b"START")
        return transactional(request) if begins else pages(*THREE_PAGES)(request)

    async with talk(script) as (there, client):
        await client.execute("BEGIN")
        answer = await client.execute("SELECT n", native=native)
        assert isinstance(answer, Batches | Frames)
        await answer.close()
        assert len(there.asked("DELETE")) == 1
        assert client.connection.transaction is TransactionStatus.FAILED


async def test_a_transaction_ends_with_its_client() -> None:
    async with talk(transactional) as (there, client):
        await client.execute("BEGIN")
        await client.connection.close()
        assert (there.seen[-1].body, there.seen[-1].headers["x-trino-transaction-id"]) == (
            b"ROLLBACK",
            "tx-1",
        )


@pytest.mark.parametrize("word", ["BEGIN", "COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("how", ["task", "cancel", "close"])
async def test_a_transaction_statement_that_is_cut_off_leaves_none_open(word: str, how: str) -> None:
    slow, arrived = asyncio.Event(), asyncio.Event()
    open_at_trino: set[str] = set()

    def script(request: Request) -> Reply:
        sql = request.body.decode()
        reply = transactional(request)
        if sql.startswith("START"):
            open_at_trino.add("tx-1")
        elif sql in ("COMMIT", "ROLLBACK"):
            open_at_trino.discard(request.headers["x-trino-transaction-id"])
        if sql.startswith("START" if word == "BEGIN" else word):
            arrived.set()
            reply.wait = slow
        return reply

    async with talk(script) as (_, client):
        if word != "BEGIN":
            await client.execute("BEGIN")
        ending = asyncio.ensure_future(client.execute(word))
        await arrived.wait()
        if how == "task":
            ending.cancel()
        stopping = asyncio.ensure_future(
            client.connection.close() if how == "close" else client.connection.cancel()
        )
        await asyncio.sleep(0)
        slow.set()
        await asyncio.wait({ending, stopping})
        assert open_at_trino == set()
        assert client.connection.transaction is TransactionStatus.IDLE
        if how == "task":
            assert ending.cancelled()
        elif word == "BEGIN":
            assert isinstance(ending.exception(), QueryCancelled)
        else:
            assert ending.result() == Done(word)


def state_of(client: Talk) -> TransactionStatus:
    return client.connection.transaction


async def test_a_transaction_that_began_just_as_its_client_went() -> None:
    async with talk(transactional) as (there, client):
        beginning = asyncio.ensure_future(client.execute("BEGIN"))
        for _ in range(10000):
            if state_of(client) is TransactionStatus.OPEN:
                break
            await asyncio.sleep(0)
        assert beginning.cancel()
        await asyncio.wait({beginning})
        assert state_of(client) is TransactionStatus.IDLE
        assert there.seen[-1].body == b"ROLLBACK"


async def test_a_catalog_that_is_down_hides_no_other() -> None:
    def script(request: Request) -> Reply:
        sql = request.body.decode()
        if "metadata.catalogs" in sql:
            return Reply(
                page(None, columns=[{"name": "c", "type": "varchar"}], data=[["bad"], ["good"], ["system"]])
            )
        if "'bad'" in sql:
            return Reply(page(None, error=ERROR))
        return Reply(page(None, columns=[{"name": "c", "type": "varchar"}], data=[["s", "t", "TABLE"]]))

    async with talk(script) as (_, client):
        assert [(ref.catalog, ref.schema, ref.name) for ref in await client.engine.tables()] == [
            ("good", "s", "t")
        ]


@pytest.mark.parametrize("native", [True, False])
async def test_the_coordinators_id_is_known_while_a_statement_runs(native: bool) -> None:
    async with talk(pages(*THREE_PAGES)) as (_, client):
        known = [client.connection.running_id]
        answer = await client.execute("SELECT n", native=native)
        known.append(client.connection.running_id)
        assert not isinstance(answer, Done)
        while await answer.next() is not None:
            pass
        assert [*known, client.connection.running_id] == [None, "q", None]


def test_ids_in_the_addresses_of_pages() -> None:
    assert query_id_in("http://t:8080/v1/statement/queued/20260101_000000_00001_abcde/y1/1") == (
        "20260101_000000_00001_abcde"
    )
    assert (
        query_id_in("https://t/v1/statement/20260101_000000_00001_abcde/1") == "20260101_000000_00001_abcde"
    )
    assert query_id_in("https://t/elsewhere/1") is None
