"""The quick way on a real PostgreSQL: what goes it, what steps aside, and that both say the same."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from queryflux.engines.postgres import pool
from queryflux.engines.postgres.engine import PostgresEngine
from queryflux.model.errors import EngineConnectionLost, QueryCancelled
from queryflux.results.answer import Frames
from queryflux.wire.postgres.native import BoundQuery, SimpleQuery
from tests.contract.test_postgres_relay import Client, Make, drained, engine, make, postgres_server, running
from tests.kit.link import Link
from tests.kit.postgres import PostgresServer
from tests.rooms.frontends_postgres.raw_client import SYNC, bind, describe, execute, query

__all__ = ["engine", "make", "postgres_server"]

BIG = "SELECT x, repeat('y', 1000) FROM generate_series(1, 5000) x"


@dataclass
class Said:
    """What a client is told, in short, and how it was told."""

    kinds: str
    rows: int | None
    quick: bool
    failed: bool


def simple(sql: str) -> SimpleQuery:
    return SimpleQuery(sql, None, query(sql))


def bound(
    sql: str, *values: bytes | None, results: tuple[int, ...] = (), described: bool = True
) -> BoundQuery:
    message = bind(*values, statement="client's", results=results)
    at = message.index(0, 6) + 1
    rest = message[at:] + describe() * described + execute() + SYNC
    return BoundQuery(sql, (), rest, len(message) - at, described)


async def begun(client: Client, native: SimpleQuery | BoundQuery) -> Frames:
    """As the lane does: asked at once if that can be, and waited for."""
    answered = asyncio.Event()
    frames = client.connection.ask(native, answered.set)
    if frames is None:
        return await client.start(native)
    assert not answered.is_set()
    try:
        await answered.wait()
        if not frames.complete:
            await frames.begin()
    except asyncio.CancelledError:
        await frames.close()
        raise
    return frames


async def ask(client: Client, native: SimpleQuery | BoundQuery) -> Said:
    """As a door does: the whole answer, or frames and what the door itself says around them."""
    answer = await begun(client, native)
    whole = native.whole
    if whole is None:
        result = await drained(answer)
        said = result.kinds if isinstance(native, SimpleQuery) else "2" + result.kinds
        status = {"idle": "I", "open": "T", "failed": "E"}[client.transaction]
        return Said(f"{said}Z{status}", answer.rows, quick=False, failed=result.error is not None)
    assert answer.complete
    assert await answer.next() is None
    return Said(kinds_of(whole), answer.rows, quick=True, failed=answer.failure is not None)


def kinds_of(data: bytes) -> str:
    kinds, at = "", 0
    while at < len(data):
        kinds += chr(data[at])
        at += 1 + int.from_bytes(data[at + 1 : at + 5])
    assert at == len(data)
    return kinds + chr(data[-1])


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a moment may be long."""
    monkeypatch.setattr(pool, "CHECK_AFTER", 10.0)


