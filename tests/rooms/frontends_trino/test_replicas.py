"""A statement that any of two processes is asked about: passed on, taken over, and recorded once."""

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest

from queryflux.admission.claims import REFRESH_SECS, STALE_SECS
from queryflux.frontends.trino_http.exchange import HOLD_SECONDS
from queryflux.model.errors import StoreUnavailable
from queryflux.model.shared import Kept, SharedQuery
from queryflux.pipeline.arrears import GIVEN_UP_SECS, LOOK_SECS, RETRY_SECS, STEADY_SECS
from queryflux.pipeline.claims import PATIENCE_SECS
from tests.kit.claims import MemoryClaimStore, shared_query
from tests.kit.pipelines import statement
from tests.kit.places import NOBODY
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_trino.fleet import Coordinator, LakeEngine, Process, fleet
from tests.rooms.frontends_trino.served import arrive, document

SQL = "SELECT n FROM lake.pages"
MANY = Step(pa.table({"n": list(range(300_000))}))


async def read_on(page: dict[str, Any], *processes: Process) -> list[int]:
    """The rest of a result, each page from the next of the processes."""
    rows = [row[0] for row in page.get("data", ())]
    turn = 0
    while "nextUri" in page:
        page = await processes[turn % len(processes)].page(page["nextUri"])
        turn += 1
        rows += [row[0] for row in page.get("data", ())]
    assert "error" not in page, page
    return rows


def id_in(page: dict[str, Any]) -> str:
    """Our id of a query: that of its next page's URI."""
    query_id: str = page["nextUri"].split("/")[-3]
    return query_id


# Passed on.


async def test_pages_are_asked_of_the_owner() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        assert await read_on(page, made.b, made.a, made.b) == [0, 1, 2, 3, 4]
        assert coordinator.asked == [0, 1, 2, 3, 4]
        await arrive()
        assert made.records == [("a", "Success")]
        assert not made.shared.rows


async def test_headers_of_the_client_are_those_of_its_own_request() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        response = await made.b.ask(
            "GET", page["nextUri"], X_Forwarded_Host="public", X_Forwarded_Proto="https"
        )
        assert document(response)["nextUri"].startswith("https://public/v1/statement/qf/executing/")
        await made.b.ask("DELETE", page["nextUri"])


async def test_another_users_request_ends_at_the_process_that_is_asked() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        assert (await made.b.ask("GET", page["nextUri"], X_Trino_User="bob")).status == 403
        wrong = page["nextUri"].rpartition("/")[0][:-4] + "0000/1"
        assert (await made.b.ask("GET", wrong)).status == 404
        assert coordinator.asked == [0]
        assert (await made.b.ask("DELETE", page["nextUri"])).status == 204
        assert coordinator.deleted == 1
        assert made.records == [("a", "Cancelled")]


@pytest.mark.parametrize("method", ["HEAD", "DELETE"])
async def test_other_methods_are_passed_on(method: str) -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        response = await made.b.ask(method, page["nextUri"])
        assert (response.status, response.body) == ({"HEAD": 200, "DELETE": 204}[method], b"")
        assert made.records == ([("a", "Cancelled")] if method == "DELETE" else [])
        await made.a.ask("DELETE", page["nextUri"])


# Taken over.


async def test_without_an_address_each_request_takes_the_query_along() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator), reachable=False) as made:
        page = await made.a.client.post(SQL)
        assert await read_on(page, made.b, made.a) == [0, 1, 2, 3, 4]
        assert coordinator.asked == [0, 1, 2, 3, 4], "each page once"
        assert (coordinator.posts, coordinator.deleted) == (1, 0)
        await arrive()
        assert made.records == [("a", "Success")], "of the last owner"


async def test_the_old_owner_learns_it_with_its_next_refresh_and_writes_nothing() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator), reachable=False) as made:
        page = await made.a.client.post(SQL)
        page = await made.b.page(page["nextUri"])
        assert made.a.bench.members["lake"].running == 1
        await made.advance(REFRESH_SECS)
        assert made.a.bench.members["lake"].running == 0
        assert made.a.door.statements == 0
        assert made.b.bench.members["lake"].running == 1
        assert await read_on(page, made.b) == [1, 2, 3, 4]
        await arrive()
        assert made.records == [("b", "Success")]


