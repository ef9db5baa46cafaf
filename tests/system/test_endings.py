"""How queries end before they are done, through every door: soon after the event the engine's work has
stopped, the slot is back, and the record says why.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.port import EngineRequest
from queryflux.model.endings import EndReason
from tests.kit.cable import cable
from tests.kit.doors import (
    DOORS,
    HOST,
    Client,
    Door,
    FlightClient,
    MysqlClient,
    PostgresClient,
    Refusal,
    TrinoClient,
    every_door,
    flight_refusals,
)
from tests.kit.leaks import nothing_left
from tests.kit.scripted import Step
from tests.kit.watched import CLUSTERS, Watched, watched

pytest.importorskip("duckdb", reason="DuckDB is not installed")

TRINO, POSTGRES, MYSQL, FLIGHT = DOORS
RUNS, STREAMS, WAITS = "running", "streaming", "waiting"
stages = pytest.mark.parametrize("stage", [WAITS, RUNS, STREAMS])

ROWS = pa.table({"x": pa.array(range(100_000), pa.int64())})


class Script:
    """``held`` runs until it is ended; ``flows`` gives some rows and no more."""

    def __init__(self) -> None:
        self.never = asyncio.Event()
        self.some = asyncio.Semaphore(3)

    def step(self, request: EngineRequest) -> Step:
        if "held" in request.sql:
            return Step(gate=self.never)
        if "flows" in request.sql:
            return Step(table=ROWS, batch_gate=self.some, rows_per_batch=20_000)
        return Step()


def sql_of(stage: str) -> str:
    return "SELECT 'flows'" if stage == STREAMS else "SELECT 'held' AS x"


@contextmanager
def scripted(group: str = "") -> Iterator[Watched]:
    yaml = CLUSTERS.replace("[seen]}", f"[seen]{group and ', '}{group}}}")
    with watched(yaml, Script().step) as served:
        yield served


@pytest.fixture
def roomy() -> Iterator[Watched]:
    with scripted() as served:
        yield served


class Asking:
    """A client that asks in a thread of its own, and what comes of it."""

    def __init__(self, client: Client, sql: str) -> None:
        self.client = client
        self.error: BaseException | None = None
        self.rows: list[tuple[Any, ...]] | None = None
        self._sql = sql
        self._thread = threading.Thread(target=self._run, name="asking")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.rows = self.client.ask(self._sql)
        except BaseException as error:
            self.error = error

    def refusal(self) -> Refusal:
        """What it was told."""
        self.wait()
        assert isinstance(self.error, Refusal), (self.error, self.rows)
        return self.error

    def broken(self) -> None:
        """It was cut off."""
        self.wait()
        assert self.error is not None

    def wait(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the client was never answered"


class Slow:
    """Holds the one slot of a group while others wait for it."""

    def __init__(self, served: Watched) -> None:
        self._client = POSTGRES.connect(served.port(POSTGRES.name))
        self._asking = Asking(self._client, "SELECT 'held' AS first")
        served.running.wait_for(lambda: served.engine.running == 1)

    def end(self) -> None:
        assert isinstance(self._client, PostgresClient)
        self._client.connection.cancel_safe()
        self._asking.wait()
        self._client.close()


@contextmanager
def at_stage(stage: str) -> Iterator[Watched]:
    """A server whose next query gets as far as ``stage``."""
    if stage != WAITS:
        with scripted() as served:
            yield served
        return
    with scripted("maxRunningQueries: 1") as served:
        slow = Slow(served)
        try:
            yield served
        finally:
            slow.end()


def wait_until(served: Watched, stage: str) -> None:
    generation = served.running.standalone.generation
    if stage == WAITS:
        served.running.wait_for(lambda: len(generation.groups["main"].admission.waiters) == 1)
    else:
        served.running.wait_for(lambda: served.engine.running == 1)


def expect_ended(served: Watched, stage: str, *reasons: EndReason) -> None:
    """Nothing of it is left at the engine or in admission, and the newest record says why."""
    busy = int(stage == WAITS)
    generation = served.running.standalone.generation

    def over() -> bool:
        member = generation.clusters["seen"].member
        waiting = generation.groups["main"].admission.waiters
        return (served.engine.running, member.running, len(waiting)) == (busy, busy, 0)

    served.running.wait_for(over)
    served.running.wait_for(lambda: len(served.running.records) == 1)
    record = served.running.records[0]
    assert record.reason in reasons
    assert record.sql_text == sql_of(stage)


# Cancel, as each protocol has it.


def cancel_postgres(served: Watched, client: Client) -> None:
    assert isinstance(client, PostgresClient)
    client.connection.cancel_safe()


def cancel_mysql(served: Watched, client: Client) -> None:
    assert isinstance(client, MysqlClient)
    with MYSQL.connect(served.port(MYSQL.name)) as other:
        other.ask(f"KILL QUERY {client.number}")


CANCELS: dict[str, Callable[[Watched, Client], None]] = {
    POSTGRES.name: cancel_postgres,
    MYSQL.name: cancel_mysql,
}


@stages
@pytest.mark.parametrize("door", [POSTGRES, MYSQL], ids=lambda door: door.name)
def test_cancel_from_another_connection(door: Door, stage: str) -> None:
    with (
        at_stage(stage) as served,
        nothing_left(served.running),
        door.connect(served.port(door.name)) as client,
    ):
        asking = Asking(client, sql_of(stage))
        wait_until(served, stage)
        CANCELS[door.name](served, client)
        assert asking.refusal().code == door.codes["CANCELLED"]
        expect_ended(served, stage, EndReason.CANCELLED)
        if stage != WAITS:
            assert client.ask("SELECT 1 AS y") == [(1,)]


@stages
def test_trino_delete(stage: str) -> None:
    with (
        at_stage(stage) as served,
        nothing_left(served.running),
        TRINO.connect(served.port(TRINO.name)) as client,
    ):
        assert isinstance(client, TrinoClient)
        page = client.submit(sql_of(stage))
        wait_until(served, stage)
        following = page["nextUri"].split("/v1/", 1)[1]
        client.request("DELETE", f"/v1/{following}")
        expect_ended(served, stage, EndReason.CANCELLED)
        with pytest.raises(Refusal) as raised:
            client.finish(client.follow(page))
        assert raised.value.code in ("USER_CANCELED", "404")


@stages
def test_flight_cancel(stage: str) -> None:
    import pyarrow.flight as flight

    from queryflux.wire.flight import messages as m
    from queryflux.wire.flight.protobuf import encode

    with at_stage(stage) as served, nothing_left(served.running):
        address = f"grpc://{HOST}:{served.port(FLIGHT.name)}"
        with flight.FlightClient(address) as client, flight.FlightClient(address) as other:
            command = m.pack(m.CommandStatementQuery(sql_of(stage)))
            info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
            errors: list[type[Exception]] = []

            def fetch() -> None:
                # read_all would make an interrupt of this process out of a cancelled result.
                try:
                    reader = client.do_get(info.endpoints[0].ticket)
                    while True:
                        reader.read_chunk()
                except Exception as error:
                    errors.append(type(error))

            thread = threading.Thread(target=fetch)
            thread.start()
            wait_until(served, stage)
            body = encode(m.CancelFlightInfoRequest(info.serialize()))
            list(other.do_action(flight.Action("CancelFlightInfo", body)))
            thread.join(20)
            assert not thread.is_alive()
            assert errors[0] in (flight.FlightCancelledError, pa.ArrowCancelled)
            expect_ended(served, stage, EndReason.CANCELLED)


@pytest.mark.parametrize("stage", [RUNS, STREAMS])
def test_adbc_cancel(stage: str) -> None:
    """The driver gives up its call: to the door its client has gone."""
    with at_stage(stage) as served, FLIGHT.connect(served.port(FLIGHT.name)) as client:
        assert isinstance(client, FlightClient)
        cursor = client.connection.cursor()

        def fetch() -> None:
            with flight_refusals():
                cursor.adbc_statement.set_sql_query(sql_of(stage))  # without preparing it first
                handle, _ = cursor.adbc_statement.execute_query()
                pa.RecordBatchReader._import_from_c(handle.address).read_all()

        def run() -> None:
            try:
                fetch()
            except (Refusal, pa.ArrowException, OSError):
                return

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(served, stage)
        cursor.adbc_cancel()
        thread.join(20)
        assert not thread.is_alive()
        cursor.close()
        expect_ended(served, stage, EndReason.CLIENT_GONE, EndReason.CANCELLED)


# The client goes away.


@stages
@every_door
def test_a_client_that_goes_away(door: Door, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if door is TRINO and stage == STREAMS:
        pytest.skip("a Trino client may come back for the next page over another connection")
    # One that has had its first page may come back too: it is cut while it waits for that, however late.
    monkeypatch.setattr("queryflux.frontends.trino_http.exchange.FIRST_HOLD_SECONDS", 60)
    with (
        at_stage(stage) as served,
        nothing_left(served.running, sockets=door is not FLIGHT),
        cable(HOST, served.port(door.name)) as wire,
    ):
        client = door.connect(wire.port)
        asking = Asking(client, sql_of(stage))
        wait_until(served, stage)
        wire.cut()
        expect_ended(served, stage, EndReason.CLIENT_GONE)
        asking.broken()
        client.close()


# Time-outs.


@pytest.mark.parametrize("stage", [RUNS, STREAMS])
@every_door
def test_a_query_that_takes_too_long(door: Door, stage: str) -> None:
    with (
        scripted("queryTimeoutSecs: 1") as served,  # time enough for the short one after it
        nothing_left(served.running),
        door.connect(served.port(door.name)) as client,
    ):
        with pytest.raises(Refusal, match="queryTimeoutSecs") as raised:
            client.ask(sql_of(stage))
        assert raised.value.code == door.codes["TIMED_OUT"]
        expect_ended(served, stage, EndReason.TIMED_OUT)
        assert client.ask("SELECT 1 AS y") == [(1,)]


@every_door
def test_a_transaction_that_lies_idle(door: Door) -> None:
    with scripted("maxRunningQueries: 1, idleInTransactionTimeoutSecs: 2") as served:
        member = served.running.standalone.generation.clusters["seen"].member
        with nothing_left(served.running), transaction_of(door, served) as client:
            client.ask("INSERT INTO t VALUES (1)")
            assert member.running == 1
            served.running.wait_for(lambda: member.running == 0)
            with pytest.raises(Refusal, match=r"idle|[Tt]ransaction"):
                client.ask("SELECT 1 AS y")
            assert POSTGRES.ask(served.port(POSTGRES.name), "SELECT 1 AS z") == [(1,)]


@contextmanager
def transaction_of(door: Door, served: Watched) -> Iterator[Client]:
    """A client in a transaction that has just begun."""
    with door.connect(served.port(door.name)) as client:
        if isinstance(client, TrinoClient):
            client.begin()
        elif isinstance(client, FlightClient):
            client.connection.adbc_connection.set_autocommit(False)
        else:
            client.ask("BEGIN")
        yield client
        if isinstance(client, FlightClient):
            client.connection.adbc_connection.rollback()
            client.connection.adbc_connection.set_autocommit(True)
        else:
            client.ask("ROLLBACK")
