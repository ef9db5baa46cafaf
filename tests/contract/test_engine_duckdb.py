"""The DuckDB engine passes the engine suite."""

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb import build
from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.port import Engine
from queryflux.model.errors import EngineErrorKind
from queryflux.runtime.clock import SystemClock
from tests.contract.engine_suite import EngineSuite, EngineUnderTest, ErrorSample, TypeSample

Kind = EngineErrorKind

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

TABLE = """
CREATE TABLE sample (id INTEGER NOT NULL, name VARCHAR, amount DECIMAL(12,2));
INSERT INTO sample VALUES (1, 'one', 1.50), (2, 'two', 2.25), (3, NULL, NULL);
CREATE VIEW sample_view AS SELECT * FROM sample;
"""


def sample(expression: str, arrow: pa.DataType, *values: Any) -> TypeSample:
    return TypeSample(f"SELECT {expression} AS c", arrow, list(values))


TYPES = [
    sample("unnest([true, false, NULL])", pa.bool_(), True, False, None),
    sample("unnest([-128, 127, NULL]::TINYINT[])", pa.int8(), -128, 127, None),
    sample("unnest([-32768, 32767]::SMALLINT[])", pa.int16(), -32768, 32767),
    sample("unnest([-2147483648, 2147483647]::INTEGER[])", pa.int32(), -(2**31), 2**31 - 1),
    sample("unnest([-9223372036854775808, 9223372036854775807])", pa.int64(), -(2**63), 2**63 - 1),
    sample("18446744073709551615::UBIGINT", pa.uint64(), 2**64 - 1),
    sample("170141183460469231731687303715::HUGEINT", pa.decimal128(38, 0), Decimal(2**127 // 10**9)),
    sample("1.5::FLOAT", pa.float32(), 1.5),
    sample(
        "unnest(['inf', '-inf', '-0']::DOUBLE[])", pa.float64(), float("inf"), float("-inf"), -0.0
    ),
    sample("'1.2345678901234567890123456789012345678'::DECIMAL(38,37)", pa.decimal128(38, 37),
           Decimal("1.2345678901234567890123456789012345678")),
    sample("unnest(['', NULL, 'a\u00e9\u4e16\U0001f600'])", pa.string(), "", None, "aé世😀"),
    sample("'a' || chr(0) || 'b'", pa.string(), "a\0b"),
    sample("'\\x00\\xFF'::BLOB", pa.binary(), b"\x00\xff"),
    sample("unnest(['0001-01-01', '9999-12-31']::DATE[])", pa.date32(), date.min, date.max),
    sample("TIME '23:59:59.999999'", pa.time64("us"), time(23, 59, 59, 999999)),
    sample("TIMESTAMP '2024-02-29 12:00:00.000001'", pa.timestamp("us"), datetime(2024, 2, 29, 12, 0, 0, 1)),
    sample(f"unnest(['{ID}', NULL, '{ID}'])::UUID", pa.uuid(), UUID(ID), None, UUID(ID)),
    sample("'{\"a\": 1}'::JSON", pa.json_(), '{"a": 1}'),
    sample("[1, NULL, 3]", pa.list_(pa.field("l", pa.int32())), [1, None, 3]),
    sample("{'x': 1, 'y': 'b'}", pa.struct([("x", pa.int32()), ("y", pa.string())]), {"x": 1, "y": "b"}),
    sample("MAP {'k': 7}", pa.map_(pa.string(), pa.int32()), [("k", 7)]),
    sample("NULL", pa.null(), None),
]  # fmt: skip

ERRORS = [
    ErrorSample("SELEC 1", Kind.SYNTAX, "42601", 0),
    ErrorSample("SELECT 'é', nope FROM sample", Kind.COLUMN_NOT_FOUND, "42703", 12),
    ErrorSample("SELECT * FROM nope", Kind.TABLE_NOT_FOUND, "42P01", 14),
    ErrorSample("SELECT * FROM nope.t", Kind.SCHEMA_NOT_FOUND, "3F000"),
    ErrorSample("SELECT nofn(1)", Kind.FUNCTION_NOT_FOUND, "42883", 7),
    ErrorSample("CREATE TABLE sample (a INTEGER)", Kind.ALREADY_EXISTS),
    ErrorSample("SELECT 'abc'::INTEGER", Kind.INVALID_VALUE),
    ErrorSample("SELECT 9223372036854775807 + 1", Kind.OUT_OF_RANGE, "22003"),
    ErrorSample("INSERT INTO sample VALUES (NULL, '', 1)", Kind.CONSTRAINT, "23502"),
    ErrorSample("SELECT CASE WHEN i = 90000 THEN 'x' ELSE '1' END::INTEGER FROM range(99999) t(i)",
                Kind.INVALID_VALUE),
]  # fmt: skip


class TestDuckDbFile(EngineSuite):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> EngineUnderTest:
        path = tmp_path / "side.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.execute(TABLE)
        built: list[DuckDbEngine] = []

        def make() -> Engine:
            config = ClusterConfig(engine="duckDb", database_path=str(path), memory_limit="1GB", threads=2)
            built.append(build("duck", config, SystemClock()))
            return built[-1]

        def missing() -> Engine:
            config = ClusterConfig(engine="duckDb", database_path=str(tmp_path / "no" / "x"), read_only=True)
            return build("missing", config, SystemClock())

        async def running(engine: Engine) -> int:
            return sum(engine.lanes.busy for engine in built)

        return EngineUnderTest(
            build=make,
            unreachable=missing,
            series=lambda n: f"SELECT i::INTEGER AS n FROM range(1, {n + 1}) t(i)",
            wide=lambda n: f"SELECT i AS n, repeat('x', 190) || i AS filler FROM range(1, {n + 1}) t(i)",
            slow="SELECT count(*) FROM range(10000000000000) t(i) WHERE hash(i) % 7 = 3",
            running=running,
            table=("side", "main", "sample"),
            view=("side", "main", "sample_view"),
            types=TYPES,
            errors=ERRORS,
            column_types=("INTEGER", "VARCHAR", "DECIMAL(12,2)"),
        )
