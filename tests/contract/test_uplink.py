"""History through a control plane: what a worker sends over a real server is what every store holds then."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from queryflux.controlplane import intake as module
from queryflux.controlplane.intake import HistoryIntake
from queryflux.controlplane.worker_app import WorkerEndpoint
from queryflux.fleet.history import encode_batch
from queryflux.fleet.paths import HISTORY
from queryflux.history.batches import Outcome, send_isolating
from queryflux.history.buffer import HistoryBuffer, Pace
from queryflux.history.port import Added, HistoryFilter, HistoryStore
from queryflux.history.redaction import Held
from queryflux.history.stored import Digests, StoredQuery, stored_form
from queryflux.model.errors import RecordsRefused, StoreUnavailable
from queryflux.runtime.clock import SystemClock
from queryflux.worker.port import Reply
from queryflux.worker.uplink import HistoryUplink
from tests.contract.test_history_store import COUNTED, FULL, OVERFLOW, SURROGATE, digested
from tests.kit.databases import DATABASES
from tests.kit.history_stores import DURABLE, STORES, Durable, open_durable, open_store
from tests.kit.metrics import NoMetrics
from tests.kit.records import record, stored
from tests.kit.worker_server import Client, served

EVERYTHING = HistoryFilter()


class Line:
    """A worker's uplink to a control plane with a store."""

    def __init__(self, port: int, store: HistoryStore, instance: str = "qf-1") -> None:
        self.client = Client(port, instance)
        self.uplink = HistoryUplink(self.client, "edge", instance)
        self.store = store

    async def send(self, *records: StoredQuery) -> Outcome:
        return await send_isolating(self.uplink.send, records)

    async def post(self, body: bytes, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.call("POST", HISTORY, body, headers=named, seconds=10)


def calls(store: HistoryStore) -> Sequence[WorkerEndpoint]:
    return HistoryIntake(lambda: store, lambda one: one).endpoints()


@asynccontextmanager
async def line_to(store: HistoryStore) -> AsyncIterator[Line]:
    async with served(calls(store)) as port:
        line = Line(port, store)
        yield line
        line.client.close()


@pytest.fixture(params=STORES)
async def line(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Line]:
    async with open_store(request.param, tmp_path) as store, line_to(store) as opened:
        yield opened


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Durable]:
    async with open_durable(request.param, tmp_path) as opened:
        yield opened


def sent(one: StoredQuery) -> StoredQuery:
    """As it is kept: with the names of the worker that sent it."""
    return replace(one, worker="edge", instance_id="qf-1")


async def test_a_record_comes_as_it_went_with_the_name_of_its_worker(line: Line) -> None:
    assert await line.send(FULL, stored(7)) == Outcome(2, 0, 0)
    assert await line.store.query(EVERYTHING, 10) == [sent(stored(7)), sent(FULL)]
    assert [one.proxy_query_id for one in await line.store.query(HistoryFilter(worker="edge"), 10)] == [
        "q7",
        FULL.proxy_query_id,
    ]


async def test_a_batch_that_is_sent_again_is_stored_once_and_the_first_stays(line: Line) -> None:
    batch = [stored(number) for number in range(300)]
    assert await line.send(*batch) == Outcome(300, 0, 0)
    again = [replace(one, username="bob") for one in batch]
    assert await line.send(*again, stored(300)) == Outcome(1, 300, 0)
    async with line_to(line.store) as elsewhere:  # another control plane of the same store
        assert await elsewhere.send(*again, stored(300)) == Outcome(0, 301, 0)
    assert {one.username for one in await line.store.query(EVERYTHING, 1000)} == {"ann"}
    assert (await line.store.summary(0)).queries == 301


async def test_what_was_stored_and_comes_again_costs_the_store_nothing(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 100)
    asked: list[int] = []
    async with open_store("memory", tmp_path) as store, line_to(store) as line:
        keep = store.add_many

        async def add_many(records: Sequence[StoredQuery]) -> Added:
            asked.append(len(records))
            return await keep(records)

        monkeypatch.setattr(store, "add_many", add_many)
        batch = [stored(number) for number in range(150)]
        assert await line.send(*batch) == Outcome(150, 0, 0)
        assert await line.send(*batch) == Outcome(0, 150, 0)
        assert await line.send(*batch[100:]) == Outcome(0, 50, 0)
    assert asked == [150, 50], "the first fifty were forgotten, and the store knew them"


