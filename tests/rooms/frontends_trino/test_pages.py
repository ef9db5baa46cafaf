"""Statements and their pages, on engines that answer with batches."""

import asyncio
import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from queryflux.engines.port import EngineRequest
from queryflux.frontends.trino_http.rowpages import PAGE_BYTES
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.model.ids import process_tag_of
from queryflux.results.answer import Done
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_trino.served import arrive, document, served


def engine(step: Step | Callable[[EngineRequest], Step]) -> ScriptedEngine:
    return ScriptedEngine("duck", step if callable(step) else lambda request: step)


BIG = pa.table({"n": range(200_000), "t": ["some text of a row"] * 200_000})


async def test_a_small_answer_is_one_document() -> None:
    async with served() as run:
        client = await run.client()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert response.headers["content-type"] == "application/json"
        page = document(response)
        assert page["data"] == [[1]]
        assert page["columns"][0]["type"] == "integer"
        assert page["stats"]["state"] == "FINISHED"
        assert page["stats"]["processedRows"] == 1
        assert page["id"].endswith("_test2")
        assert page["infoUri"] == f"http://door:8080/ui/query.html?{page['id']}"
        assert "nextUri" not in page
        assert "x-queryflux-process" not in response.headers, "there is nothing to come back for"
        assert run.door.statements == 0
        (record,) = run.bench.records
        assert (record.proxy_query_id, record.reason) == (page["id"], EndReason.COMPLETED)
        assert record.rows_returned == 1


async def test_a_large_answer_in_pages_of_about_a_megabyte() -> None:
    async with served(engine(Step(BIG, rows_per_batch=100_000))) as run:
        client = await run.client()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert response.headers["x-queryflux-process"] == process_tag_of(document(response)["id"]) == "test2"
        rows, sizes = [], []
        while True:
            page = document(response)
            sizes.append(len(response.body))
            rows += page["data"]
            if "nextUri" not in page:
                break
            assert page["stats"]["state"] == "RUNNING"
            response = await client.ask("GET", page["nextUri"])
        assert [row[0] for row in rows] == list(range(200_000))
        assert page["stats"]["state"] == "FINISHED"
        assert all(PAGE_BYTES * 0.9 < size < PAGE_BYTES * 1.3 for size in sizes[:-1])
        assert len(sizes) > 4


async def test_the_same_page_again_an_older_one_and_one_too_far() -> None:
    async with served(engine(Step(BIG))) as run:
        client = await run.client()
        first = await client.post("SELECT 1")
        second = await client.ask("GET", first["nextUri"])
        again = await client.ask("GET", first["nextUri"])
        assert second.body == again.body
        third = await client.ask("GET", document(second)["nextUri"])
        assert document(third)["data"][0][0] > document(second)["data"][0][0]
        gone = await client.ask("GET", first["nextUri"])
        assert gone.status == 410
        assert "gone" in document(gone)["error"]["message"]
        far = document(third)["nextUri"][:-1] + "9"
        assert (await client.ask("GET", far)).status == 404
        assert (await client.ask("DELETE", far)).status == 204


