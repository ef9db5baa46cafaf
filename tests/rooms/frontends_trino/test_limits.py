"""Limits of time that a client's session sets."""

import asyncio
from typing import Any

import pytest

from queryflux.frontends.trino_http.limits import NO_LIMITS, limits_of
from queryflux.model.endings import EndReason
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_trino.served import (
    Client,
    RelayEngine,
    Served,
    arrive,
    coordinator_page,
    document,
    served,
)


def endless() -> ScriptedEngine:
    return ScriptedEngine("duck", lambda _: Step(gate=asyncio.Event()), dialect="trino")


async def last_page(run: Served, client: Client, page: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Ask on while the clock goes on; the last page, or the newest after ``seconds``."""
    while "nextUri" in page and seconds > 0:
        asked = asyncio.create_task(client.ask("GET", page["nextUri"]))
        await arrive()
        while not asked.done():
            await run.advance(0.25)
            seconds -= 0.25
        page = document(await asked)
    return page


@pytest.mark.parametrize(
    ("value", "seconds", "shown"),
    [
        ("1.00s", 1.0, "1.00s"),
        ("1+s", 1.0, "1.00s"),
        ("+90m", 5400.0, "90.00m"),
        ("250ms", 0.25, "250.00ms"),
        ("0s", 0.0, "0.00s"),
        ("1.5d", 129600.0, "1.50d"),
    ],
)
def test_what_a_session_says(value: str, seconds: float, shown: str) -> None:
    limits = limits_of(f"a=b,query_max_run_time={value},query_max_execution_time={value}")
    assert limits.run is not None
    assert limits.execution is not None
    assert limits.run.seconds == limits.execution.seconds == seconds
    assert limits.run.message.endswith(f"maximum time limit of {shown}")
    assert limits.execution.message.endswith(f"maximum execution time limit of {shown}")


def test_none() -> None:
    assert limits_of("") is NO_LIMITS
    assert limits_of("query_max_planning_time=x") == NO_LIMITS
    assert limits_of("query_max_run_time=99999999999999999999d").run is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("abc", "duration is not a valid data duration string: abc"),
        ("5", "duration is not a valid data duration string: 5"),
        ("-1s", "duration is not a valid data duration string: -1s"),
        ("1S", "Unknown time unit: S"),
        ("", "duration is empty"),
    ],
)
async def test_a_malformed_limit(value: str, why: str) -> None:
    duck = ScriptedEngine("duck", dialect="trino")
    async with served(duck) as run:
        client = await run.client()
        for _ in range(3):
            page = await client.post("SELECT 1", X_Trino_Session=f"query_max_run_time={value}")
            assert page["error"]["errorName"] == "INVALID_SESSION_PROPERTY"
            assert page["error"]["message"] == f"Session property 'query_max_run_time' is invalid: {why}"
        page = await client.post(f"SET SESSION query_max_execution_time = '{value}'")
        assert page["error"]["errorName"] == "INVALID_SESSION_PROPERTY"
        assert duck.statements == []
        page = await client.post(
            "RESET SESSION query_max_run_time", X_Trino_Session=f"query_max_run_time={value}"
        )
        assert "error" not in page
        assert await client.rows("SELECT 1") == [[1]]


@pytest.mark.parametrize("name", ["query_max_run_time", "query_max_execution_time"])
async def test_a_query_is_ended_when_its_time_is_over(name: str) -> None:
    async with served(endless()) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1", X_Trino_Session=f"{name}=2s"))
        await run.advance(1.9)
        page = await posted
        asked = asyncio.create_task(client.ask("GET", page["nextUri"]))
        await arrive()
        assert not asked.done()
        await run.advance(0.2)
        page = document(await asked)
        assert page["error"]["errorName"] == "EXCEEDED_TIME_LIMIT"
        assert page["error"]["errorType"] == "INSUFFICIENT_RESOURCES"
        assert page["error"]["message"].endswith(" limit of 2.00s")
        assert "nextUri" not in page
        assert run.bench.records[0].reason is EndReason.TIMED_OUT


async def test_a_client_that_pauses_is_told_later() -> None:
    async with served(endless()) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1", X_Trino_Session="query_max_run_time=1s"))
        await run.advance(0.2)
        page = await posted
        await run.advance(30)
        assert run.bench.records[0].reason is EndReason.TIMED_OUT
        page = document(await client.ask("GET", page["nextUri"]))
        assert page["error"]["message"] == "Query exceeded maximum time limit of 1.00s"


async def test_the_lower_of_it_and_the_groups_own() -> None:
    async with served(endless(), query_timeout_secs=1.0) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1", X_Trino_Session="query_max_run_time=1m"))
        await run.advance(0.2)
        page = await last_page(run, client, await posted, 5)
        assert page["error"]["errorName"] == "EXCEEDED_TIME_LIMIT"
        assert "queryTimeoutSecs" in page["error"]["message"]


async def test_waiting_for_room_counts_for_the_run_time_alone() -> None:
    gate = asyncio.Event()
    duck = ScriptedEngine(
        "duck", lambda r: Step(gate=gate if r.sql == "SELECT 1" else asyncio.Event()), dialect="trino"
    )
    async with served(duck, member_limit=1) as run:
        first, second, third = [await run.client() for _ in range(3)]
        posted = [asyncio.create_task(first.post("SELECT 1"))]
        await run.advance(0.15)
        posted += [
            asyncio.create_task(second.post("SELECT 2", X_Trino_Session="query_max_run_time=2s")),
            asyncio.create_task(third.post("SELECT 3", X_Trino_Session="query_max_execution_time=2s")),
        ]
        await run.advance(0.2)
        page = await last_page(run, second, await posted[1], 3)
        assert page["error"]["message"] == "Query exceeded maximum time limit of 2.00s"
        await run.advance(5)
        assert len(run.bench.records) == 1
        gate.set()
        page = await last_page(run, first, await posted[0], 2)
        assert page["data"] == [[1]], (page, duck.requests)
        await run.advance(1.5)
        assert len(run.bench.records) == 2
        page = await last_page(run, third, await posted[2], 3)
        assert page["error"]["message"] == "Query exceeded the maximum execution time limit of 2.00s"


async def test_execution_counts_from_the_moment_when_there_is_room() -> None:
    gate = asyncio.Event()
    duck = ScriptedEngine(
        "duck", lambda r: Step(gate=gate if r.sql == "SELECT 1" else asyncio.Event()), dialect="trino"
    )
    async with served(duck, member_limit=1) as run:
        first, second, third = [await run.client() for _ in range(3)]
        posted = [asyncio.create_task(first.post("SELECT 1"))]
        await run.advance(0.15)
        limited = {"X_Trino_Session": "query_max_execution_time=2s"}
        posted.append(asyncio.create_task(second.post("SELECT 2", **limited)))
        await run.advance(0.05)
        posted.append(asyncio.create_task(third.post("SELECT 3", **limited)))
        await run.advance(0.25)
        gate.set()
        assert (await last_page(run, first, await posted[0], 0.1))["data"] == [[1]]
        for _ in range(500):
            if len(run.bench.records) < 2:
                await run.advance(0.01)
        assert run.bench.records[1].reason is EndReason.TIMED_OUT
        assert run.bench.records[1].execution_duration_ms == pytest.approx(2000)
        await third.ask("DELETE", (await posted[2])["nextUri"])


async def test_a_coordinator_keeps_to_it_itself() -> None:
    trino = RelayEngine([coordinator_page(0), coordinator_page(1), coordinator_page(2, last=True)])
    async with served(trino) as run:
        client = await run.client()
        session = "query_max_run_time=1.00s"
        page = await client.post("SELECT 1", X_Trino_Session=session)
        await run.advance(10)
        while "nextUri" in page:
            page = document(await client.ask("GET", page["nextUri"]))
            assert "error" not in page
        native: Any = trino.requests[0].native
        assert dict(native.headers)["x-trino-session"] == session


async def test_a_query_that_ended_in_time_leaves_no_timer() -> None:
    async with served(ScriptedEngine("duck", dialect="trino")) as run:
        client = await run.client()
        assert await client.rows("SELECT 1", X_Trino_Session="query_max_run_time=1h") == [[1]]
        await run.advance(7200)
        assert [record.reason for record in run.bench.records] == [EndReason.COMPLETED]