async def test_a_record_that_cannot_be_kept_is_counted_and_holds_up_no_other(durable: Durable) -> None:
    good = [digested(number) for number in range(10, 20)]
    async with line_to(durable.store) as line:
        outcome = await line.send(*good[:5], OVERFLOW, *good[5:], SURROGATE)
        assert outcome == Outcome(11, 0, 1), "what is no character has a place holder"
        assert await line.send(*good, OVERFLOW) == Outcome(0, 10, 1)
    assert durable.rows("SELECT count(*) FROM query_records") == [(11,)]
    ((_, _, _, _, count, *_),) = durable.rows(COUNTED)
    assert count == 10


async def test_one_that_is_not_understood_is_counted_too(line: Line) -> None:
    body = msgspec.json.decode(encode_batch("edge", "qf-1", [stored(1), stored(2)]))
    body["records"][0]["status"] = 7
    reply = await line.post(msgspec.json.encode(body))
    assert msgspec.json.decode(reply.body) == {"stored": 1, "duplicates": 0, "rejected": 1}


@pytest.mark.parametrize("kind", DATABASES)
async def test_clusters_and_groups_are_found_by_name(kind: str, tmp_path: Path) -> None:
    async with open_durable(kind, tmp_path) as durable, line_to(durable.store) as line:
        durable.rows(
            "WITH a AS (INSERT INTO cluster_configs (name, engine_key) VALUES ('lake', 'trino') RETURNING 1) "
            "SELECT * FROM a"
        )
        durable.rows(
            "WITH a AS (INSERT INTO cluster_group_configs (name) VALUES ('bi') RETURNING 1) SELECT * FROM a"
        )
        known = stored(1, cluster_name="lake", cluster_group="bi")
        await line.send(known, stored(2, cluster_name="gone", cluster_group="gone"))
        found = durable.rows(
            "SELECT r.proxy_query_id, c.name, g.name, r.cluster_name FROM query_records r "
            "LEFT JOIN cluster_configs c ON c.id = r.cluster_id "
            "LEFT JOIN cluster_group_configs g ON g.id = r.cluster_group_id ORDER BY 1"
        )
    assert found == [("q1", "lake", "bi", "lake"), ("q2", None, None, "gone")]