@pytest.fixture
async def client(engine: PostgresEngine) -> AsyncIterator[Client]:
    """A client whose engine has one connection, used a moment ago."""
    client = Client(engine)
    await client.simple(
        "DROP TABLE IF EXISTS quick, late; CREATE TABLE quick (a int);"
        "CREATE TABLE late (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    yield client
    await client.close()
    assert engine.pool.idle == engine.pool.count


PLAIN = [
    ("SELECT 1", "TDCZI", 1),
    ("SELECT generate_series(1, 30)", "T" + "D" * 30 + "CZI", 30),
    ("VALUES (1), (NULL)", "TDDCZI", 2),
    ("SELECT 1 WHERE false", "TCZI", 0),
    ("INSERT INTO quick VALUES (1), (2)", "CZI", 2),
    ("INSERT INTO quick VALUES (3) RETURNING a", "TDCZI", 1),
    ("UPDATE quick SET a = 1 WHERE a = 1", "CZI", 0),
    ("DELETE FROM quick WHERE a < 0", "CZI", 0),
]


@pytest.mark.parametrize(("sql", "kinds", "rows"), PLAIN)
async def test_a_plain_query_goes_quickly(client: Client, sql: str, kinds: str, rows: int) -> None:
    assert await ask(client, simple(sql)) == Said(kinds, rows, quick=True, failed=False)
    assert not client.holds()


@pytest.mark.parametrize("results", [(), (0,), (1,)])
@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(("sql", "kinds", "rows"), PLAIN)
async def test_a_prepared_statement_goes_quickly_once_a_connection_has_it(
    client: Client, sql: str, kinds: str, rows: int, described: bool, results: tuple[int, ...]
) -> None:
    head = ("" if "T" in kinds else "n") if described else ""
    expected = "2" + head + (kinds if described else kinds.replace("T", ""))
    # Seen first, named second, quick third; a different text for each case, since the engine remembers.
    text = f"{sql} /* {described} {results} */"
    for quick in (False, False, True):
        assert await ask(client, bound(text, described=described, results=results)) == Said(
            expected, rows, quick=quick, failed=False
        )
    assert not client.holds()


async def test_values_go_along(client: Client) -> None:
    for n in (1, 2, 3):
        native = bound("SELECT $1::int + 1, $2::text", b"%d" % n, None)
        answer = await begun(client, native)
        data = native.whole or b"".join([frame async for frame in frames(answer)])
        assert b"\0\0\0\1%d\xff\xff\xff\xff" % (n + 1) in data


async def frames(answer: Frames) -> AsyncIterator[bytes]:
    while (frame := await answer.next()) is not None:
        assert isinstance(frame, bytes)
        yield frame


async def test_errors_go_the_general_way(client: Client) -> None:
    assert await ask(client, simple("SELECT 1/0")) == Said("EZI", None, quick=False, failed=True)
    for _ in range(3):
        said = await ask(client, bound("SELECT 1/$1::int", b"0"))
        assert (said.kinds[-3:], said.quick, said.failed) == ("EZI", False, True)
        said = await ask(client, bound("SELECT 1/$1::int", b"zero"))
        assert (said.kinds, said.failed) == ("2EZI", True)
    assert (await ask(client, bound("SELECT 1/$1::int", b"1"))).quick


async def test_an_error_of_the_commit(client: Client) -> None:
    for _ in range(3):
        said = await ask(client, bound("INSERT INTO late VALUES (7), (7)", described=False))
        assert (said.kinds, said.failed) == ("2CEZI", True)
    assert (await ask(client, simple("INSERT INTO late VALUES (8), (8)"))).kinds == "EZI"


async def test_notices_are_passed_on(client: Client) -> None:
    await client.simple(
        "CREATE OR REPLACE FUNCTION noisy(n int) RETURNS int AS "
        "$$BEGIN RAISE NOTICE 'C'; RETURN n; END$$ LANGUAGE plpgsql"
    )
    said = await ask(client, simple("SELECT noisy(n) FROM generate_series(1, 2) n"))
    assert sorted(said.kinds) == sorted("TNDNDCZI")
    assert said.rows == 2
    for _ in range(3):
        said = await ask(client, bound("SELECT noisy(n) FROM generate_series(1, 2) n"))
        assert sorted(said.kinds) == sorted("2TNDNDCZI")


async def test_a_long_answer_comes_in_frames(client: Client) -> None:
    said = await ask(client, simple(BIG))
    assert (said.kinds, said.rows, said.quick) == ("T" + "D" * 5000 + "CZI", 5000, False)
    for _ in range(3):
        said = await ask(client, bound(BIG))
        assert (said.kinds, said.rows, said.quick) == ("2T" + "D" * 5000 + "CZI", 5000, False)


async def test_what_leaves_state_behind_steps_aside(client: Client) -> None:
    said = await ask(client, simple("SELECT set_config('work_mem', '8MB', false)"))
    assert (said.kinds, said.quick) == ("TDCZI", False)
    assert client.holds()
    assert await client.scalar("SHOW work_mem") == "8MB"
    said = await ask(client, simple("SELECT 1"))
    assert (said.kinds, said.quick) == ("TDCZI", False), "a pinned session keeps to its own connection"
    await client.simple("DISCARD ALL")
    await ask(client, bound("SELECT pg_advisory_lock(1)"))
    assert client.holds()


async def test_a_transaction_steps_aside(client: Client) -> None:
    await client.simple("BEGIN")
    assert await ask(client, simple("SELECT 1")) == Said("TDCZT", 1, quick=False, failed=False)
    assert await ask(client, bound("SELECT 1")) == Said("2TDCZT", 1, quick=False, failed=False)
    await client.simple("ROLLBACK")
    assert (await ask(client, simple("SELECT 1"))).quick


async def test_other_settings_step_aside(engine: PostgresEngine, client: Client) -> None:
    other = Client(engine, TimeZone="Asia/Tokyo")
    assert not (await ask(other, simple("SELECT current_setting('timezone')"))).quick
    assert (await ask(other, simple("SELECT current_setting('timezone')"))).quick
    native = simple("SELECT current_setting('timezone')")
    assert not (await ask(client, native)).quick
    await other.close()


async def test_another_encoding_steps_aside(engine: PostgresEngine, client: Client) -> None:
    latin = Client(engine, client_encoding="LATIN1")
    for _ in range(2):
        answer = await latin.start(simple("SELECT 'ä'"))
        assert (await drained(answer)).rows == [["ä".encode("latin-1")]]
    await latin.close()


async def test_a_plan_that_has_become_stale(engine: PostgresEngine, client: Client) -> None:
    sql = "SELECT * FROM quick"
    for _ in range(3):
        said = await ask(client, bound(sql))
    assert said.quick
    other = Client(engine)
    await other.simple("ALTER TABLE quick ADD COLUMN b int")
    await other.close()
    assert (await ask(client, bound(sql))).kinds == "2TCZI"
    assert (await ask(client, bound(sql))).kinds == "2TCZI"


async def test_cancel_and_task_cancel(
    postgres_server: PostgresServer, engine: PostgresEngine, client: Client
) -> None:
    for end in ("cancel", "task", "at once"):
        waiting = asyncio.create_task(ask(client, simple("SELECT pg_sleep(600)")))
        if end == "at once":
            await asyncio.sleep(0)
        else:
            await running(postgres_server, 1)
        async with asyncio.timeout(10):
            if end == "task":
                waiting.cancel()
            else:
                await client.connection.cancel()
            with pytest.raises(asyncio.CancelledError if end == "task" else QueryCancelled):
                await waiting
        await running(postgres_server, 0)
        assert engine.pool.idle == engine.pool.count == 1
        assert await client.scalar("SELECT 1") == "1"


async def test_a_server_that_goes(make: Make, postgres_server: PostgresServer) -> None:
    async with Link(postgres_server.host, postgres_server.port) as link:
        client = Client(make(postgres_server.config(port=link.port)))
        await client.simple("SELECT 1")
        waiting = asyncio.create_task(ask(client, simple("SELECT pg_sleep(600)")))
        await running(postgres_server, 1)
        link.cut()
        with pytest.raises(EngineConnectionLost):
            await waiting
        stop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600%'"
        postgres_server.scalar(stop + " AND pid <> pg_backend_pid()")
        assert (await ask(client, simple("SELECT 1"))).kinds == "TDCZI"
        assert (await ask(client, simple("SELECT 1"))).quick
        link.stall()
        waiting = asyncio.create_task(ask(client, simple(BIG)))
        await asyncio.sleep(0)
        link.resume()
        assert (await waiting).rows == 5000
        await client.close()


async def test_many_clients_share_few_connections(engine: PostgresEngine) -> None:
    async def one(n: int) -> None:
        client = Client(engine)
        for _ in range(10):
            assert (await ask(client, simple(f"SELECT generate_series(1, {n})"))).rows == n
            assert (await ask(client, bound("SELECT generate_series(1, $1::int)", b"%d" % n))).rows == n
        await client.close()

    await asyncio.gather(*(one(n) for n in range(1, 30)))
    assert engine.pool.count <= 4
