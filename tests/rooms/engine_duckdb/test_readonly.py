"""A served folder: nothing is written, and nothing outside is read."""

from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb import build
from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.duckdb.guard import check
from queryflux.engines.port import Capability
from queryflux.model.errors import EngineError, EngineErrorKind, InvalidRequest
from queryflux.runtime.clock import SystemClock
from tests.rooms.engine_duckdb.asking import Asking, engine_on_folder

Kind = EngineErrorKind


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_text("word\nxyzzy\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "more.csv").write_text("word\nplugh\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "t.csv").write_text("a,b\n1,x\n2,y\n")
    (folder / "link.csv").symlink_to(outside / "secret.csv")
    (folder / "away").symlink_to(outside)
    (folder / "alias.csv").symlink_to(folder / "t.csv")
    (folder / "many").mkdir()
    (folder / "many" / "one.csv").write_text("a\n1\n")
    (folder / "many" / "two.csv").symlink_to(outside / "secret.csv")
    return folder


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[DuckDbEngine]:
    engine = engine_on_folder(folder, memory_limit="512MB", threads=1)
    yield engine
    await engine.close()


def only_ours(path: str) -> bool:
    return Path(path).stat().st_mode & 0o077 == 0


def exists(path: str) -> bool:
    return Path(path).exists()


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


WRITES = [
    "COPY t TO '{f}/evil.csv'",
    "COPY (SELECT 1) TO '{f}/evil.parquet' (FORMAT parquet)",
    "COPY t FROM '{f}/t.csv'",
    "EXPORT DATABASE '{f}/dump'",
    "IMPORT DATABASE '{f}/dump'",
    "ATTACH '{f}/evil.duckdb'",
    "ATTACH ':memory:' AS other",
    "DETACH files",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 4",
    "SET GLOBAL memory_limit = '100GB'",
    "RESET memory_limit",
    "SET VARIABLE x = 1",
    "USE memory",
    "CREATE TABLE evil (a INTEGER)",
    "CREATE TEMP TABLE evil AS SELECT 1",
    "CREATE VIEW evil AS SELECT 1",
    "CREATE OR REPLACE VIEW t AS SELECT 1",
    "CREATE SCHEMA evil",
    "CREATE MACRO evil(x) AS x",
    "CREATE TYPE evil AS ENUM ('a')",
    "CREATE SECRET evil (TYPE s3)",
    "CREATE TABLE evil AS PIVOT t ON a",
    "DROP VIEW t",
    "ALTER VIEW t RENAME TO u",
    "COMMENT ON VIEW t IS 'x'",
    "INSERT INTO t VALUES (1, 'x')",
    "UPDATE t SET a = 1",
    "DELETE FROM t",
    "MERGE INTO t USING t AS s ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE t",
    "PRAGMA threads = 4",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "VACUUM",
    "CHECKPOINT",
    "PREPARE evil AS COPY t TO '{f}/evil.csv'",
    "EXECUTE evil",
    "COPY FROM DATABASE memory TO files",
    "EXPLAIN ANALYZE COPY t TO '{f}/evil.csv'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY t TO '{f}/evil.csv'",
    "explain /* x */ analyze copy t to '{f}/evil.csv'",
    "EXPLAIN ANALYZE WITH a AS (COPY t TO '{f}/evil.csv') SELECT 1",
    "WITH a AS (COPY t TO '{f}/evil.csv') SELECT 1",
    "WITH a AS (/* x */ copy t TO '{f}/evil.csv') SELECT * FROM a",
    "WITH b AS (SELECT 1), a(n) AS NOT MATERIALIZED (\n-- x\nCOPY t TO '{f}/evil.csv') SELECT * FROM a",
    "FROM query('WITH a AS (COPY t TO ''{f}/evil.csv'') SELECT 1')",
    "FROM system.main.\"QUERY\" ('SELECT 1')",
    "FROM json_execute_serialized_sql(json_serialize_sql('WITH a AS (COPY t TO ''{f}/evil.csv'') SELECT 1'))",
    "FROM \"json_execute_serialized_sql\" /* x */ ('{{}}')",
    "PRAGMA json_execute_serialized_sql('{{}}')",
    "FROM add_grammar_extension('x')",
    "FROM enable_logging('QueryLog', storage = 'file', storage_path = '{f}/log')",
    "FROM enable_profiling(save_location = '{f}/profile.json')",
    "FROM force_checkpoint()",
    "FROM register_external_resource_type('a')",
    "FROM python_map_function(1)",
    "UPDATE EXTENSIONS",
]


