"""The suite that every engine passes. A concrete file subclasses EngineSuite and gives its ``subject``:

    class TestDuckDb(EngineSuite):
        @pytest.fixture
        def subject(self) -> EngineUnderTest: ...

``subject`` describes the engine in its own SQL; the suite asks for capabilities, never for a name. Every test
ends with ``engine.close()`` and counts tasks, threads and sockets before and after.
"""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.port import (
    Capability,
    ConnectionSpec,
    Engine,
    EngineConnection,
    EngineRequest,
)
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    QueryEnded,
    QueryFluxError,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Answer, Batches, Done

PATIENCE = 15.0
"""Seconds until something that should happen by itself counts as not happening."""
MEMORY_LIMIT = 96 * 1024 * 1024
"""Growth in bytes that reading a result of any size may cost."""


@dataclass(frozen=True)
class TypeSample:
    """``sql`` gives one column; ``arrow`` its type, exactly; ``values`` what ``to_pylist`` gives."""

    sql: str
    arrow: pa.DataType
    values: list[Any]
    id: str = ""


@dataclass(frozen=True)
class ErrorSample:
    """A statement that fails, and how."""

    sql: str
    kind: EngineErrorKind
    sqlstate: str | None = None
    position: int | None = None


@dataclass
class EngineUnderTest:
    """One engine, described in its own SQL."""

    build: Callable[[], Engine]
    """A fresh engine on the server under test; the suite closes it."""
    unreachable: Callable[[], Engine] | None
    """An engine whose server does not exist; None for an embedded one."""
    series: Callable[[int], str]
    """SQL for ``n`` = 1 to so many, in order, in a column ``n``, computed as it is read where possible."""
    wide: Callable[[int], str]
    """SQL for so many rows of about 200 bytes each, in columns ``n`` and ``filler``."""
    slow: str
    """A query that runs for minutes before its first row, unless it is cancelled."""
    running: Callable[[Engine], Awaitable[int]]
    """How many statements like ``slow`` the engine's server is running now."""
    table: tuple[str, str, str]
    """Catalog, schema and name of a table with columns id (integer, not null), name (text) and amount
    (decimal(12,2)) and the rows (1,'one',1.50), (2,'two',2.25), (3,NULL,NULL)."""
    view: tuple[str, str, str]
    """A view over it."""
    types: list[TypeSample] = field(default_factory=list)
    errors: list[ErrorSample] = field(default_factory=list)
    break_connections: Callable[[Engine], Awaitable[None]] | None = None
    """Makes the server drop every connection it has; None where there is none."""
    protocol: ClientProtocol = ClientProtocol.TRINO_HTTP
    """The door that the suite pretends to be; not the engine's native one."""
    column_types: tuple[str, str, str] = ("integer", "text", "numeric(12,2)")
    """What ``columns`` calls the types of ``table``."""
    parameter: Callable[[int], str] = "${}".format
    """The placeholder of the n-th parameter, from 1."""
    session: Session | None = None
    """The client's session, where the engine needs more of it than the protocol."""

    @property
    def table_sql(self) -> str:
        """``schema.table``."""
        return f"{self.table[1]}.{self.table[2]}"


