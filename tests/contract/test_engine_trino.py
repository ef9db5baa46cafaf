"""The Trino engine passes the engine suite, on a real coordinator."""

import json
import urllib.request
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import Engine
from queryflux.engines.trino import build
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.results.answer import Frames
from queryflux.runtime.clock import SystemClock
from queryflux.wire.trino.native import TrinoPage, TrinoStatement
from tests.contract.engine_suite import Client, EngineSuite, EngineUnderTest, ErrorSample, TypeSample
from tests.kit.places import NOBODY
from tests.kit.trino import TrinoServer, shared_server

Kind = EngineErrorKind

MARK = "/* queryflux suite */"
IDENTIFIER = "12151fd2-7586-11e9-8f9e-2a86e4085a59"
SETUP = (
    "DROP VIEW IF EXISTS memory.suite.sample_view",
    "DROP TABLE IF EXISTS memory.suite.sample",
    "DROP TABLE IF EXISTS memory.default.qf_writes",
    "CREATE SCHEMA IF NOT EXISTS memory.suite",
    "CREATE TABLE memory.suite.sample (id integer NOT NULL, name varchar, amount decimal(12,2))",
    "INSERT INTO memory.suite.sample VALUES (1, 'one', 1.50), (2, 'two', 2.25), (3, NULL, NULL)",
    "CREATE VIEW memory.suite.sample_view AS SELECT * FROM memory.suite.sample",
)


def ask(server: TrinoServer, sql: str) -> list[list[Any]]:
    """Plain rows, by a client of our own."""
    headers = {"X-Trino-User": "suite", "X-Trino-Source": "suite"}
    request = urllib.request.Request(f"{server.url}/v1/statement", sql.encode(), headers)
    rows: list[list[Any]] = []
    while True:
        with urllib.request.urlopen(request, timeout=30) as answer:
            page = json.load(answer)
        assert "error" not in page, page["error"]["message"]
        rows.extend(page.get("data", ()))
        if "nextUri" not in page:
            return rows
        request = urllib.request.Request(page["nextUri"], headers=headers)


def sample(expression: str, arrow: pa.DataType, *values: Any) -> TypeSample:
    return TypeSample(f"SELECT c FROM (VALUES {expression}) t(c)", arrow, list(values))