async def test_an_owner_that_cannot_be_reached_is_replaced_at_once() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.address = f"127.0.0.1:{NOBODY}"
        page = await made.a.client.post(SQL)
        page = await made.b.page(page["nextUri"])
        page = await made.b.page(page["nextUri"])
        assert page["data"] == [[2]]
        late = await made.a.page(page["nextUri"])  # its owner of then, which does not know it yet
        assert late["data"] == [[3]]
        assert await read_on(late, made.b) == [3, 4]
        await made.advance(REFRESH_SECS)
        assert made.records == [("b", "Success")]


async def test_a_page_that_did_not_reach_its_client_is_had_again_elsewhere() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        lost = page["nextUri"]
        await made.a.page(lost)
        await arrive()
        made.only_row().claimed -= STALE_SECS + 1
        page = await made.b.page(lost)
        assert page["data"] == [[1]]
        assert await read_on(page, made.b) == [1, 2, 3, 4]


async def test_an_owner_that_was_one_page_further_than_it_could_say() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        await arrive()
        made.a.store.silent = True
        page = await made.a.page(page["nextUri"])
        await arrive()
        row = made.only_row()
        assert row.row.kept == Kept(1, Coordinator.uri(1))
        row.claimed -= STALE_SECS + 1
        page = await made.b.page(page["nextUri"])
        assert page["data"] == [[2]], "none is lost, none comes twice"
        made.a.store.silent = False
        assert await read_on(page, made.b) == [2, 3, 4]
        assert coordinator.asked == [0, 1, 1, 2, 3, 4]


async def test_a_row_is_never_two_pages_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MemoryClaimStore.move

    async def slow(store: MemoryClaimStore, query_id: str, kept: Kept) -> bool:
        await asyncio.sleep(0.05 if store.instance == "a" else 0.3)
        return await whole(store, query_id, kept)

    monkeypatch.setattr(MemoryClaimStore, "move", slow)
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator), reachable=False) as made:
        page = await made.a.client.post(SQL)
        assert await read_on(page, made.a, made.b) == [0, 1, 2, 3, 4], "each page of a new owner"


# Results that are the owner's alone.


async def test_rows_of_an_engine_that_keeps_nothing_are_the_owners() -> None:
    async with fleet(ScriptedEngine(script=lambda _: MANY), ScriptedEngine()) as made:
        page = await made.a.client.post(SQL)
        assert await read_on(page, made.b) == list(range(300_000))
        await arrive()
        assert made.records == [("a", "Success")]


async def test_without_an_address_the_message_says_whose_they_are() -> None:
    async with fleet(ScriptedEngine(script=lambda _: MANY), ScriptedEngine(), reachable=False) as made:
        page = await made.a.client.post(SQL)
        response = await made.b.ask("GET", page["nextUri"])
        assert response.status == 404
        assert "process a only" in document(response)["error"]["message"]
        assert (await made.b.ask("DELETE", page["nextUri"])).status == 404
        await made.a.ask("DELETE", page["nextUri"])


async def test_the_last_page_waits_for_its_client_wherever_that_asks() -> None:
    gate = asyncio.Event()
    async with fleet(ScriptedEngine(script=lambda _: Step(gate=gate)), ScriptedEngine()) as made:
        page = await made.meanwhile(made.a.client.post(SQL), 1)
        gate.set()
        await arrive()
        assert not made.a.bench.pipeline.running, "it has ended already"
        page = await made.b.page(page["nextUri"])
        assert page["data"] == [[1]]
        await arrive()
        assert not made.shared.rows


# Waiting.


async def test_one_that_waits_is_queued_everywhere_and_taken_over_when_its_owner_has_gone() -> None:
    gate = asyncio.Event()
    engines = [ScriptedEngine(script=lambda _: Step(gate=gate)), ScriptedEngine()]
    async with fleet(*engines, limit=1) as made:
        running = made.a.bench.talk().submit(statement())
        page = await made.meanwhile(made.a.client.post(SQL), 1)
        assert page["stats"]["state"] == "QUEUED"
        again = await made.meanwhile(made.b.page(page["nextUri"]), 1)
        assert (again["stats"]["state"], again["nextUri"]) == ("QUEUED", page["nextUri"])
        made.a.store.silent = True
        await made.advance(STALE_SECS + 1)
        assert await read_on(page, made.b) == [1]
        made.a.store.silent = False
        await made.advance(REFRESH_SECS)
        await running.close()
        assert ("b", "Success") in made.records
        assert len(engines[0].requests) == 0
        assert len(engines[1].requests) == 1


