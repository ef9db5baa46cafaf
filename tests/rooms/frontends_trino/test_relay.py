"""A Trino engine's pages, relayed."""

import json

import pytest

from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineConnectionLost, EngineError
from queryflux.wire.trino.native import TrinoPage, TrinoStatement
from tests.rooms.frontends_trino.served import RelayEngine, coordinator_page, document, served


async def test_pages_are_relayed_with_only_their_uris_rewritten() -> None:
    pages = [coordinator_page(n, last=n == 3, state="FINISHED" if n == 3 else "RUNNING") for n in range(4)]
    trino = RelayEngine([*pages])
    async with served(trino) as run:
        client = await run.client()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        for place, original in enumerate(pages):
            got = document(response)
            assert b"coordinator" not in response.body
            untouched = original.body.split(b'"columns"')[1]
            assert response.body.endswith(untouched)
            assert got["id"] == "20240101_000000_00001_trino"
            assert trino.pulled == place + 1 or place == 3
            if place < 3:
                response = await client.ask("GET", got["nextUri"])
        assert run.bench.records[0].reason is EndReason.COMPLETED
        assert run.door.statements == 1
        await run.advance(62)
        assert run.door.statements == 0


async def test_one_complete_document() -> None:
    trino = RelayEngine([coordinator_page(0, last=True, state="FINISHED")])
    async with served(trino) as run:
        page = await (await run.client()).post("SELECT 1")
        assert page["data"] == [[1]]
        assert run.door.statements == 0
        assert run.bench.records[0].reason is EndReason.COMPLETED
        assert trino.closed_answers == 1


async def test_headers_go_both_ways() -> None:
    page = coordinator_page(0, last=True)
    told = (("X-Trino-Set-Session", "a=1"), ("X-Trino-Set-Session", "b=2"), ("X-Trino-Set-Role", "c=d"))
    trino = RelayEngine([TrinoPage(page.body, told, None)])
    async with served(trino) as run:
        client = await run.client()
        response = await client.ask(
            "POST",
            "/v1/statement",
            b"SET SESSION a = 1",
            X_TRINO_SESSION="x=1,query_tags=t",
            x_trino_time_zone="UTC",
            X_Trino_Transaction_Id="NONE",
            X_Trino_Query_Data_Encoding="json+zstd",
            X_Other="y",
        )
        assert [v for n, v in response.pairs if n == "x-trino-set-session"] == ["a=1", "b=2"]
        assert response.headers["x-trino-set-role"] == "c=d"
        native = trino.requests[0].native
        assert isinstance(native, TrinoStatement)
        assert dict(native.headers) == {"x-trino-session": "x=1", "x-trino-time-zone": "UTC"}
        assert trino.requests[0].tags == {"t": None}


async def test_cancel_partial_cancel_and_heartbeat_reach_the_engine() -> None:
    trino = RelayEngine([coordinator_page(n) for n in range(5)])
    async with served(trino) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        assert (await client.ask("HEAD", page["nextUri"])).status == 200
        assert trino.heartbeats == 1
        assert trino.pulled == 1
        assert (await client.ask("DELETE", page["partialCancelUri"])).status == 204
        assert trino.partially_cancelled == ["http://coordinator:8080/pc/0"]
        assert (await client.ask("GET", page["partialCancelUri"])).status == 405
        page = document(await client.ask("GET", page["nextUri"]))
        assert (await client.ask("DELETE", page["nextUri"])).status == 204
        assert run.bench.records[0].reason is EndReason.CANCELLED
        assert trino.closed_answers == 1
        assert document(await client.ask("GET", page["nextUri"]))["error"]["errorName"] == "USER_CANCELED"


async def test_the_coordinators_error_is_relayed_and_recorded() -> None:
    body = json.dumps(
        {
            "id": "q",
            "infoUri": "http://coordinator/x",
            "stats": {"state": "FAILED"},
            "error": {"errorName": "TABLE_NOT_FOUND", "errorCode": 46},
        }
    )
    trino = RelayEngine([TrinoPage(body.encode(), (), None)])
    trino.failure = EngineError("table not found", name="TABLE_NOT_FOUND")
    async with served(trino) as run:
        page = await (await run.client()).post("SELECT 1")
        assert page["error"] == {"errorName": "TABLE_NOT_FOUND", "errorCode": 46}
        assert page["infoUri"].startswith("http://door:8080/")
        assert run.bench.records[0].reason is EndReason.FAILED


@pytest.mark.parametrize(
    "pages",
    [
        [coordinator_page(0), EngineConnectionLost("the coordinator went away")],
        [coordinator_page(0), TrinoPage(b"<html>Bad Gateway</html>", (), None)],
        [coordinator_page(0)],
    ],
)
async def test_a_coordinator_that_breaks_off(pages: list[TrinoPage | Exception]) -> None:
    async with served(RelayEngine(pages)) as run:
        client = await run.client()
        page = await client.post("SELECT 1")
        page = document(await client.ask("GET", page["nextUri"]))
        assert page["error"]["errorName"] == "REMOTE_HOST_GONE"
        assert "nextUri" not in page
        assert await client.post("SELECT 1")


async def test_a_client_that_goes_away_before_its_last_page_leaves_nothing() -> None:
    trino = RelayEngine([coordinator_page(0, last=True, data="[" + "[1]," * 2_000_000 + "[1]]")])
    async with served(trino) as run:
        client = await run.client()
        client.stream.write(client.request("POST", "/v1/statement", b"SELECT 1"))
        await client.stream.read()
        client.stream.abort()
        await run.advance(1)
        assert run.bench.records[0].reason is EndReason.COMPLETED
        run.bench.assert_idle()
