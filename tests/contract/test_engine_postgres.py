"""The PostgreSQL engine in the engines' contract suite (Arrow by ADBC)."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from queryflux.engines.port import Engine
from queryflux.engines.postgres import build
from queryflux.model.errors import EngineErrorKind
from queryflux.runtime.clock import SystemClock
from tests.contract.engine_suite import EngineSuite, EngineUnderTest, ErrorSample, TypeSample
from tests.kit.places import NOBODY
from tests.kit.postgres import DATABASE, PostgresServer, postgres_server

__all__ = ["postgres_server"]

UTC = dt.UTC
UUID_TEXT = "0f9a3c1e-5b7d-4e2f-8a6b-1c2d3e4f5a6b"


def sample(expression: str, arrow: pa.DataType, *values: object) -> TypeSample:
    return TypeSample(f"SELECT {expression} AS v", arrow, list(values))


LOOSE = pa.decimal128(38, 18)
MICROS = pa.timestamp("us")
TYPES = [
    sample("true", pa.bool_(), True),
    sample("1::int2", pa.int16(), 1),
    sample("'-2147483648'::int4", pa.int32(), -2147483648),
    sample("9223372036854775807::int8", pa.int64(), 9223372036854775807),
    sample("'NaN'::float8 = 'NaN'::float8", pa.bool_(), True),
    sample("1.5::float4", pa.float32(), 1.5),
    sample("'Infinity'::float8", pa.float64(), float("inf")),
    sample("1.50::numeric(10,2)", pa.decimal128(10, 2), Decimal("1.50")),
    sample(
        "'0.1234567890123456789012345678901234567'::numeric(38,37)",
        pa.decimal128(38, 37),
        Decimal("0.1234567890123456789012345678901234567"),
    ),
    sample("1200::numeric(5,-2)", pa.decimal128(7, 0), Decimal(1200)),
    sample("0.00012::numeric(3,5)", pa.decimal128(5, 5), Decimal("0.00012")),
    sample("(SELECT sum(x) FROM (VALUES (1.10), (2.20)) AS t(x))", LOOSE, Decimal("3.300000000000000000")),
    sample("1::numeric / 3", LOOSE, Decimal("0.333333333333333333")),
    sample("2::numeric / 3", LOOSE, Decimal("0.666666666666666667")),
    sample("NULL::numeric", LOOSE, None),
    sample("'12.34'::money", pa.decimal128(19, 2), Decimal("12.34")),
    sample("4000000000::oid", pa.int64(), 4000000000),
    sample("'é漢🎉'::text", pa.string(), "é漢🎉"),
    sample("''::text", pa.string(), ""),
    sample("NULL::text", pa.string(), None),
    sample("NULL", pa.string(), None),
    sample("'ab'::char(4)", pa.string(), "ab  "),
    sample("'ab'::varchar(4)", pa.string(), "ab"),
    sample("'\\x00ff'::bytea", pa.binary(), b"\x00\xff"),
    sample("date '0001-01-01'", pa.date32(), dt.date(1, 1, 1)),
    sample("date '9999-12-31'", pa.date32(), dt.date(9999, 12, 31)),
    sample("date 'infinity'", pa.date32(), dt.date(9999, 12, 31)),
    sample("date '-infinity'", pa.date32(), dt.date(1, 1, 1)),
    sample("time '10:11:12.123456'", pa.time64("us"), dt.time(10, 11, 12, 123456)),
    sample("timetz '10:11:12+02'", pa.string(), "10:11:12+02"),
    sample("timestamp '2024-02-29 12:00'", MICROS, dt.datetime(2024, 2, 29, 12)),
    sample("timestamp 'infinity'", MICROS, dt.datetime.max),
    sample("timestamp '-infinity'", MICROS, dt.datetime.min),
    sample(
        "timestamptz '2024-03-31 02:30+01'",
        pa.timestamp("us", "UTC"),
        dt.datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    ),
    sample(
        "interval '1 mon 2 days 3 sec'",
        pa.month_day_nano_interval(),
        pa.MonthDayNano([1, 2, 3_000_000_000]),
    ),
    sample(f"'{UUID_TEXT}'::uuid", pa.string(), UUID_TEXT),
    sample("NULL::uuid", pa.string(), None),
    sample("""'{"a": 1}'::json""", pa.string(), '{"a": 1}'),
    sample("""'{"a":1}'::jsonb""", pa.string(), '{"a": 1}'),
    sample("'<a/>'::xml", pa.string(), "<a/>"),
    sample("inet '10.0.0.1/8'", pa.string(), "10.0.0.1/8"),
    sample("point(1,2)", pa.string(), "(1,2)"),
    sample("B'101'", pa.string(), "101"),
    sample("int4range(1,3)", pa.string(), "[1,3)"),
    sample("'pg_class'::regclass", pa.string(), "pg_class"),
    sample("row(1,'a')", pa.string(), "(1,a)"),
    sample("'sad'::contract.mood", pa.string(), "sad"),
    sample("pg_sleep(0)", pa.string(), ""),
    sample("array[1,NULL,3]", pa.list_(pa.int32()), [1, None, 3]),
    sample("NULL::int[]", pa.list_(pa.int32()), None),
    sample("'{}'::text[]", pa.list_(pa.string()), []),
    sample("array[1.5,2.5]", pa.list_(LOOSE), [Decimal("1.5"), Decimal("2.5")]),
    sample(f"array['{UUID_TEXT}']::uuid[]", pa.list_(pa.string()), [UUID_TEXT]),
    sample("array['10.0.0.1'::inet]", pa.list_(pa.string()), ["10.0.0.1/32"]),
    TypeSample("SHOW server_encoding", pa.string(), ["UTF8"]),
    TypeSample("VALUES (1), (2)", pa.int32(), [1, 2]),
    TypeSample("SELECT 1 -- to the end", pa.int32(), [1]),
    TypeSample("SELECT 1; /* a; */ ", pa.int32(), [1]),
    TypeSample("TABLE contract.empty", pa.int32(), []),
    TypeSample("WITH a AS (SELECT 2 AS x) SELECT x FROM a ORDER BY x", pa.int32(), [2]),
    TypeSample(
        "SELECT inet '10.0.0.1' + x FROM generate_series(3, 1, -1) x ORDER BY x DESC",
        pa.string(),
        ["10.0.0.4/32", "10.0.0.3/32", "10.0.0.2/32"],
    ),
]

ERRORS = [
    ErrorSample("SELEC 1", EngineErrorKind.SYNTAX, "42601", 0),
    ErrorSample("SELECT * FROM no_such_table", EngineErrorKind.TABLE_NOT_FOUND, "42P01", 14),
    ErrorSample("SELECT nothing FROM contract.things", EngineErrorKind.COLUMN_NOT_FOUND, "42703", 7),
    ErrorSample("SELECT no_such_function(1)", EngineErrorKind.FUNCTION_NOT_FOUND, "42883"),
    ErrorSample("SELECT 1/0", EngineErrorKind.DIVISION_BY_ZERO, "22012"),
    ErrorSample(
        "SELECT 1/(5000-x) FROM generate_series(1,10000) x", EngineErrorKind.DIVISION_BY_ZERO, "22012"
    ),
    ErrorSample("SELECT 'x'::int", EngineErrorKind.INVALID_VALUE, "22P02"),
    ErrorSample("SELECT 3000000000::int4", EngineErrorKind.OUT_OF_RANGE, "22003"),
    ErrorSample("SELECT 'NaN'::numeric", EngineErrorKind.OUT_OF_RANGE, "22003"),
    ErrorSample("INSERT INTO contract.things VALUES (1)", EngineErrorKind.CONSTRAINT, "23505"),
    ErrorSample("CREATE TABLE contract.things (a int)", EngineErrorKind.ALREADY_EXISTS, "42P07"),
]

SETUP = """
DROP SCHEMA IF EXISTS contract CASCADE;
CREATE SCHEMA contract;
CREATE TABLE contract.things (id integer PRIMARY KEY, name text, amount numeric(12,2));
INSERT INTO contract.things VALUES (1,'one',1.50), (2,'two',2.25), (3,NULL,NULL);
CREATE VIEW contract.seen AS SELECT * FROM contract.things;
CREATE TABLE contract.empty (id integer);
CREATE TYPE contract.mood AS ENUM ('sad', 'glad');
"""


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> PostgresServer:
    with postgres_server.admin() as admin:
        admin.execute(SETUP.encode())
    return postgres_server


class TestPostgres(EngineSuite):
    @pytest.fixture
    def subject(self, server: PostgresServer) -> EngineUnderTest:
        nobody = server.config(port=NOBODY)

        async def running(engine: Engine) -> int:
            sql = (
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'"
                " AND (query LIKE '%pg_sleep(600)%' OR query LIKE '%repeat(''x''%')"
                " AND pid <> pg_backend_pid()"
            )
            return int(server.scalar(sql))

        async def break_connections(engine: Engine) -> None:
            sql = (
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE application_name = 'queryflux'"
            )
            assert server.scalar(sql)

        return EngineUnderTest(
            build=lambda: build("pg", server.config(), SystemClock()),
            unreachable=lambda: build("nobody", nobody, SystemClock()),
            series="SELECT n::int8 AS n FROM generate_series(1, {}) n ORDER BY n".format,
            wide="SELECT n::int8 AS n, repeat('x', 190) AS filler FROM generate_series(1, {}) n".format,
            slow="SELECT pg_sleep(600)",
            running=running,
            table=(DATABASE, "contract", "things"),
            view=(DATABASE, "contract", "seen"),
            types=[each for each in TYPES if server.xml or "::xml" not in each.sql],
            errors=ERRORS,
            break_connections=break_connections,
        )