@pytest.mark.parametrize("sql", WRITES)
async def test_nothing_is_written(engine: DuckDbEngine, folder: Path, sql: str) -> None:
    before = tree(folder)
    asking = Asking(engine)
    error = await asking.error(sql.format(f=folder))
    assert error.kind in {Kind.READ_ONLY, Kind.PERMISSION, Kind.NOT_SUPPORTED, Kind.SYNTAX}, error.message
    assert tree(folder) == before
    assert await asking.rows("SELECT count(*) FROM t") == [(2,)]


READS = [
    "FROM read_csv('/etc/passwd')",
    "FROM '/etc/passwd'",
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('/proc/self/environ')",
    "FROM read_csv('/dev/stdin')",
    "FROM read_text('{f}/../outside/secret.csv')",
    "FROM read_csv('{f}/link.csv')",
    "FROM read_csv('{f}/away/secret.csv')",
    "FROM read_csv('{f}/many/two.csv')",
    "FROM read_csv('{f}/many/*.csv')",
    "FROM read_csv('{o}/*.csv')",
    "FROM glob('/etc/*')",
    "FROM glob('{f}/away/*')",
    "FROM sniff_csv('/etc/passwd')",
    "FROM parquet_metadata('/etc/passwd')",
    "FROM read_duckdb('/etc/passwd')",
    "FROM 'http://127.0.0.1:1/x.csv'",
    "FROM 's3://bucket/x.parquet'",
    "FROM duckdb_secrets()",
    "FROM duckdb_extensions()",
    "SELECT getenv('HOME')",
    "SELECT * FROM link",
    "SELECT * FROM away",
]


@pytest.mark.parametrize("sql", READS)
async def test_nothing_outside_is_read(engine: DuckDbEngine, folder: Path, outside: Path, sql: str) -> None:
    await Asking(engine).error(sql.format(f=folder, o=outside))


@pytest.mark.parametrize(
    "sql",
    ["FROM 't.csv'", "FROM '/etc/passwd'", "FROM read_csv('/etc/passwd')", "FROM read_text('s3://b/x')"],
)
async def test_a_path_that_cannot_be_read_says_what_can(engine: DuckDbEngine, folder: Path, sql: str) -> None:
    error = await Asking(engine).error(sql)
    assert error.kind in (Kind.PERMISSION, Kind.TABLE_NOT_FOUND)
    assert "configuration" not in error.message
    assert "Only the files of the served folder" in error.hint
    assert str(folder) not in error.message + error.hint


async def test_clients_are_not_told_where_the_folder_is(engine: DuckDbEngine, folder: Path) -> None:
    (folder / "bad.parquet").write_text("this is not Parquet at all")
    (folder / "odd.csv").write_text("a,b\n1,2\n" + "3,4\n" * 30000 + "x,5\n")
    asking = Asking(engine)
    for sql in (
        "SELECT * FROM bad",
        "DESCRIBE bad",
        f"FROM '{folder}/none.csv'",
        "SELECT sum(a) FROM odd",
        "SELECT * FROM odd",
        "FROM read_csv('none')",
    ):
        error = await asking.error(sql)
        assert str(folder) not in error.message + error.hint, sql
    assert "bad.parquet" in (await asking.error("SELECT * FROM bad")).hint


async def test_links_that_stay_inside_are_followed(engine: DuckDbEngine) -> None:
    asking = Asking(engine)
    assert await asking.rows("SELECT count(*) FROM alias") == [(2,)]
    assert await asking.rows("SELECT * FROM many") == [(1,)]


