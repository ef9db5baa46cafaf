"""The Trino CLI and trino-jdbc against the Trino door in front of DuckDB."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queryflux.model.endings import EndReason
from tests.kit.serving import Serving, serving
from tests.kit.trino_java import cli, jdbc

PROGRAM = Path(__file__).parents[1] / "fixtures" / "trino_door" / "Door.java"
DUCKDB = """
clusters: {duck: {engine: duckDb, databasePath: ":memory:"}}
clusterGroups: {main: {members: [duck]}}
routingFallback: main
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Serving]:
    with serving(DUCKDB) as run:
        yield run


def test_jdbc(running: Serving) -> None:
    lines = jdbc(PROGRAM, running.port("trinoHttp"))
    assert lines == [
        "value|integer|1",
        "value|varchar|a",
        "value|date|2020-01-02",
        "value|decimal(3,2)|1.10",
        "value|double|3.0",
        "value|timestamp(3)|2020-01-01 00:00:00.123",
        "value|bigint|null",
        "value|boolean|true",
        "value|varbinary|bytes2",
        "value|array(integer)|[1, 2]",
        "value|real|4.0",
        "value|bigint|9223372036854775807",
        "value|time(6)|01:02:03",
        "value|timestamp(6) with time zone|2020-01-01 00:00:00.0",
        "value|map(varchar,integer)|{a=1}",
        "params|3",
        "meta|3",
        "prepared|42|it's|2.50",
        "prepared|2|b|-1",
        "update|0",
        "update|3",
        "sum|6",
        "schema|main",
        "error|46|true",
        "range|1",
        "many|300000|45000150000",
        "version|476",
        "table|main|t",
        "column|a|integer",
        "update|1",
        "rolled back|3",
        "cancelled",
    ]
    running.assert_idle()
    assert running.records[-1].reason is EndReason.CANCELLED
    assert any(record.query_tags == {"team": "x"} for record in running.records)


def test_jdbc_limits_the_time_of_a_query(running: Serving) -> None:
    lines = jdbc(PROGRAM.with_name("Limit.java"), running.port("trinoHttp"))
    assert lines == [
        "1",
        "131075|Query exceeded maximum time limit of 1.00s",
        "true",
        "131075|Query exceeded the maximum execution time limit of 500.00ms",
        "14",
        "2",
    ]
    running.assert_idle()
    assert [record.reason for record in running.records if record.reason is EndReason.TIMED_OUT] != []


def test_cli(running: Serving) -> None:
    done = cli(
        running.port("trinoHttp"),
        "SELECT 1, 'a', 1.5, NULL",
        "CREATE TABLE memory.main.c (a integer)",
        "INSERT INTO memory.main.c VALUES (9)",
        "SHOW TABLES FROM memory.main LIKE 'c'",
        "PREPARE p FROM SELECT ?, a FROM c",
        "EXECUTE p USING 5",
        "USE memory.main",
        "START TRANSACTION",
        "INSERT INTO c VALUES (10)",
        "ROLLBACK",
        "SELECT count(*) FROM c",
        "SET SESSION anything = 'b'",
        "SELECT n FROM UNNEST(sequence(1, 3)) AS t(n)",
    )
    assert done.stdout.splitlines() == ['"1","a","1.5",""', '"c"', '"5","9"', '"1"', '"1"', '"2"', '"3"']
    told = [line for line in done.stderr.splitlines() if line.isupper() or line.startswith("INSERT")]
    assert told == [
        "CREATE TABLE",
        "INSERT: 1 row",
        "PREPARE",
        "USE",
        "START TRANSACTION",
        "INSERT: 1 row",
        "ROLLBACK",
        "SET SESSION",
    ], done.stderr
    running.assert_idle()


def test_cli_shows_where_an_error_is(running: Serving) -> None:
    done = cli(running.port("trinoHttp"), "SELECT *\nFROM missing")
    assert done.returncode != 0
    assert "line 2:6: " in done.stderr
    assert "missing" in done.stderr


def test_cli_reads_a_large_result(running: Serving) -> None:
    done = cli(
        running.port("trinoHttp"),
        "SELECT n, 'some text that makes it long' FROM UNNEST(sequence(1, 200000)) AS t(n)",
        output_format="TSV",
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 200_000
    assert lines[-1].startswith("200000\t")