def _open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def resident_bytes() -> int:
    """Memory that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Footprint:
    """What a process holds that an engine could leave behind."""

    tasks: int
    threads: frozenset[str]
    sockets: int

    @classmethod
    def now(cls) -> "Footprint":
        gc.collect()
        return cls(
            len(asyncio.all_tasks()),
            frozenset(thread.name for thread in threading.enumerate()),
            sum(1 for target in _open_files() if target.startswith("socket:")),
        )

    def exceeds(self, before: "Footprint") -> bool:
        """Whether anything more is there than before."""
        return (
            self.tasks > before.tasks or bool(self.threads - before.threads) or self.sockets > before.sockets
        )

    async def restored(self) -> None:
        """Return when nothing more is there than was then; fail, and say what, when it stays."""
        deadline = time.monotonic() + PATIENCE
        while (now := Footprint.now()).exceeds(self):
            assert time.monotonic() < deadline, f"left behind: {now}, before: {self}"
            await asyncio.sleep(0.02)


class Client:
    """One connection of an engine with the words a test wants to say."""

    def __init__(self, engine: Engine, subject: EngineUnderTest) -> None:
        self.session = subject.session or Session(protocol=subject.protocol)
        self.identity = VerifiedIdentity("tester")
        self.connection: EngineConnection = engine.connect(ConnectionSpec(self.identity, self.session))
        self._count = 0

    def request(self, sql: str, *parameters: Parameter) -> EngineRequest:
        """A statement of this client."""
        self._count += 1
        return EngineRequest(
            query_id=f"q{self._count}",
            sql=sql,
            session=self.session,
            identity=self.identity,
            parameters=parameters,
        )

    async def execute(self, sql: str, *parameters: Parameter) -> Answer:
        """Start a statement."""
        return await self.connection.execute(self.request(sql, *parameters))

    async def batches(self, sql: str, *parameters: Parameter) -> Batches:
        """Start a statement that gives rows."""
        answer = await self.execute(sql, *parameters)
        assert isinstance(answer, Batches)
        return answer

    async def table(self, sql: str, *parameters: Parameter) -> pa.Table:
        """Every row of a query."""
        answer = await self.batches(sql, *parameters)
        return await drained(answer)

    async def run(self, sql: str) -> None:
        """Run a statement of any kind to its end."""
        answer = await self.execute(sql)
        if isinstance(answer, Batches):
            await drained(answer)

    @property
    def transaction(self) -> str:
        """The state of the transaction, as a word."""
        return str(self.connection.transaction.value)

    async def done(self, sql: str) -> Done:
        """Run a statement without rows."""
        answer = await self.execute(sql)
        assert isinstance(answer, Done)
        return answer


async def drained(answer: Batches) -> pa.Table:
    """Read an answer to its end."""
    found = []
    while (batch := await answer.next()) is not None:
        assert batch.schema.equals(answer.schema)
        found.append(batch)
    await answer.close()
    return pa.Table.from_batches(found, answer.schema)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when ``condition`` holds; fail when it does not within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


class EngineSuite:
    """The contract of engines/port.py, one test per promise."""

    @pytest.fixture
    def subject(self) -> EngineUnderTest:
        raise NotImplementedError

    @pytest.fixture
    async def engine(self, subject: EngineUnderTest) -> AsyncIterator[Engine]:
        before = Footprint.now()
        engine = subject.build()
        yield engine
        async with asyncio.timeout(PATIENCE):
            await engine.close()
            await engine.close()

        await before.restored()

    @pytest.fixture
    async def client(self, engine: Engine, subject: EngineUnderTest) -> AsyncIterator[Client]:
        client = Client(engine, subject)
        yield client
        await client.connection.close()

    def needs(self, engine: Engine, capability: Capability) -> None:
        if capability not in engine.capabilities:
            pytest.skip(f"{engine.engine_key} has no {capability}")

    # Answers.

    async def test_every_type_arrives_as_documented(self, client: Client, subject: EngineUnderTest) -> None:
        assert subject.types
        wrong = []
        for sample in subject.types:
            table = await client.table(sample.sql)
            if table.schema.types != [sample.arrow] or table.column(0).to_pylist() != sample.values:
                wrong.append((sample.sql, table.schema.types, table.column(0).to_pylist()))
        assert not wrong, "\n".join(map(str, wrong))

    async def test_a_table_is_read(self, client: Client, subject: EngineUnderTest) -> None:
        table = await client.table(f"SELECT id, name, amount FROM {subject.table_sql} ORDER BY id")
        assert table.column_names == ["id", "name", "amount"]
        assert table.column("name").to_pylist() == ["one", "two", None]
        assert table.schema.field("amount").type == pa.decimal128(12, 2)
        assert [str(v) for v in table.column("amount").to_pylist()] == ["1.50", "2.25", "None"]

    async def test_no_rows_still_have_a_schema(self, client: Client, subject: EngineUnderTest) -> None:
        table = await client.table(f"SELECT id, name FROM {subject.table_sql} WHERE id < 0")
        assert table.num_rows == 0
        assert table.column_names == ["id", "name"]

    async def test_two_columns_may_have_one_name(self, client: Client) -> None:
        answer = await client.batches("SELECT 1 AS a, 2 AS a")
        assert answer.schema.names == ["a", "a"]
        batch = await answer.next()
        assert batch is not None
        assert [column.to_pylist() for column in batch.columns] == [[1], [2]]
        await answer.close()

    async def test_one_statement_after_another(self, client: Client, subject: EngineUnderTest) -> None:
        for n in (1, 5, 10):
            assert (await client.table(subject.series(n))).column("n").to_pylist() == list(range(1, n + 1))

    async def test_rows_stream_in_bounded_memory(self, client: Client, subject: EngineUnderTest) -> None:
        rows = 2_000_000
        await client.table(subject.wide(1000))
        start = resident_bytes()
        answer = await client.batches(subject.wide(rows))
        seen, highest = 0, 0
        while (batch := await answer.next()) is not None:
            seen += batch.num_rows
            highest = max(highest, resident_bytes())
        await answer.close()
        assert seen == rows
        assert highest - start < MEMORY_LIMIT

    async def test_an_answer_closed_early_frees_the_engine(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        answer = await client.batches(subject.wide(5_000_000))
        assert await answer.next() is not None
        await answer.close()
        await answer.close()

        async def stopped() -> bool:
            return await subject.running(engine) == 0

        await until(stopped)
        assert (await client.table(subject.series(3))).num_rows == 3

    # Endings.

    async def running(self, engine: Engine, subject: EngineUnderTest, count: int = 1) -> None:
        async def there() -> bool:
            return await subject.running(engine) == count

        await until(there)

    async def test_cancel_stops_a_statement_before_its_first_row(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        async with asyncio.timeout(PATIENCE):
            await client.connection.cancel()
        assert await subject.running(engine) == 0
        with pytest.raises(QueryEnded):
            await waiting
        assert (await client.table(subject.series(3))).num_rows == 3

    async def test_cancel_stops_a_stream(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        answer = await client.batches(subject.wide(5_000_000))
        assert await answer.next() is not None
        async with asyncio.timeout(PATIENCE):
            await client.connection.cancel()
        with pytest.raises(QueryEnded):
            await drained(answer)
        await answer.close()
        await self.running(engine, subject, 0)
        assert (await client.table(subject.series(3))).num_rows == 3

    async def test_cancel_never_hits_a_later_statement(
        self, client: Client, subject: EngineUnderTest
    ) -> None:
        for _ in range(20):
            await client.connection.cancel()
            answer = await client.batches(subject.series(2))
            await answer.next()
            cancelling = asyncio.create_task(client.connection.cancel())
            await answer.close()
            await cancelling
            assert (await client.table(subject.series(3))).num_rows == 3

    async def test_a_cancelled_task_stops_the_engine(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.connection.close()
        await self.running(engine, subject, 0)

    async def test_a_closed_connection_stops_its_statement(
        self, engine: Engine, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        client = Client(engine, subject)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        async with asyncio.timeout(PATIENCE):
            await client.connection.close()
            await client.connection.close()
        with pytest.raises((QueryEnded, EngineConnectionLost)):
            await waiting
        await self.running(engine, subject, 0)

    async def test_a_closed_engine_stops_everything(self, subject: EngineUnderTest) -> None:
        before = Footprint.now()
        engine, other = subject.build(), subject.build()
        client = Client(engine, subject)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        async with asyncio.timeout(PATIENCE):
            await engine.close()
        with pytest.raises(QueryFluxError):
            await waiting
        await client.connection.close()
        await self.running(other, subject, 0)
        await other.close()
        await before.restored()

    async def read_all(self, client: Client, sql: str) -> None:
        """Run and read ``sql``, wherever its engine spends the time."""
        await client.table(sql)

    # Errors.

    async def test_errors_have_their_kind_and_leave_the_connection_usable(
        self, client: Client, subject: EngineUnderTest
    ) -> None:
        assert subject.errors
        for sample in subject.errors:
            with pytest.raises(EngineError) as caught:
                await client.run(sample.sql)
            error = caught.value
            assert error.kind is sample.kind, sample.sql
            assert error.message
            if sample.sqlstate is not None:
                assert error.sqlstate == sample.sqlstate
            if sample.position is not None:
                assert error.position == sample.position
            assert (await client.table(subject.series(1))).num_rows == 1

    async def test_an_engine_that_is_not_there_is_unavailable(self, subject: EngineUnderTest) -> None:
        if subject.unreachable is None:
            pytest.skip("embedded: always there")
        engine = subject.unreachable()
        client = Client(engine, subject)
        with pytest.raises(EngineUnavailable):
            await engine.probe()
        with pytest.raises(EngineUnavailable):
            await client.execute(subject.series(1))
        await client.connection.close()
        await engine.close()

    async def test_connections_that_the_server_dropped_are_replaced(
        self, engine: Engine, subject: EngineUnderTest
    ) -> None:
        if subject.break_connections is None:
            pytest.skip("no connections to break")
        clients = [Client(engine, subject) for _ in range(3)]
        for client in clients:
            await client.table(subject.series(1))
        await subject.break_connections(engine)
        for client in clients:
            assert (await client.table(subject.series(2))).num_rows == 2
            await client.connection.close()

    # Many at once.

    async def test_many_connections_at_once(self, engine: Engine, subject: EngineUnderTest) -> None:
        async def one(count: int) -> None:
            client = Client(engine, subject)
            for _ in range(3):
                table = await client.table(subject.series(count))
                assert table.column("n").to_pylist() == list(range(1, count + 1))
            await client.connection.close()

        async with asyncio.timeout(PATIENCE * 2):
            await asyncio.gather(*(one(count) for count in range(1, 33)))

    async def test_a_slow_neighbour_holds_nobody_up(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        other = Client(engine, subject)
        async with asyncio.timeout(PATIENCE):
            assert (await other.table(subject.series(3))).num_rows == 3
        await other.connection.close()
        await client.connection.cancel()
        with pytest.raises(QueryEnded):
            await waiting

    # Metadata.

    async def test_it_says_how_much_it_runs(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.CANCEL)
        waiting = asyncio.create_task(self.read_all(client, subject.slow))
        await self.running(engine, subject)
        count = await engine.count_running()
        assert count is not None
        assert count >= await subject.running(engine) > 0
        await client.connection.cancel()
        with pytest.raises(QueryEnded):
            await waiting

    async def test_probe(self, engine: Engine) -> None:
        await engine.probe()

    async def test_tables(self, engine: Engine, subject: EngineUnderTest) -> None:
        found = {(t.catalog, t.schema, t.name): t.kind for t in await engine.tables()}
        assert found[subject.table] == "table"
        assert found[subject.view] == "view"

    async def test_columns(self, engine: Engine, subject: EngineUnderTest) -> None:
        found = await engine.columns(subject.table[1], subject.table[2])
        assert [(c.name, c.type_name, c.position) for c in found] == [
            (name, kind, position)
            for position, (name, kind) in enumerate(
                zip(("id", "name", "amount"), subject.column_types, strict=True), 1
            )
        ]
        assert all((c.table.schema, c.table.name) == subject.table[1:] for c in found)
        everything = {(c.table.schema, c.table.name) for c in await engine.columns()}
        assert {subject.table[1:], subject.view[1:]} <= everything
        assert await engine.columns(subject.table[1], "no_such_table") == []

    # Capabilities.

    async def test_describe(self, engine: Engine, client: Client, subject: EngineUnderTest) -> None:
        self.needs(engine, Capability.DESCRIBE)
        shape = await client.connection.describe(
            client.request(f"SELECT id, name, amount FROM {subject.table_sql}")
        )
        assert shape.schema is not None
        assert shape.schema.names == ["id", "name", "amount"]
        assert shape.schema.field("amount").type == pa.decimal128(12, 2)
        with pytest.raises(EngineError):
            await client.connection.describe(client.request("SELECT * FROM no_such_table"))
        assert (await client.table(subject.series(1))).num_rows == 1

    async def test_writes(self, engine: Engine, client: Client) -> None:
        self.needs(engine, Capability.WRITES)
        assert (await client.done("CREATE TABLE qf_writes (id INTEGER)")).tag.startswith("CREATE TABLE")
        try:
            done = await client.done("INSERT INTO qf_writes VALUES (1), (2)")
            assert (done.tag, done.rows) == ("INSERT", 2)
            assert (await client.done("DELETE FROM qf_writes WHERE id = 1")).rows == 1
            assert (await client.table("SELECT id FROM qf_writes")).column(0).to_pylist() == [2]
        finally:
            await client.done("DROP TABLE qf_writes")

    async def test_parameters(self, engine: Engine, client: Client, subject: EngineUnderTest) -> None:
        self.needs(engine, Capability.PARAMETERS)
        sql = f"SELECT name FROM {subject.table_sql} WHERE id = {subject.parameter(1)}"
        assert (await client.table(sql, Parameter(2))).column(0).to_pylist() == ["two"]
        assert (await client.table(sql, Parameter(None))).num_rows == 0
        sql = f"SELECT id FROM {subject.table_sql} WHERE name = {subject.parameter(1)}"
        assert (await client.table(sql, Parameter("two' OR 1=1 --"))).num_rows == 0

    async def test_transactions(self, engine: Engine, client: Client, subject: EngineUnderTest) -> None:
        self.needs(engine, Capability.TRANSACTIONS)
        other = Client(engine, subject)
        await client.done("CREATE TABLE qf_tx (id INTEGER)")
        try:
            assert client.transaction == "idle"
            await client.done("BEGIN")
            assert client.transaction == "open"
            await client.done("INSERT INTO qf_tx VALUES (1)")
            assert (await client.table("SELECT id FROM qf_tx")).num_rows == 1
            assert (await other.table("SELECT id FROM qf_tx")).num_rows == 0
            await client.done("ROLLBACK")
            assert client.transaction == "idle"
            assert (await client.table("SELECT id FROM qf_tx")).num_rows == 0
            await client.done("BEGIN")
            await client.done("INSERT INTO qf_tx VALUES (2)")
            await client.done("COMMIT")
            assert (await other.table("SELECT id FROM qf_tx")).column(0).to_pylist() == [2]
        finally:
            await other.connection.close()
            await client.done("DROP TABLE qf_tx")

    async def test_a_failed_transaction_waits_for_its_rollback(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.TRANSACTIONS)
        await client.done("BEGIN")
        with pytest.raises(EngineError):
            await client.execute("SELECT * FROM no_such_table")
        assert client.transaction == "failed"
        with pytest.raises(QueryFluxError):
            await client.table(subject.series(1))
        await client.done("ROLLBACK")
        assert client.transaction == "idle"
        assert (await client.table(subject.series(1))).num_rows == 1

    async def test_a_client_that_leaves_is_rolled_back(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        self.needs(engine, Capability.TRANSACTIONS)
        await client.done("CREATE TABLE qf_left (id INTEGER)")
        try:
            leaver = Client(engine, subject)
            await leaver.done("BEGIN")
            await leaver.done("INSERT INTO qf_left VALUES (1)")
            await leaver.connection.close()
            assert (await client.table("SELECT id FROM qf_left")).num_rows == 0
        finally:
            await client.done("DROP TABLE qf_left")