async def test_the_last_page_can_be_fetched_again_for_a_while() -> None:
    async with served(engine(Step(BIG.slice(0, 60_000)))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        while "nextUri" in page:
            uri = page["nextUri"]
            page = document(await client.ask("GET", uri))
        assert document(await client.ask("GET", uri)) == page
        beyond = uri.rsplit("/", 1)[0] + "/99"
        assert (await client.ask("GET", beyond)).status == 404
        await run.advance(61)
        ended = await client.ask("GET", uri)
        assert ended.status == 404
        assert "has ended" in document(ended)["error"]["message"]
        assert run.door.statements == 0


async def test_a_page_is_pulled_only_when_it_is_asked_for() -> None:
    gate = asyncio.Semaphore(1000)
    async with served(engine(Step(BIG, batch_gate=gate, rows_per_batch=40_000))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        taken = 1000 - gate._value
        assert taken == 1
        await run.advance(5)
        assert 1000 - gate._value == taken
        await client.ask("DELETE", page["nextUri"])


async def test_a_result_that_comes_between_two_polls_goes_on_from_there() -> None:
    """The page was made before its poll came: its own URI must not be the one that follows it."""
    gate = asyncio.Event()
    async with served(engine(Step(BIG, gate=gate))) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(1.1)
        page = await posted
        gate.set()
        for _ in range(50):  # a large batch is encoded in a thread
            await arrive()
        rows, seen = [], set()
        while "nextUri" in page:
            assert page["nextUri"] not in seen
            seen.add(page["nextUri"])
            page = document(await client.ask("GET", page["nextUri"]))
            rows += page["data"]
        assert [row[0] for row in rows] == list(range(200_000))


async def test_a_query_that_takes_long_tells_how_it_is_and_the_result_wakes_the_poll() -> None:
    gate = asyncio.Event()
    async with served(engine(Step(gate=gate))) as run:
        client = await run.client()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(0.09)
        assert not posted.done()
        await run.advance(0.02)
        page = await posted
        assert page["stats"]["state"] == "RUNNING"
        assert "data" not in page
        polled = asyncio.create_task(client.ask("GET", page["nextUri"]))
        await run.advance(0.9)
        assert not polled.done()
        await run.advance(0.2)
        page = document(await polled)
        assert page["stats"]["state"] == "RUNNING"
        assert page["stats"]["elapsedTimeMillis"] >= 1000
        polled = asyncio.create_task(client.ask("GET", page["nextUri"]))
        await run.advance(0.5)
        gate.set()
        page = document(await polled)
        assert page["data"] == [[1]]


async def test_a_query_that_waits_for_room_is_queued_then_runs() -> None:
    gate = asyncio.Event()
    async with served(engine(Step(gate=gate)), member_limit=1) as run:
        first, second = await run.client(), await run.client()
        running = asyncio.create_task(first.post("SELECT 1"))
        await arrive()
        waiting = asyncio.create_task(second.post("SELECT 2"))
        await run.advance(1.1)
        page = await waiting
        assert page["stats"]["state"] == "QUEUED"
        assert page["stats"]["queued"] is True
        assert "/qf/queued/" in page["nextUri"]
        polled = asyncio.create_task(second.ask("GET", page["nextUri"]))
        await arrive()
        gate.set()
        page = document(await polled)
        assert page["data"] == [[1]]
        assert page["stats"]["queuedTimeMillis"] >= 1000
        document_of_first = await running
        assert (await first.ask("GET", document_of_first["nextUri"])).status == 200


async def test_two_polls_of_one_page_get_the_same() -> None:
    gate = asyncio.Event()
    async with served(engine(Step(gate=gate))) as run:
        client, other = await run.client(), await run.client()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(1.1)
        uri = (await posted)["nextUri"]
        polls = [asyncio.create_task(each.ask("GET", uri)) for each in (client, other)]
        await arrive()
        gate.set()
        one, two = await asyncio.gather(*polls)
        assert one.body == two.body
        assert document(one)["data"] == [[1]]


async def test_head_is_a_sign_of_life_and_eats_no_page() -> None:
    async with served(engine(Step(BIG))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        for _ in range(5):
            await run.advance(290)
            head = await client.ask("HEAD", page["nextUri"])
            assert (head.status, head.body) == (200, b"")
        following = document(await client.ask("GET", page["nextUri"]))
        assert following["data"][0][0] == page["data"][-1][0] + 1
        await client.ask("DELETE", following["nextUri"])


async def test_a_query_nobody_asks_for_is_abandoned() -> None:
    async with served(engine(Step(BIG))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        await run.advance(299)
        assert run.bench.records == []
        await run.advance(3)
        (record,) = run.bench.records
        assert record.reason is EndReason.ABANDONED
        run.bench.assert_idle()
        failed = document(await client.ask("GET", page["nextUri"]))
        assert failed["error"]["errorName"] == "ABANDONED_QUERY"
        assert failed["stats"]["state"] == "FAILED"
        await run.advance(61)
        assert run.door.statements == 0


async def test_a_waiting_query_is_abandoned_too() -> None:
    gate = asyncio.Event()
    async with served(engine(Step(gate=gate)), member_limit=1, wait_secs=1000.0) as run:
        clients = [await run.client() for _ in range(2)]
        posts = [asyncio.create_task(client.post("SELECT 1")) for client in clients]
        await run.advance(1.1)
        await asyncio.gather(*posts)
        await run.advance(302)
        assert [record.reason for record in run.bench.records] == [EndReason.ABANDONED] * 2
        await run.advance(62)
        assert run.door.statements == 0


async def test_delete_cancels_and_a_waiting_poll_hears_of_it() -> None:
    duck = engine(Step(gate=asyncio.Event()))
    async with served(duck) as run:
        client, other = await run.client(), await run.client()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(1.1)
        uri = (await posted)["nextUri"]
        polled = asyncio.create_task(client.ask("GET", uri))
        await arrive()
        deleted = await other.ask("DELETE", uri)
        assert (deleted.status, deleted.body) == (204, b"")
        page = document(await polled)
        assert page["error"]["errorName"] == "USER_CANCELED"
        assert page["error"]["errorCode"] == 3
        assert duck.cancels == 1
        assert run.bench.records[0].reason is EndReason.CANCELLED
        assert (await other.ask("DELETE", uri)).status == 204


async def test_a_client_that_goes_away_from_its_post_ends_its_query() -> None:
    duck = engine(Step(gate=asyncio.Event()))
    async with served(duck) as run:
        client = await run.client()
        client.stream.write(client.request("POST", "/v1/statement", b"SELECT 1"))
        await arrive()
        assert duck.running == 1
        client.stream.abort()
        await arrive()
        assert duck.running == 0
        assert run.bench.records[0].reason is EndReason.CLIENT_GONE
        assert run.door.statements == 0


async def test_a_client_that_goes_away_between_polls_may_come_back() -> None:
    async with served(engine(Step(BIG))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        client.stream.abort()
        other = await run.client()
        assert (await other.ask("GET", page["nextUri"])).status == 200
        assert (await other.ask("DELETE", page["nextUri"])).status == 204


@pytest.mark.parametrize(
    ("error", "name", "kind"),
    [
        (EngineError("no", kind=EngineErrorKind.TABLE_NOT_FOUND), "TABLE_NOT_FOUND", "USER_ERROR"),
        (EngineError("no", kind=EngineErrorKind.DIVISION_BY_ZERO), "DIVISION_BY_ZERO", "USER_ERROR"),
        (RuntimeError("secret"), "GENERIC_INTERNAL_ERROR", "INTERNAL_ERROR"),
    ],
)
async def test_a_failed_statement(error: Exception, name: str, kind: str) -> None:
    async with served(engine(Step(error=error))) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        assert page["stats"]["state"] == "FAILED"
        assert (page["error"]["errorName"], page["error"]["errorType"]) == (name, kind)
        assert "secret" not in json.dumps(page)
        assert "nextUri" not in page
        assert await client.post("SELECT 1")


async def test_an_error_midway_ends_the_pages() -> None:
    step = Step(BIG, rows_per_batch=10_000, fail_after=5)
    async with served(engine(step)) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        while "nextUri" in page:
            page = document(await client.ask("GET", page["nextUri"]))
        assert page["error"]["message"] == "failed midway"
        assert page["stats"]["state"] == "FAILED"


async def test_a_full_queue_says_so() -> None:
    gate = asyncio.Event()
    async with served(engine(Step(gate=gate)), member_limit=1, max_queued=0) as run:
        client, other = await run.client(), await run.client()
        running = asyncio.create_task(client.post("SELECT 1"))
        await arrive()
        page = await other.post("SELECT 1")
        assert page["error"]["errorName"] == "QUERY_QUEUE_FULL"
        gate.set()
        assert (await running)["data"] == [[1]]


async def test_statements_without_rows() -> None:
    steps = {"INSERT": Step(done=Done("INSERT", 3)), "CREATE": Step(done=Done("CREATE TABLE"))}
    async with served(engine(lambda request: steps[request.sql.split()[0]])) as run:
        client = await run.client()
        page = await client.post("INSERT INTO t SELECT 1")
        assert (page["updateType"], page["updateCount"], page["data"]) == ("INSERT", 3, [[3]])
        page = await client.post("CREATE TABLE t (a integer)")
        assert (page["updateType"], page["columns"]) == ("CREATE TABLE", [])
        assert not page.keys() & {"data", "updateCount"}


async def test_an_empty_result_has_its_columns() -> None:
    async with served(engine(Step(BIG.slice(0, 0)))) as run:
        page = await (await run.client()).post("SELECT 1")
        assert [column["name"] for column in page["columns"]] == ["n", "t"]
        assert "data" not in page
        assert page["stats"]["state"] == "FINISHED"


async def test_what_a_query_can_be_asked_about() -> None:
    async with served(engine(Step(BIG))) as run:
        client, stranger = await run.client(), await run.client("bob")
        page = await client.post("SELECT 1")
        told = document(await client.ask("GET", f"/v1/query/{page['id']}"))
        assert (told["state"], told["query"], told["finalQueryInfo"]) == ("PAGING", "SELECT 1", False)
        assert (await stranger.ask("GET", f"/v1/query/{page['id']}")).status == 403
        assert (await client.ask("DELETE", f"/v1/query/{page['id']}")).status == 204
        assert document(await client.ask("GET", f"/v1/query/{page['id']}"))["state"] == "CANCELLED"


async def test_uris_belong_to_their_owner_their_slug_and_their_process() -> None:
    async with served(engine(Step(BIG))) as run:
        client, stranger = await run.client(), await run.client("bob")
        uri = (await client.post("SELECT 1"))["nextUri"]
        for method in ("GET", "HEAD", "DELETE"):
            assert (await stranger.ask(method, uri)).status == 403
        head, slug, token = uri.rsplit("/", 2)
        assert (await client.ask("GET", f"{head}/{slug[::-1]}/{token}")).status == 404
        foreign = await client.ask("GET", uri.replace("_test2/", "_other/"))
        assert foreign.status == 404
        assert "belongs to process other" in document(foreign)["error"]["message"]
        assert (await client.ask("POST", uri, b"x")).status == 405
        assert (await client.ask("GET", uri)).status == 200
        await client.ask("DELETE", uri)


async def test_uris_follow_the_way_a_request_came() -> None:
    async with served(engine(Step(BIG))) as run:
        client = await run.client()
        page = await client.post("SELECT 1", X_Forwarded_Proto="https", X_Forwarded_Host="sql.example.com")
        assert page["nextUri"].startswith("https://sql.example.com/v1/statement/qf/executing/")
        page = document(await client.ask("GET", page["nextUri"], Forwarded="host=other:1"))
        assert page["nextUri"].startswith("http://other:1/v1/")
        await client.ask("DELETE", page["nextUri"])
    async with served(engine(Step(BIG)), external="https://x.example") as run:
        page = await (await run.client()).post("SELECT 1")
        assert page["nextUri"].startswith("https://x.example/v1/")
