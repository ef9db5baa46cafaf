"""Statements over the text protocol: local answers, results, errors, transactions, KILL, clients that go."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from queryflux.engines.port import Capability, EngineRequest, TransactionStatus
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.results.answer import Done
from queryflux.wire.mysql.constants import Capability as ClientCapability
from tests.kit.scripted import Step
from tests.rooms.frontends_mysql.fake import House, house
from tests.rooms.frontends_mysql.raw import DEFAULT, RawClient, error_number
from tests.rooms.wire_mysql.reading import text_cells

SEVERAL = DEFAULT | ClientCapability.MULTI_STATEMENTS | ClientCapability.MULTI_RESULTS
IN_TRANS, AUTOCOMMIT, MORE = 1, 2, 8


async def with_pymysql(place: House, work: Callable[[Any], Any], **connect: Any) -> Any:
    """``work`` with a cursor, on a thread."""

    def run() -> Any:
        connection = pymysql.connect(
            host="127.0.0.1", port=place.port, user="ann", **{"autocommit": True, **connect}
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            return work(cursor)

    return await asyncio.to_thread(run)


def rows_of(*texts: str) -> Callable[[Any], list[Any]]:
    """The rows of each statement."""

    def work(cursor: Any) -> list[Any]:
        found = []
        for text in texts:
            cursor.execute(text)
            found.append(list(cursor.fetchall()))
        return found

    return work


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (there is no event for what the server does)
            await asyncio.sleep(0)


async def test_the_preambles_of_clients() -> None:
    async with house() as place:
        found = await with_pymysql(
            place,
            rows_of(
                "SET NAMES utf8mb4",
                "SET sql_mode=(SELECT CONCAT(@@sql_mode,',NO_AUTO_VALUE_ON_ZERO'))",
                "SELECT @@session.sql_mode AS m",
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SELECT @@version_comment LIMIT 1",
                "SELECT @@session.auto_increment_increment AS a, @@character_set_client AS b, "
                "@@max_allowed_packet AS c, @@transaction_read_only AS d, @@sql_auto_is_null AS e",
                "SELECT DATABASE()",
                "USE sales",
                "SELECT DATABASE(), SCHEMA()",
                "SHOW WARNINGS",
                "SET @a = 5, @b = 'it''s'",
                "SELECT @a, @b, @c",
                "SHOW VARIABLES LIKE 'lower_case_%'",
                "SELECT ROW_COUNT()",
            ),
        )
        assert found[2][0][0].endswith(",NO_AUTO_VALUE_ON_ZERO")
        assert found[4] == [("QueryFlux",)]
        assert found[5] == [(1, "utf8mb4", 1 << 20, 0, 0)]
        assert found[6] == [(None,)]
        assert found[8] == [("sales", "sales")]
        assert found[9] == []
        assert found[11] == [(5, "it's", None)]
        assert found[12] == [("lower_case_file_system", "OFF"), ("lower_case_table_names", "0")]
        assert place.pipeline.texts == []
        session = place.pipeline.conversations[0].session
        assert session.database == "sales"
        assert session.extra["transaction_isolation"] == "READ-COMMITTED"


async def test_query_tags_and_other_keys_reach_the_next_statement() -> None:
    async with house() as place:
        await with_pymysql(
            place,
            rows_of("SET query_tags = 'team:eng,batch'", "SET SESSION agent_id = 'a7'", "SELECT 1"),
        )
        session = place.engine.requests[0].session
        assert session.tags == {"team": "eng", "batch": None}
        assert session.extra["agent_id"] == "a7"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT LAST_INSERT_ID()",
        "SELECT last_insert_id() AS id LIMIT 1",
        "SELECT ROW_COUNT(), LAST_INSERT_ID()",
        "SELECT @@identity",
        "SELECT @@session.last_insert_id",
        "SET @id = LAST_INSERT_ID()",
        "SELECT * FROM t WHERE id = @@identity",
    ],
)
async def test_the_last_insert_id_is_refused_and_no_zero(text: str) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        answer = (await client.query(text))[0]
        assert error_number(answer) == 1235
        assert b"is not known here" in answer
        assert place.pipeline.texts == []
        assert (await client.query("SELECT 1"))[0][0] == 1


@pytest.mark.parametrize(
    "text",
    [
        "SET identity = 3",
        "SET @a = 1, LAST_INSERT_ID = 3",
        "SET @@session.identity = 3",
        "SET SESSION last_insert_id = DEFAULT",
    ],
)
async def test_the_last_insert_id_is_not_set_either(text: str) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        answer = (await client.query(text))[0]
        assert error_number(answer) == 1235
        assert b"cannot be set here" in answer
        for name in ("identity", "last_insert_id"):
            shown = await client.query(f"SHOW VARIABLES LIKE '{name}'")
            assert text_cells(shown[3]) == [name.encode(), b"0"]
        assert (await client.query("SELECT @a"))[2] == b"\xfb"


async def test_set_is_all_or_nothing() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        assert error_number((await client.query("SET @a = 1, autocommit = 0, sql_mode = 'ANSI'"))[0]) == 1231
        assert (await client.query("SELECT @a, @@autocommit"))[3] == b"\xfb\x011"


async def test_variables_are_bounded_in_length_and_number() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("SET @a = 'aaaaaaaaaaaaaaaa'")
        numbers = set()
        for growing in ("CONCAT(@a, @a)", "CONCAT_WS(',', @a, @a)", "REPLACE(@a, 'a', 'aa')"):
            answers = [(await client.query(f"SET @a = {growing}"))[0] for _ in range(20)]
            numbers.add(error_number(answers[-1]))
        assert numbers == {1301}
        assert error_number((await client.query("SET @a = REPLACE(@a, 'a', @a)"))[0]) == 1301
        texts = ["SET " + ", ".join(f"@v{block}_{index} = 1" for index in range(200)) for block in range(6)]
        answers = [(await client.query(text))[0] for text in texts]
        assert [answer[0] for answer in answers] == [0] * 5 + [0xFF]


async def test_variables_in_statements_for_engines_become_literals() -> None:
    async with house() as place:
        await with_pymysql(
            place, rows_of("SET @low = 3, @name = 'o''x'", "SELECT x FROM t WHERE x > @low AND y = @name")
        )
        assert place.pipeline.texts == ["SELECT x FROM t WHERE x > 3 AND y = 'o''x'"]


async def test_results_of_every_size() -> None:
    table = pa.table({"n": pa.array(range(30_000)), "s": [f"row {index}" for index in range(30_000)]})
    steps = {
        "empty": Step(table=table.slice(0, 0)),
        "large": Step(table=table, rows_per_batch=30_000),
        "wide": Step(table=pa.table({"s": ["x" * 20_000_000, "y"]})),
    }
    async with house(steps=steps) as place:
        empty, large, wide = await with_pymysql(place, rows_of("empty", "large", "wide"))
        assert empty == []
        assert large == list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert [len(row[0]) for row in wide] == [20_000_000, 1]
        assert place.pipeline.endings == [(text, EndReason.COMPLETED) for text in ("empty", "large", "wide")]


@pytest.mark.parametrize("capabilities", [DEFAULT, DEFAULT & ~ClientCapability.DEPRECATE_EOF])
async def test_where_eof_packets_stand(capabilities: int) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in(capabilities=capabilities)
        await client.command(b"\x03SELECT 1")
        assert (await client.receive())[:4] == b"\x03def"
        if capabilities & ClientCapability.DEPRECATE_EOF:
            assert await client.receive() == b"\x011"
            assert await client.receive() == b"\xfe\0\0\x02\0\0\0"
        else:
            assert await client.receive() == b"\xfe\0\0\x02\0"
            assert await client.receive() == b"\x011"
            assert await client.receive() == b"\xfe\0\0\x02\0"


async def test_affected_rows() -> None:
    steps = {
        "UPDATE t SET a = 1": Step(done=Done("UPDATE", 3)),
        "CREATE TABLE t": Step(done=Done("CREATE TABLE")),
    }
    async with house(steps=steps) as place, RawClient(place.port) as client:
        await client.log_in()
        assert await client.query("UPDATE t SET a = 1") == [b"\0\3\0\x02\0\0\0"]
        assert (await client.query("SELECT ROW_COUNT()"))[2] == b"\x013"
        assert await client.query("CREATE TABLE t") == [b"\0\0\0\x02\0\0\0"]


async def test_a_result_without_columns_is_ok() -> None:
    steps = {"x": Step(table=pa.table({}))}
    async with house(steps=steps) as place, RawClient(place.port) as client:
        await client.log_in()
        assert await client.query("x") == [b"\0\0\0\x02\0\0\0"]


async def test_an_error_is_told_and_shown_by_show_warnings() -> None:
    error = EngineError("no such table: t", kind=EngineErrorKind.TABLE_NOT_FOUND, hint="check its name")
    async with house(steps={"bad": Step(error=error)}) as place, RawClient(place.port) as client:
        await client.log_in()
        answer = (await client.query("bad"))[0]
        assert error_number(answer) == 1146
        assert answer[3:] == b"#42S02no such table: t (check its name)"
        shown = await client.query("SHOW WARNINGS")
        assert text_cells(shown[4]) == [b"Error", b"1146", b"no such table: t (check its name)"]
        assert (await client.query("SELECT @@warning_count"))[2] == b"\x011"
        assert len(await client.query("SHOW WARNINGS")) == 5


async def test_an_error_midway_ends_the_rows() -> None:
    table = pa.table({"n": list(range(10))})
    async with (
        house(steps={"q": Step(table=table, rows_per_batch=4, fail_after=1)}) as place,
        RawClient(place.port) as client,
    ):
        await client.log_in()
        packets = await client.query("q")
        assert packets[2:-1] == [b"\x010", b"\x011", b"\x012", b"\x013"]
        assert error_number(packets[-1]) == 1105
        assert (await client.command(b"\x0e"))[0] == 0


async def test_a_body_that_is_not_utf8_and_one_that_is_empty() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        answer = (await client.query(b"SELECT '\xff'"))[0]
        assert error_number(answer) == 1300
        assert b"0xFF at offset 8" in answer
        assert error_number((await client.query(""))[0]) == 1065
        assert error_number((await client.query(" -- nothing\n;"))[0]) == 1065
        assert (await client.query("SELECT 1"))[0] == b"\x01"
        assert place.pipeline.texts == ["SELECT 1"]


async def test_a_statement_over_the_limit_is_refused_and_the_connection_goes_on() -> None:
    async with house(max_statement_bytes=1000) as place, RawClient(place.port) as client:
        await client.log_in()
        assert (await client.query("SELECT '" + "x" * 991 + "'"))[0] == b"\x01"
        assert error_number((await client.query("SELECT '" + "x" * 992 + "'"))[0]) == 1153
        assert (await client.command(b"\x0e"))[0] == 0


async def test_several_statements_for_a_client_that_asked_for_them() -> None:
    steps = {"bad": Step(error=EngineError("no", kind=EngineErrorKind.SYNTAX))}
    async with house(steps=steps) as place, RawClient(place.port) as client:
        await client.log_in(capabilities=SEVERAL)
        await client.command(b"\x03SET @a = 1; SELECT @a; SELECT 2;")
        await client.receive()
        await client.receive()
        assert await client.receive() == b"\x011"
        assert int.from_bytes((await client.receive())[3:5], "little") == AUTOCOMMIT | MORE
        assert await client.receive() == b"\x01"
        await client.receive()
        assert await client.receive() == b"\x011"
        assert int.from_bytes((await client.receive())[3:5], "little") == AUTOCOMMIT
        assert (await client.command(b"\x03SELECT 1; bad; SELECT 3"))[0] == 1
        packets = [await client.receive() for _ in range(4)]
        assert error_number(packets[-1]) == 1064
        assert (await client.command(b"\x0e"))[0] == 0
        assert place.pipeline.texts == ["SELECT 2", "SELECT 1", "bad"]


async def test_several_statements_for_one_that_did_not() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        assert error_number((await client.query("SELECT 1; DROP TABLE t"))[0]) == 1064
        assert place.pipeline.texts == []
        assert (await client.query("SELECT ';';"))[0] == b"\x01"
        assert (await client.command(b"\x1b\0\0"))[0] == 0xFE
        assert (await client.query("SELECT 1; SELECT 2"))[0] == b"\x01"


async def test_commands_that_are_no_statements() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        assert (await client.command(b"\x0e"))[0] == 0
        assert (await client.command(b"\x02sales"))[0] == 0
        assert (await client.query("SELECT DATABASE()"))[2] == b"\x05sales"
        assert (await client.command(b"\x09")).startswith(b"Uptime: ")
        assert (await client.command(b"\x04t\0"))[0] == 0xFE
        for command in (b"\x05db", b"\x0d", b"\x1e", b"\xff", b"\x1c\0\0\0\0\0\0\0\0"):
            assert error_number(await client.command(command)) == 1047
        for command in (b"", b"\x1b", b"\x17\1"):
            assert error_number(await client.command(command)) == 1835
        assert (await client.command(b"\x0e"))[0] == 0
        client.sequence = 0
        client.send(b"\x01")
        assert await client.at_end()


async def test_a_reset_forgets_what_was_set() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in(database="sales")  # type: ignore[arg-type]
        await client.query("SET @a = 1, autocommit = 0")
        assert (await client.command(b"\x1f"))[0] == 0
        found = await client.query("SELECT @a, @@autocommit, DATABASE()")
        assert text_cells(found[4]) == [None, b"1", b"sales"]
        assert [talk.closed for talk in place.pipeline.conversations] == [True, False]


async def test_packets_out_of_order_end_the_connection() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        client.send(b"\x03SELECT 1", 5)
        client.sequence = 0
        assert error_number(await client.receive()) == 1156
        assert await client.at_end()


async def test_session_tracking_says_which_database_it_is() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in(capabilities=DEFAULT | ClientCapability.SESSION_TRACK)
        answer = (await client.query("USE sales"))[0]
        assert answer == b"\0\0\0\x02\x40\0\0\0\x08\x01\x06\x05sales"


# Transactions.


def flags(packet: bytes) -> int:
    return int.from_bytes(packet[3:5], "little")


async def test_a_transaction_shows_in_the_flags() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        assert flags((await client.query("START TRANSACTION"))[0]) == AUTOCOMMIT | IN_TRANS
        assert flags((await client.query("SELECT 1"))[-1]) == AUTOCOMMIT | IN_TRANS
        assert flags((await client.query("COMMIT"))[0]) == AUTOCOMMIT
        assert flags((await client.query("COMMIT"))[0]) == AUTOCOMMIT
        assert flags((await client.query("ROLLBACK"))[0]) == AUTOCOMMIT
        assert place.pipeline.texts == ["START TRANSACTION", "SELECT 1", "COMMIT"]


async def test_begin_ends_the_transaction_that_is_open() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("BEGIN")
        await client.query("BEGIN")
        assert place.pipeline.texts == ["BEGIN", "COMMIT", "BEGIN"]


async def test_without_autocommit_the_first_write_begins_a_transaction() -> None:
    steps = {"INSERT INTO t VALUES (1)": Step(done=Done("INSERT", 1))}
    async with house(steps=steps) as place, RawClient(place.port) as client:
        await client.log_in()
        assert flags((await client.query("SET autocommit = 0"))[0]) == 0
        assert flags((await client.query("SELECT 1"))[-1]) == 0
        assert flags((await client.query("INSERT INTO t VALUES (1)"))[0]) == IN_TRANS
        assert flags((await client.query("SET autocommit = 1"))[0]) == AUTOCOMMIT
        assert place.pipeline.texts == ["SELECT 1", "BEGIN", "INSERT INTO t VALUES (1)", "COMMIT"]


@pytest.mark.parametrize("read", ["SELECT 1 FROM t FOR UPDATE", "SELECT 2"])
async def test_reads_that_need_one_begin_a_transaction_too(read: str) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("SET autocommit = 0")
        if read == "SELECT 2":
            await client.query("SET transaction_isolation = 'SERIALIZABLE'")
        await client.query(read)
        assert place.pipeline.texts == ["BEGIN", read]


async def test_without_autocommit_on_an_engine_without_transactions() -> None:
    async with house() as place, RawClient(place.port) as client:
        place.engine.capabilities = frozenset(Capability) - {Capability.TRANSACTIONS}
        await client.log_in()
        await client.query("SET autocommit = 0")
        await client.query("INSERT INTO t VALUES (1)")
        assert place.pipeline.texts == ["INSERT INTO t VALUES (1)"]


async def test_a_client_that_said_it_only_reads() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("SET SESSION TRANSACTION READ ONLY")
        assert error_number((await client.query("DELETE FROM t"))[0]) == 1792
        assert place.pipeline.texts == []


async def test_a_database_that_is_not_there() -> None:
    def script(request: EngineRequest) -> Step:
        if request.sql == "USE `nowhere`":
            unknown = EngineError("Unknown database", kind=EngineErrorKind.SCHEMA_NOT_FOUND)
            return Step(error=unknown)
        return Step(error=EngineError("no list")) if request.sql == "USE `mute`" else Step()

    async with house(script=script) as place, RawClient(place.port) as client:
        await client.log_in()
        for command in (b"\x02nowhere", b"\x03USE nowhere"):
            assert error_number(await client.command(command)) == 1049
        assert (await client.query("SELECT DATABASE()"))[2:] != []
        assert (await client.command(b"\x02mute"))[0] == 0
        assert (await client.query("SELECT DATABASE()"))[-2] == b"\4mute"
        assert place.pipeline.statements == []


# Statements that fail in a transaction.

BAD = EngineError("no such table", kind=EngineErrorKind.TABLE_NOT_FOUND)
FAILING = {"SELECT bad": Step(error=BAD), "INSERT INTO bad VALUES (1)": Step(error=BAD)}


@pytest.mark.parametrize("failing", FAILING)
async def test_a_failure_after_reads_leaves_the_transaction_usable(failing: str) -> None:
    async with house(steps=FAILING) as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("START TRANSACTION")
        await client.query("SELECT 1")
        assert error_number((await client.query(failing))[0]) == 1146
        assert flags((await client.query("SELECT 2"))[-1]) & IN_TRANS
        await client.query("COMMIT")
        began = ["START TRANSACTION", "SELECT 1", failing, "ROLLBACK"]
        assert place.pipeline.texts == [*began, "START TRANSACTION", "SELECT 2", "COMMIT"]


async def test_a_failed_first_write_without_autocommit_is_no_more_than_that() -> None:
    failing = "INSERT INTO bad VALUES (1)"
    async with house(steps=FAILING) as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("SET autocommit = 0")
        assert error_number((await client.query(failing))[0]) == 1146
        assert flags((await client.query("SELECT 2"))[-1]) == 0
        await client.query("INSERT INTO t VALUES (1)")
        begun = ["BEGIN", failing, "ROLLBACK", "SELECT 2", "BEGIN"]
        assert place.pipeline.texts == [*begun, "INSERT INTO t VALUES (1)"]


async def test_a_failure_after_a_write_says_that_it_is_lost() -> None:
    async with house(steps=FAILING) as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("BEGIN")
        await client.query("DELETE FROM t")
        answer = (await client.query("SELECT bad"))[0]
        assert error_number(answer) == 1105
        assert answer[3:9] == b"#40000"
        assert b"no such table" in answer
        assert b"rolled back" in answer
        assert flags((await client.query("SELECT 2"))[-1]) == AUTOCOMMIT


async def test_after_a_savepoint_the_client_goes_back_itself() -> None:
    async with house(steps=FAILING) as place, RawClient(place.port) as client:
        await client.log_in()
        for text in ("BEGIN", "DELETE FROM t", "SAVEPOINT s"):
            await client.query(text)
        assert error_number((await client.query("SELECT bad"))[0]) == 1146
        assert "ROLLBACK" not in place.pipeline.texts


@pytest.mark.parametrize(("work", "number"), [("DELETE FROM t", 1105), ("SELECT 1", 0)])
async def test_a_transaction_lost_between_statements(work: str, number: int) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        await client.query("BEGIN")
        await client.query(work)
        place.engine.connections[0]._status = TransactionStatus.FAILED
        answer = (await client.query("SELECT 2"))[0]
        assert (error_number(answer) if answer[0] == 0xFF else 0) == number
        assert place.pipeline.texts[2] == "ROLLBACK"


# Endings.


def waiting(gate: asyncio.Event) -> Callable[[EngineRequest], Step]:
    """A script in which ``slow`` waits for ``gate``, and everything else answers."""
    return lambda request: Step(gate=gate) if request.sql.startswith("slow") else Step()


async def test_kill_query_cancels_that_query_and_nothing_else() -> None:
    gate = asyncio.Event()
    async with (
        house(script=waiting(gate)) as place,
        RawClient(place.port) as victim,
        RawClient(place.port) as other,
        RawClient(place.port) as killer,
    ):
        for client in (victim, other, killer):
            await client.log_in("bob")
        tasks = [asyncio.create_task(client.query("slow")) for client in (victim, other)]
        await until(lambda: place.engine.running == 2)
        assert (await killer.query(f"KILL QUERY {victim.number}"))[0][0] == 0
        assert error_number((await tasks[0])[0]) == 1317
        assert not tasks[1].done()
        gate.set()
        assert (await tasks[1])[0] == b"\x01"
        assert (await victim.query("SELECT 1"))[0] == b"\x01"
        assert ("slow", EndReason.CANCELLED) in place.pipeline.endings


async def test_kill_closes_the_connection() -> None:
    gate = asyncio.Event()
    async with (
        house(script=waiting(gate)) as place,
        RawClient(place.port) as busy,
        RawClient(place.port) as idle,
        RawClient(place.port) as killer,
    ):
        for client in (busy, idle, killer):
            await client.log_in("bob")
        task = asyncio.create_task(busy.query("slow"))
        await until(lambda: place.engine.running == 1)
        assert (await killer.query(f"KILL {busy.number}"))[0][0] == 0
        assert (await killer.command(b"\x0c" + idle.number.to_bytes(4, "little")))[0] == 0
        assert error_number((await task)[0]) == 1317
        assert await busy.at_end()
        assert await idle.at_end()


async def test_whom_one_may_kill() -> None:
    async with house() as place, RawClient(place.port) as bob, RawClient(place.port) as eve:
        await bob.log_in("bob")
        await eve.log_in("eve")
        assert error_number((await eve.query(f"KILL QUERY {bob.number}"))[0]) == 1095
        assert error_number((await eve.query("KILL QUERY 7"))[0]) == 1094
        assert error_number((await eve.query("KILL 'x'"))[0]) == 1094
        assert (await bob.query(f"KILL QUERY {bob.number}"))[0][0] == 0
        assert (await bob.command(b"\x0e"))[0] == 0


async def test_the_process_list_shows_the_users_own() -> None:
    gate = asyncio.Event()
    async with (
        house(script=waiting(gate)) as place,
        RawClient(place.port) as busy,
        RawClient(place.port) as watcher,
        RawClient(place.port) as stranger,
    ):
        await busy.log_in("bob")
        await watcher.log_in("bob")
        await stranger.log_in("eve")
        task = asyncio.create_task(busy.query("slow business"))
        await until(lambda: place.engine.running == 1)
        rows = [text_cells(packet) for packet in (await watcher.query("SHOW FULL PROCESSLIST"))[9:-1]]
        assert [(row[0], row[7]) for row in rows] == [
            (b"%d" % busy.number, b"slow business"),
            (b"%d" % watcher.number, b"SHOW FULL PROCESSLIST"),
        ]
        gate.set()
        await task


async def test_a_client_that_vanishes_cancels_its_query() -> None:
    async with house(script=waiting(asyncio.Event())) as place:
        async with RawClient(place.port) as client:
            await client.log_in()
            client.sequence = 0
            client.send(b"\x03slow")
            await until(lambda: place.engine.running == 1)
        await until(lambda: place.pipeline.open == 0)
        assert place.pipeline.endings == [("slow", EndReason.CLIENT_GONE)]
        assert place.engine.cancels == 1


async def test_a_client_that_vanishes_midway() -> None:
    table = pa.table({"s": ["x" * 1000] * 100_000})
    async with house(steps={"q": Step(table=table, rows_per_batch=1000)}) as place:
        async with RawClient(place.port) as client:
            await client.log_in()
            await client.command(b"\x03q")
        await until(lambda: place.pipeline.open == 0)
        assert place.pipeline.endings == [("q", EndReason.CLIENT_GONE)]


async def test_commands_sent_ahead_cancel_nothing() -> None:
    gate = asyncio.Event()
    async with house(script=waiting(gate)) as place, RawClient(place.port) as client:
        await client.log_in()
        client.send_bytes(b"\x05\0\0\0\x03slow" + b"\x01\0\0\0\x0e" + b"\x01\0\0\0\x0e")
        await until(lambda: place.engine.running == 1)
        gate.set()
        client.sequence = 1
        packets = [await client.receive() for _ in range(4)]
        assert packets[2] == b"\x011"
        for _ in range(2):
            client.sequence = 1
            assert (await client.receive())[0] == 0


async def test_max_execution_time() -> None:
    async with house(script=lambda request: Step(gate=asyncio.Event())) as place:
        async with RawClient(place.port) as client:
            await client.log_in()
            await client.query("SET max_execution_time = 1")
            assert error_number((await client.query("SELECT slow"))[0]) == 3024
        assert place.pipeline.endings == [("SELECT slow", EndReason.TIMED_OUT)]


async def test_sql_select_limit() -> None:
    table = pa.table({"n": list(range(10))})
    async with house(steps={"SELECT n": Step(table=table, rows_per_batch=4)}) as place:
        found = await with_pymysql(
            place, rows_of("SET sql_select_limit = 6", "SELECT n", "SELECT FOUND_ROWS()")
        )
        assert found[1] == [(index,) for index in range(6)]
        assert found[2] == [(6,)]
        assert place.pipeline.endings == [("SELECT n", EndReason.COMPLETED)]