TYPES = [
    sample("true, false, NULL", pa.bool_(), True, False, None),
    sample("TINYINT '-128', TINYINT '127'", pa.int8(), -128, 127),
    sample("SMALLINT '-32768', NULL", pa.int16(), -32768, None),
    sample("-2147483648, 2147483647", pa.int32(), -(2**31), 2**31 - 1),
    sample("BIGINT '-9223372036854775808', BIGINT '9223372036854775807'", pa.int64(), -(2**63), 2**63 - 1),
    sample("REAL '1.5', REAL '-Infinity', NULL", pa.float32(), 1.5, float("-inf"), None),
    sample("1e0, infinity(), -infinity(), -0e0", pa.float64(), 1.0, float("inf"), float("-inf"), -0.0),
    sample("DECIMAL '1.50', NULL", pa.decimal128(3, 2), Decimal("1.50"), None),
    sample("DECIMAL '-1.2345678901234567890123456789012345678'", pa.decimal128(38, 37),
           Decimal("-1.2345678901234567890123456789012345678")),
    sample("'', NULL, U&'a\\00e9\\4e16\\+01f600'", pa.string(), "", None, "aé世😀"),
    sample("CAST('ab' AS char(4))", pa.string(), "ab  "),
    sample("'a' || chr(0) || 'b'", pa.string(), "a\0b"),
    sample("X'00ff', NULL", pa.binary(), b"\x00\xff", None),
    sample("JSON '{\"a\": [1]}', NULL", pa.json_(), '{"a":[1]}', None),
    sample("DATE '0001-01-01', DATE '9999-12-31', NULL", pa.date32(), date.min, date.max, None),
    sample("TIME '23:59:59'", pa.time64("us"), time(23, 59, 59)),
    sample("TIME '23:59:59.123456'", pa.time64("us"), time(23, 59, 59, 123456)),
    sample("TIME '10:00:00.123 +05:30', NULL", pa.string(), "10:00:00.123+05:30", None),
    sample("TIMESTAMP '0001-01-01 00:00:00', TIMESTAMP '9999-12-31 23:59:59'", pa.timestamp("us"),
           datetime.min, datetime(9999, 12, 31, 23, 59, 59)),
    sample("TIMESTAMP '2024-02-29 12:00:00.000001', NULL", pa.timestamp("us"),
           datetime(2024, 2, 29, 12, 0, 0, 1), None),
    sample("TIMESTAMP '2024-06-01 12:00:00.5 Europe/Berlin', TIMESTAMP '2024-06-01 12:00:00.5 +05:30', NULL",
           pa.timestamp("us", "UTC"), datetime(2024, 6, 1, 10, 0, 0, 500000, UTC),
           datetime(2024, 6, 1, 6, 30, 0, 500000, UTC), None),
    sample("INTERVAL '-2 03:04:05.678' DAY TO SECOND, INTERVAL '1' SECOND, NULL", pa.duration("ms"),
           -timedelta(days=2, hours=3, minutes=4, seconds=5, milliseconds=678), timedelta(seconds=1), None),
    sample("INTERVAL '1-2' YEAR TO MONTH, INTERVAL '-1' MONTH, NULL", pa.month_day_nano_interval(),
           pa.MonthDayNano([14, 0, 0]), pa.MonthDayNano([-1, 0, 0]), None),
    sample(f"UUID '{IDENTIFIER}', NULL", pa.uuid(), UUID(IDENTIFIER), None),
    sample("IPADDRESS '10.0.0.1'", pa.string(), "10.0.0.1"),
    sample("NULL", pa.null(), None),
    sample("ARRAY[1, NULL, 3], NULL, ARRAY[]", pa.list_(pa.int32()), [1, None, 3], None, []),
    sample("ARRAY[ARRAY[DECIMAL '1.5'], NULL]", pa.list_(pa.list_(pa.decimal128(2, 1))),
           [[Decimal("1.5")], None]),
    sample("MAP(ARRAY[1, 2], ARRAY['a', NULL]), NULL", pa.map_(pa.int32(), pa.string()),
           [(1, "a"), (2, None)], None),
    sample("MAP(ARRAY[true], ARRAY[ARRAY[1e0]])", pa.map_(pa.bool_(), pa.list_(pa.float64())),
           [(True, [1.0])]),
    TypeSample("SELECT CAST(ROW(1, 'x') AS ROW(a integer, b varchar)) AS c UNION ALL SELECT NULL ORDER BY 1",
           pa.struct([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}, None]),
    TypeSample("SELECT ROW(ROW(1, DATE '2024-01-01'), ARRAY[X'00']) AS c",
           pa.struct([
               ("field0", pa.struct([("field0", pa.int32()), ("field1", pa.date32())])),
               ("field1", pa.list_(pa.binary())),
           ]), [{"field0": {"field0": 1, "field1": date(2024, 1, 1)}, "field1": [b"\x00"]}]),
]  # fmt: skip

ERRORS = [
    ErrorSample("SELEC 1", Kind.SYNTAX, "42601", 0),
    ErrorSample("SELECT 'é',\n nope FROM memory.suite.sample", Kind.COLUMN_NOT_FOUND, "42703", 13),
    ErrorSample("SELECT * FROM memory.suite.nope", Kind.TABLE_NOT_FOUND, "42P01", 14),
    ErrorSample("SELECT * FROM memory.nope.t", Kind.SCHEMA_NOT_FOUND),
    ErrorSample("SELECT * FROM nope.nope.t", Kind.SCHEMA_NOT_FOUND),
    ErrorSample("SELECT nofn(1)", Kind.FUNCTION_NOT_FOUND, "42883", 7),
    ErrorSample("CREATE TABLE memory.suite.sample (a integer)", Kind.ALREADY_EXISTS),
    ErrorSample("SELECT CAST('abc' AS integer)", Kind.INVALID_VALUE),
    ErrorSample("SELECT 1 / 0", Kind.DIVISION_BY_ZERO, "22012"),
    ErrorSample("SELECT BIGINT '9223372036854775807' + 1", Kind.OUT_OF_RANGE, "22003"),
    ErrorSample("SELECT 1 = 'x'", Kind.TYPE_MISMATCH),
    ErrorSample("DELETE FROM memory.suite.sample", Kind.NOT_SUPPORTED, "0A000"),
    ErrorSample("SELECT TIMESTAMP '9999-01-01 00:00:00.123456789'", Kind.OUT_OF_RANGE, "22008"),
]


