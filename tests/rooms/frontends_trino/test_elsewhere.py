"""Requests that reach a sibling: another door behind the same port answers them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from queryflux.engines.port import EngineRequest
from queryflux.model.endings import EndReason
from queryflux.runtime.siblings import Siblings
from tests.kit.scripted import ScriptedEngine, Step
from tests.kit.siblings import siblings
from tests.rooms.frontends_trino.served import Client, Served, document, served

NUMBERS = pa.table({"n": list(range(300_000)), "t": ["some text"] * 300_000})


@asynccontextmanager
async def two(
    script: Callable[[EngineRequest], Step],
) -> AsyncIterator[tuple[Served, Served, list[Siblings]]]:
    """The owner of every statement, and another door."""
    async with (
        siblings("owner", "other") as made,
        served(ScriptedEngine(script=script), siblings=made[0]) as owner,
        served(ScriptedEngine(script=script), siblings=made[1]) as other,
    ):
        yield owner, other, made


async def until(what: Callable[[], object]) -> None:
    """Return when it is true: there is no event between two processes."""
    async with asyncio.timeout(5):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_pages_come_from_the_owner_whoever_is_asked() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=50_000)) as (owner, other, _):
        mine, theirs = await owner.client(), await other.client()
        page = await mine.post("SELECT 1")
        rows = page["data"]
        turn = 0
        while "nextUri" in page:
            turn += 1
            asked = theirs if turn % 2 else mine
            response = await asked.ask("GET", page["nextUri"])
            page = document(response)
            rows += page.get("data", [])
        assert turn > 2
        assert rows == [[n, "some text"] for n in range(300_000)]
        assert [record.reason for record in owner.bench.history.newest()] == [EndReason.COMPLETED]
        assert list(other.bench.history.newest()) == []


async def test_what_is_checked_there_is_refused_here_with_the_same_words() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=50_000)) as (owner, other, _):
        mine, theirs, eve = await owner.client(), await other.client(), await other.client("eve")
        page = await mine.post("SELECT 1")
        path = urlsplit(page["nextUri"]).path
        assert (await eve.ask("GET", path)).status == 403
        parts = path.split("/")
        parts[6] = "0" * len(parts[6])
        assert (await theirs.ask("GET", "/".join(parts))).status == 404
        assert (await theirs.ask("HEAD", path)).status == 200
        assert document(await theirs.ask("GET", f"/v1/query/{page['id']}"))["queryId"] == page["id"]
        assert (await theirs.ask("DELETE", path)).status == 204
        assert [record.reason for record in owner.bench.history.newest()] == [EndReason.CANCELLED]


async def test_a_transaction_goes_on_where_it_began() -> None:
    async with two(lambda request: Step()) as (owner, other, _):
        mine, theirs = await owner.client(), await other.client()
        begun = await mine.ask("POST", "/v1/statement", b"START TRANSACTION", X_Trino_Transaction_Id="NONE")
        named = begun.headers["x-trino-started-transaction-id"]
        assert named.endswith("_owner")
        assert begun.headers["x-queryflux-process"] == "owner"
        page = await theirs.post("SELECT 1", X_Trino_Transaction_Id=named)
        assert page["id"].endswith("_owner")
        while "nextUri" in page:
            page = document(await theirs.ask("GET", page["nextUri"]))
        assert "error" not in page
        ended = await theirs.ask("POST", "/v1/statement", b"COMMIT", X_Trino_Transaction_Id=named)
        assert ended.headers["x-trino-clear-transaction-id"] == "true"


async def begin(client: Client) -> str:
    """A transaction's id."""
    begun = await client.ask("POST", "/v1/statement", b"START TRANSACTION", X_Trino_Transaction_Id="NONE")
    return begun.headers["x-trino-started-transaction-id"]


async def test_a_client_that_goes_while_its_statement_runs_elsewhere_ends_it() -> None:
    gate = asyncio.Event()
    async with two(lambda request: Step(gate=gate)) as (owner, other, _):
        named = await begin(await owner.client())
        gone = await other.client()
        gone.stream.write(gone.request("POST", "/v1/statement", b"SELECT 1", X_Trino_Transaction_Id=named))
        await until(lambda: owner.bench.pipeline.running)
        gone.stream.abort()
        await until(lambda: [it.reason for it in owner.bench.history.newest()] == [EndReason.CLIENT_GONE])


async def test_what_a_process_held_is_gone_with_it_at_once() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=50_000)) as (owner, other, made):
        mine, theirs = await owner.client(), await other.client()
        named = await begin(mine)
        page = await mine.post("SELECT 1")
        await made[0].close()
        response = await theirs.ask("GET", page["nextUri"])
        assert response.status == 404
        assert "which has gone" in document(response)["error"]["message"]
        assert (await theirs.ask("DELETE", f"/v1/query/{page['id']}")).status == 404
        response = await theirs.ask("POST", "/v1/statement", b"SELECT 1", X_Trino_Transaction_Id=named)
        assert document(response)["error"]["errorName"] == "UNKNOWN_TRANSACTION"


@pytest.mark.parametrize(
    "query_id", ["20261129_213144_00042_..%2f", "20261129_213144_00042_a/b.c", "x_....."]
)
async def test_an_id_is_no_path(query_id: str) -> None:
    async with two(lambda request: Step()) as (_, other, _):
        assert (await (await other.client()).ask("GET", f"/v1/query/{query_id}")).status == 404