async def test_an_owner_asks_whether_it_still_is_before_it_begins() -> None:
    engines = [ScriptedEngine(), ScriptedEngine()]
    async with fleet(*engines, limit=1) as made:
        talk = made.a.bench.talk()
        running = talk.submit(statement())
        await running.start()
        page = await made.meanwhile(made.a.client.post(SQL), 1)
        made.only_row().claimed -= STALE_SECS + 1
        assert await read_on(page, made.b) == [1]
        await running.close()  # its turn comes, and it is not its query any more
        await arrive()
        assert [request.sql for request in engines[0].requests] == ["SELECT 1"]
        assert made.records == [("a", "Cancelled"), ("b", "Success")]


async def test_credentials_are_not_stored_and_such_a_query_is_not_taken_over() -> None:
    async with fleet(ScriptedEngine(), ScriptedEngine(), limit=1) as made:
        running = made.a.bench.talk().submit(statement())
        await running.start()
        secret = {"X_Trino_Extra_Credential": "key=hush"}
        page = await made.meanwhile(made.a.client.post(SQL, **secret), 1)
        row = made.only_row()
        assert "hush" not in repr(row)
        row.claimed -= STALE_SECS + 1
        response = await made.b.ask("GET", page["nextUri"])
        assert response.status == 404
        assert "has gone" in json.loads(response.body)["error"]["message"]
        assert (await made.b.ask("DELETE", page["nextUri"])).status == 204
        await made.advance(REFRESH_SECS)
        await running.close()
        assert made.records == [("a", "Cancelled"), ("b", "Cancelled")]


async def test_a_process_that_drains_gives_away_what_waits() -> None:
    async with fleet(ScriptedEngine(), ScriptedEngine(), limit=1) as made:
        running = made.a.bench.talk().submit(statement())
        await running.start()
        page = await made.meanwhile(made.a.client.post(SQL), 1)
        made.a.bench.pipeline.begin_drain()
        await made.a.claims.give_up()
        await arrive()
        answered = await made.a.ask("GET", page["nextUri"])
        assert document(answered)["stats"]["state"] == "QUEUED"
        assert not answered.keep_alive, "ask somebody else"
        assert await read_on(page, made.b) == [1]
        await running.close()
        assert made.records == [("a", "Cancelled"), ("b", "Success")]


# A store that does not answer.


async def test_a_query_goes_on_without_the_database_and_is_told_of_when_it_is_back() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = True
        page = await made.a.client.post(SQL)
        page = await made.a.page(page["nextUri"])
        assert made.a.bench.metric("queryflux_coordination_failures_total", operation="tell") >= 1
        assert not made.shared.rows
        made.a.store.silent = False
        await made.advance(LOOK_SECS)
        assert made.only_row().row.kept == Kept(2, Coordinator.uri(2), Coordinator.uri(1))
        assert await read_on(page, made.b) == [1, 2, 3, 4]


async def test_an_ending_does_not_wait_for_a_database_that_is_stuck() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        first, second = await made.a.client.post(SQL), await made.a.client.post(SQL)
        await arrive()
        made.a.store.stuck = True
        ended = await made.meanwhile(made.a.ask("DELETE", first["nextUri"]), PATIENCE_SECS)
        assert ended.status == 204
        assert made.records == [("a", "Cancelled")]
        assert made.a.bench.members["lake"].running == 1
        made.a.store.give_up_calls()
        await arrive()
        calls = made.a.store.calls
        assert (await made.a.ask("DELETE", second["nextUri"])).status == 204
        assert made.a.store.calls == calls, "that it is away is known by now"
        assert made.records == [("a", "Cancelled")] * 2
        assert made.a.bench.members["lake"].running == 0
        assert len(made.shared.rows) == 2
        made.a.store.stuck = made.a.store.silent = False
        await made.advance(LOOK_SECS)
        assert not made.shared.rows


async def test_a_database_that_is_away_is_not_asked_for_what_begins_or_goes_on() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = True
        await made.advance(LOOK_SECS)
        calls = made.a.store.calls
        page = await made.a.client.post(SQL)
        assert (await made.a.ask("DELETE", page["nextUri"])).status == 204
        page = await made.a.client.post(SQL)
        page = await made.a.page(page["nextUri"])
        assert made.a.store.calls == calls
        made.a.store.silent = False
        await made.advance(RETRY_SECS)
        assert [row.row.query.id for row in made.shared.rows.values()] == [id_in(page)], "not the one before"
        assert await read_on(page, made.b) == [1, 2, 3, 4]