async def test_a_variable_of_ours_is_no_table(engine: DuckDbEngine) -> None:
    error = await Asking(engine).error("SELECT * FROM schema")
    assert error.kind is Kind.TABLE_NOT_FOUND


async def test_what_reads_is_taken(engine: DuckDbEngine) -> None:
    asking = Asking(engine)
    for sql in (
        "SHOW TABLES",
        "DESCRIBE t",
        "SUMMARIZE t",
        "EXPLAIN SELECT * FROM t",
        "EXPLAIN ANALYZE SELECT * FROM t",
        "EXPLAIN (FORMAT json) SELECT * FROM t",
        "EXPLAIN (SELECT 1)",
        "PIVOT t ON b USING sum(a)",
        "WITH x AS (FROM t) PIVOT x ON b USING sum(a)",
        "FROM t",
        "VALUES (1)",
        "TABLE t",
        "WITH copy AS (SELECT 1 AS update) SELECT update FROM copy",
        "SELECT current_setting('threads')",
    ):
        assert await asking.rows(sql), sql
    for sql in ("BEGIN", "COMMIT", "BEGIN TRANSACTION READ ONLY", "ROLLBACK"):
        await asking.done(sql)


async def test_several_statements_in_one_text_are_refused(engine: DuckDbEngine) -> None:
    for sql in ("SELECT 1; COPY t TO 'x'", "", "-- nothing", ";"):
        with pytest.raises(InvalidRequest):
            await Asking(engine).answer(sql)


async def test_what_would_outlive_a_statement_is_refused_for_that(engine: DuckDbEngine) -> None:
    for sql in ("PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p"):
        with pytest.raises(EngineError, match="is not supported on a read-only cluster"):
            await Asking(engine).answer(sql)
    with pytest.raises(EngineError, match="DROP is refused: this data is served read-only"):
        await Asking(engine).answer("DROP TABLE t")


async def test_limits_are_those_of_the_configuration(engine: DuckDbEngine) -> None:
    names = ("threads", "memory_limit", "temp_directory")
    columns = ", ".join(f"current_setting('{name}')" for name in names)
    [(threads, memory, spill)] = await Asking(engine).rows(f"SELECT {columns}")
    assert threads == 1
    assert memory.startswith("488.2")
    assert only_ours(spill)
    await engine.close()
    assert not exists(spill)


async def test_the_settings_tell_nothing_of_the_hosts_home(engine: DuckDbEngine) -> None:
    asking = Asking(engine)
    settings = await asking.rows("SELECT name, value FROM duckdb_settings()")
    assert str(Path.home()) not in str(settings)
    for sql in ("FROM duckdb_secrets()", "FROM duckdb_extensions()"):
        error = await asking.error(sql)
        assert "/" not in error.message + error.hint


def test_an_engine_without_writes_says_so(folder: Path) -> None:
    config = ClusterConfig(engine="duckDb", database_path=str(folder / "x.duckdb"), read_only=True)
    assert Capability.WRITES not in build("ro", config, SystemClock()).capabilities
    assert Capability.WRITES in build("rw", ClusterConfig(engine="duckDb"), SystemClock()).capabilities


async def test_a_file_served_read_only(tmp_path: Path) -> None:
    path = tmp_path / "side.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    config = ClusterConfig(engine="duckDb", database_path=str(path), read_only=True)
    engine = build("ro", config, SystemClock())
    asking = Asking(engine)
    assert await asking.rows("SELECT a FROM t") == [(1,)]
    for sql in ("INSERT INTO t VALUES (2)", f"COPY t TO '{tmp_path}/evil.csv'", "SET threads = 1"):
        assert (await asking.error(sql)).kind is Kind.READ_ONLY
    await engine.close()
    assert tree(tmp_path) == {"side.duckdb"}


def test_the_guard_names_what_it_refuses() -> None:
    with pytest.raises(EngineError, match="COPY is refused"):
        check("-- x\n  copy t to 'x'", "COPY")
    with pytest.raises(EngineError, match="INSERT is refused"):
        check("with a as (insert into t values (1)) select 1", "SELECT")