@pytest.fixture(scope="module")
def server() -> TrinoServer:
    server = shared_server()
    for sql in SETUP:
        ask(server, sql)
    return server


class TestTrino(EngineSuite):
    @pytest.fixture
    def subject(self, server: TrinoServer) -> EngineUnderTest:
        def make(port: int = server.port) -> Engine:
            config = ClusterConfig(engine="trino", endpoint=f"http://{server.host}:{port}")
            return build("trino", config, SystemClock())

        async def running(engine: Engine) -> int:
            sql = (
                "SELECT count(*) FROM system.runtime.queries WHERE source = 'queryflux' AND"
                " state NOT IN ('FINISHED', 'FAILED') AND query LIKE '%queryflux suite%'"
                " AND query NOT LIKE '%runtime%'"
            )
            return int(ask(server, sql)[0][0])

        def wide(rows: int) -> str:
            thousands = f"UNNEST(sequence(1, {rows // 1000})) a(n), UNNEST(sequence(1, 1000)) b(n)"
            return f"SELECT {MARK} a.n * 1000 + b.n AS n, rpad('', 190, 'x') AS filler FROM {thousands}"

        numbers = "tpch.sf100.lineitem"
        return EngineUnderTest(
            build=make,
            unreachable=lambda: make(NOBODY),
            series=lambda n: f"SELECT n FROM UNNEST(sequence(1, {n})) t(n) ORDER BY n",
            wide=wide,
            slow=f"SELECT {MARK} count(*) FROM {numbers} a, {numbers} b WHERE a.l_comment < b.l_comment",
            running=running,
            table=("memory", "suite", "sample"),
            view=("memory", "suite", "sample_view"),
            types=TYPES,
            errors=ERRORS,
            session=Session(ClientProtocol.POSTGRES_WIRE, catalog="memory", database="default"),
            column_types=("integer", "varchar", "decimal(12,2)"),
        )

    # The memory connector takes no DELETE, and writes in autocommit only.

    async def test_writes(self, engine: Engine, client: Client) -> None:
        await client.done("DROP TABLE IF EXISTS qf_writes")
        assert (await client.done("CREATE TABLE qf_writes (id integer)")).tag == "CREATE TABLE"
        done = await client.done("INSERT INTO qf_writes VALUES 1, 2")
        assert (done.tag, done.rows) == ("INSERT", 2)
        done = await client.done("CREATE TABLE qf_writes_too AS SELECT * FROM qf_writes")
        assert (done.tag, done.rows) == ("CREATE TABLE", 2)
        for table in ("qf_writes", "qf_writes_too"):
            assert (await client.table(f"SELECT id FROM {table}")).column(0).to_pylist() == [1, 2]
            assert (await client.done(f"DROP TABLE {table}")).tag == "DROP TABLE"

    async def test_transactions(self, engine: Engine, client: Client, subject: EngineUnderTest) -> None:
        for begin, end in (("BEGIN", "COMMIT"), ("START TRANSACTION READ ONLY", "ROLLBACK")):
            assert (await client.done(begin)).tag == "BEGIN"
            assert client.transaction == "open"
            mine = "SELECT count(*) FROM system.runtime.transactions WHERE NOT auto_commit_context"
            assert (await client.table(mine)).column(0).to_pylist() == [1]
            assert (await client.done(end)).tag == end
            assert client.transaction == "idle"
            assert (await client.table(mine)).column(0).to_pylist() == [0]
        await client.done("BEGIN")
        with pytest.raises(EngineError, match="autocommit"):
            await client.done("INSERT INTO memory.suite.sample VALUES (4, 'four', 4)")
        assert client.transaction == "failed"
        assert (await client.done("COMMIT")).tag == "ROLLBACK"

    async def test_a_client_that_leaves_is_rolled_back(
        self, engine: Engine, client: Client, subject: EngineUnderTest
    ) -> None:
        leaver = Client(engine, subject)
        await leaver.done("BEGIN")
        await leaver.table("SELECT 1")
        await leaver.connection.close()
        left = "SELECT count(*) FROM system.runtime.transactions WHERE NOT auto_commit_context"
        assert (await client.table(left)).column(0).to_pylist() == [0]

    async def test_session_state_of_other_doors(self, client: Client) -> None:
        done = await client.done("SET SESSION query_max_run_time = '17m'")
        assert done.headers == {"x-trino-set-session": "query_max_run_time=17m"}
        shown = await client.table("SHOW SESSION LIKE 'query_max_run_time'")
        assert shown.column("Value").to_pylist() == ["17m"]
        await client.done("USE tpch.tiny")
        assert (await client.table("SELECT count(*) FROM nation")).column(0).to_pylist() == [25]
        await client.done("PREPARE p FROM SELECT ? + 1")
        assert (await client.table("EXECUTE p USING 41")).column(0).to_pylist() == [42]
        await client.done("RESET SESSION query_max_run_time")
        await client.done("DEALLOCATE PREPARE p")
        with pytest.raises(EngineError):
            await client.table("EXECUTE p USING 41")

    async def test_describe_parameters(self, client: Client) -> None:
        sql = "SELECT id + ? AS x, name FROM memory.suite.sample WHERE name LIKE ? LIMIT ?"
        shape = await client.connection.describe(client.request(sql))
        assert shape.parameter_types == ("integer", "text", "bigint")
        assert shape.schema is not None
        assert shape.schema.types == [pa.int32(), pa.string()]
        for sql in ("INSERT INTO memory.suite.sample VALUES (?, 'x', 1)", "DROP TABLE memory.suite.sample"):
            assert (await client.connection.describe(client.request(sql))).schema is None
        with pytest.raises(EngineError) as caught:
            await client.connection.describe(client.request("SELECT nope FROM memory.suite.sample"))
        assert (caught.value.kind, caught.value.position) == (Kind.COLUMN_NOT_FOUND, 7)

    async def test_describe_numbered_parameters(self, client: Client) -> None:
        sql = (
            "SELECT name AS x, '$9', \"id\" + $1 AS y FROM memory.suite.sample"
            " WHERE id = $1 AND name LIKE $3 LIMIT $2 -- $8"
        )
        shape = await client.connection.describe(client.request(sql))
        assert shape.parameter_types == ("integer", "bigint", "text")
        assert shape.schema is not None
        assert shape.schema.types == [pa.string(), pa.string(), pa.int32()]
        sql = "SELECT CAST($1 AS DATE), CAST($2 AS DECIMAL(38, 10)), CAST($3 AS TIMESTAMP(6) WITH TIME ZONE)"
        shape = await client.connection.describe(client.request(sql))
        assert shape.parameter_types == ("date", "numeric(38,10)", "timestamp with time zone")
        with pytest.raises(EngineError) as caught:
            await client.connection.describe(client.request("SELECT $12, nope FROM memory.suite.sample"))
        assert (caught.value.kind, caught.value.position) == (Kind.COLUMN_NOT_FOUND, 12)

    async def test_pages_are_relayed(self, engine: Engine, subject: EngineUnderTest) -> None:
        headers = (("x-trino-catalog", "tpch"), ("x-trino-schema", "tiny"), ("x-trino-source", "suite"))
        client = Client(engine, subject)

        async def pages(sql: str) -> tuple[list[Any], Frames]:
            request = msgspec.structs.replace(client.request(sql), native=TrinoStatement(headers))
            frames = await client.connection.execute(request)
            assert isinstance(frames, Frames)
            found = []
            while (page := await frames.next()) is not None:
                assert isinstance(page, TrinoPage)
                found.append((json.loads(page.body), page))
            await frames.close()
            return found, frames

        found, frames = await pages("SELECT n_name FROM nation ORDER BY 1 LIMIT 2")
        rows = [row for document, _ in found for row in document.get("data", ())]
        assert rows == [["ALGERIA"], ["ARGENTINA"]]
        assert all(document.get("nextUri") == page.next_uri for document, page in found)
        assert found[-1][1].next_uri is None
        assert frames.stats.backend_query_id == found[0][0]["id"]
        assert frames.failure is None
        found, frames = await pages("SELECT * FROM nope")
        assert found[-1][0]["error"]["errorName"] == "TABLE_NOT_FOUND"
        assert isinstance(frames.failure, EngineError)
        found, _ = await pages("SET SESSION query_max_run_time = '17m'")
        assert ("x-trino-set-session", "query_max_run_time=17m") in [h for _, p in found for h in p.headers]
        await client.connection.close()