async def test_what_is_given_up_and_carried_out_after_all_is_taken_back() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = True
        page = await made.a.client.post(SQL)
        made.a.store.silent = False
        assert (await made.a.ask("DELETE", page["nextUri"])).status == 204
        about = shared_query(id_in(page))
        assert await made.a.store.run(about, "lake", "t1", None, waited=False), "the call that was given up"
        await made.advance(LOOK_SECS)
        assert not made.shared.rows
        await made.advance(GIVEN_UP_SECS + LOOK_SECS)
        calls = made.a.store.calls
        await made.advance(LOOK_SECS)
        assert made.a.store.calls - calls <= 2, "there is an end to it"


async def test_one_that_cannot_be_told_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MemoryClaimStore.run
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = True
        pages = [await made.a.client.post(SQL) for _ in range(12)]
        bad = {id_in(page) for page in pages[:5]}

        async def run(store: MemoryClaimStore, query: SharedQuery, *rest: Any, waited: bool) -> bool:
            if query.id in bad:
                raise StoreUnavailable("it does not take this one")
            return await whole(store, query, *rest, waited=waited)

        monkeypatch.setattr(MemoryClaimStore, "run", run)
        made.a.store.silent = False
        await made.advance(LOOK_SECS + 2 * RETRY_SECS)
        assert set(made.shared.rows) == {id_in(page) for page in pages[5:]}
        for row in made.shared.rows.values():
            row.claimed -= STALE_SECS
        await made.advance(REFRESH_SECS)
        assert not [query_id for query_id in made.shared.rows if (await made.b.store.find(query_id)).stale]  # type: ignore[union-attr]
        for page in pages:
            await made.a.ask("DELETE", page["nextUri"])


async def test_until_the_database_has_answered_for_a_while_a_query_may_be_unknown() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = made.b.store.silent = True
        page = await made.a.client.post(SQL)
        assert (await made.b.ask("GET", page["nextUri"])).status == 503, "nobody knows"
        made.b.store.silent = False
        answered = await made.meanwhile(made.b.ask("GET", page["nextUri"]), HOLD_SECONDS)
        assert answered.status == 503
        assert "was away a moment ago" in document(answered)["error"]["message"]
        waiting = asyncio.ensure_future(made.b.ask("GET", page["nextUri"]))
        await arrive()
        made.a.store.silent = False
        await made.advance(HOLD_SECONDS)
        assert (await waiting).status == 200, "it was told meanwhile"
        await made.a.ask("DELETE", page["nextUri"])
        made.b.store.silent = True
        await made.advance(LOOK_SECS)
        made.b.store.silent = False
        ours = page["nextUri"].replace("proca", "procb")
        assert (await made.b.ask("GET", ours)).status == 404, "of our own we know"
        await made.advance(STEADY_SECS + LOOK_SECS)
        answered = await made.b.ask("GET", page["nextUri"])
        assert answered.status == 404
        assert "it has ended" in document(answered)["error"]["message"]


async def test_an_outage_is_noticed_by_a_process_that_has_nothing_to_tell() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        made.a.store.silent = made.b.store.silent = True
        page = await made.a.client.post(SQL)
        await made.advance(LOOK_SECS + 1)
        made.b.store.silent = False
        answered = await made.meanwhile(made.b.ask("GET", page["nextUri"]), HOLD_SECONDS)
        assert answered.status == 503
        made.a.store.silent = False
        await made.a.ask("DELETE", page["nextUri"])


async def test_a_query_that_is_answered_at_once_has_no_row() -> None:
    async with fleet(ScriptedEngine(), ScriptedEngine()) as made:
        made.a.store.silent = True
        assert (await made.a.client.post(SQL))["data"] == [[1]]
        assert made.a.bench.metric("queryflux_coordination_failures_total", operation="tell") == 0


async def test_rows_go_with_clients_that_do_not_come_back() -> None:
    coordinator = Coordinator()
    async with fleet(LakeEngine(coordinator), LakeEngine(coordinator)) as made:
        page = await made.a.client.post(SQL)
        await made.advance(200)
        await made.b.page(page["nextUri"])
        for _ in range(4):
            await made.advance(50)
        assert made.shared.rows, "somebody was asked for it"
        for _ in range(4):
            await made.advance(50)
        assert not made.shared.rows
        assert made.records == [("a", "Cancelled")]