async def test_a_batch_that_is_too_large_is_sent_in_halves(line: Line, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MAX_PLAIN_BYTES", 4000)
    texts = [stored(number, sql_text=f"{number}".rjust(900)) for number in range(20)]
    large = stored(99, sql_text="x" * 5000)
    assert await line.send(*texts, large) == Outcome(20, 0, 1)
    assert (await line.store.summary(0)).queries == 20


async def test_a_body_over_the_limit_of_the_call_is_413(line: Line) -> None:
    reply = await line.post(b"x" * (module.MAX_BODY_BYTES + 1))
    assert reply.status == 413


@pytest.mark.parametrize(
    ("body", "packed", "status", "code"),
    [
        (b'{"schemaVersion":2}', "identity", 400, "UNKNOWN_SCHEMA_VERSION"),
        (b"{}", "identity", 400, "INVALID_REQUEST"),
        (b"{}", "gzip", 400, "INVALID_REQUEST"),
        (b"{}", "br", 400, "INVALID_REQUEST"),
        (zlib.compress(b"{}" * 100, wbits=31)[:-9], "gzip", 400, "INVALID_REQUEST"),
        (zlib.compress(b" " * (33 << 20), wbits=31), "gzip", 413, "TOO_LARGE"),
    ],
    ids=["version", "no batch", "no gzip", "brotli", "cut", "bomb"],
)
async def test_what_is_no_batch_is_refused_with_a_code(
    tmp_path: Path, body: bytes, packed: str, status: int, code: str
) -> None:
    async with open_store("memory", tmp_path) as store, line_to(store) as line:
        reply = await line.post(body, content_encoding=packed)
    assert (reply.status, msgspec.json.decode(reply.body)["code"]) == (status, code)


async def test_a_control_plane_that_does_not_know_the_version_or_the_call_is_asked_again_later() -> None:
    class Answering:
        def __init__(self, status: int, body: bytes) -> None:
            self.reply = Reply(status, {}, body)

        async def call(self, *_: Any, **__: Any) -> Reply:
            return self.reply

    problem = b'{"code": "UNKNOWN_SCHEMA_VERSION", "detail": "only 0"}'
    for status, body, said in (
        (400, problem, "400 UNKNOWN_SCHEMA_VERSION: only 0"),
        (404, b"", "it answers 404"),
        (500, b"<html>", "it answers 500"),
        (500, b'{"more": ' + b"[" * 100_000, "it answers 500"),
        (200, b"<html>", "is not understood"),
        (200, b'{"more": ' + b"[" * 100_000, "is not understood"),
    ):
        uplink = HistoryUplink(Answering(status, body), "edge", "qf-1")
        with pytest.raises(StoreUnavailable, match=said):
            await uplink.send([stored(1)])


async def test_a_store_that_is_away_is_503_and_what_it_had_not_is_sent_again(durable: Durable) -> None:
    async with line_to(durable.store) as line:
        await line.send(*(digested(number) for number in range(50)))
        await durable.stop()
        with pytest.raises(StoreUnavailable, match="503"):
            await line.send(digested(50))
        await durable.start()
        async with asyncio.timeout(30):
            while True:
                try:
                    outcome = await line.send(*(digested(number) for number in range(51)))
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        assert outcome.stored + outcome.duplicates == 51
    assert durable.rows("SELECT count(*) FROM query_records") == [(51,)]
    ((_, _, _, _, count, *_),) = durable.rows(COUNTED)
    assert count == 51


async def test_a_long_batch_is_not_read_on_the_loop(tmp_path: Path, monkeypatch: Any) -> None:
    beside: list[int] = []

    async def in_thread(name: str, function: Any, *args: Any) -> Any:
        beside.append(len(args[0]))
        return function(*args)

    monkeypatch.setattr(module, "in_thread", in_thread)
    many = [stored(number, sql_text=sha256(b"%d" % number).hexdigest() * 40) for number in range(3000)]
    async with open_store("memory", tmp_path) as store, line_to(store) as line:
        assert await line.send(*many[:10]) == Outcome(10, 0, 0)
        assert beside == []
        assert await line.send(*many) == Outcome(2990, 10, 0)
    assert beside
    assert beside[0] < 1 << 20, "packed it is not even long"


async def test_two_workers_send_at_the_same_time(line: Line) -> None:
    other = Line(line.client.port, line.store, "qf-2")
    batches = [
        [stored(number, proxy_query_id=f"{who.client.instance}_{number}") for number in range(500)]
        for who in (line, other)
    ]
    both = await asyncio.gather(line.send(*batches[0]), other.send(*batches[1]))
    assert list(both) == [Outcome(500, 0, 0)] * 2
    other.client.close()
    assert (await line.store.summary(0)).queries == 1000


async def test_what_the_control_plane_does_not_admit_is_not_kept(tmp_path: Path) -> None:
    def admitted(one: StoredQuery) -> StoredQuery:
        if one.username == "bad":
            raise ValueError("bad")
        return replace(one, sql_text=None)

    async with open_store("memory", tmp_path) as store:
        endpoints = HistoryIntake(lambda: store, admitted).endpoints()
        async with served(endpoints) as port:
            line = Line(port, store)
            assert await line.send(stored(1), stored(2, username="bad")) == Outcome(1, 0, 1)
            line.client.close()
        assert [one.sql_text for one in await store.query(EVERYTHING, 10)] == [None]


async def test_a_buffer_before_an_uplink_loses_nothing_when_acknowledgements_are(durable: Durable) -> None:
    async with line_to(durable.store) as line:
        lost = 0

        async def send(records: Sequence[StoredQuery]) -> Outcome:
            nonlocal lost
            outcome = await line.uplink.send(records)
            lost += 1
            if lost % 2:
                raise StoreUnavailable("the acknowledgement was lost")
            return outcome

        def prepare(one: Held) -> StoredQuery:
            return one if isinstance(one, StoredQuery) else stored_form(one, Digests(1, 2, "select ?"))

        class Hurried(SystemClock):
            async def sleep(self, seconds: float) -> None:
                await asyncio.sleep(seconds / 100)

        pace = Pace(flush_secs=2, flush_records=100, batch_records=100)
        buffer = HistoryBuffer(send, prepare, Hurried(), NoMetrics(), pace)
        buffer.start()
        for number in range(1000):
            buffer.add(record(number))
        async with asyncio.timeout(30):
            while buffer.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # the server answers in real time
        assert buffer.delivery == (1000, 0, 0, 0, "")
        await buffer.close(1)
    assert lost >= 20
    assert durable.rows("SELECT count(*), count(DISTINCT proxy_query_id) FROM query_records") == [
        (1000, 1000)
    ]
    ((_, _, _, _, count, *_),) = durable.rows(COUNTED)
    assert count == 1000


async def test_a_single_record_that_is_too_large_is_refused() -> None:
    class TooSmall:
        async def call(self, *_: Any, **__: Any) -> Reply:
            return Reply(413, {}, b"")

    with pytest.raises(RecordsRefused):
        await HistoryUplink(TooSmall(), "edge", "qf-1").send([stored(1)])
