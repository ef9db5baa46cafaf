"""Files become tables: names, formats, changes."""

from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest

from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.duckdb.folder import RESCAN_SECONDS, format_of, named, scan
from queryflux.engines.port import ColumnRef, TableRef
from queryflux.model.errors import EngineErrorKind, EngineUnavailable
from tests.kit.clock import ManualClock
from tests.rooms.engine_duckdb.asking import Asking, engine_on_folder


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: ManualClock) -> AsyncIterator[DuckDbEngine]:
    engine = engine_on_folder(tmp_path, clock)
    yield engine
    await engine.close()


def parquet(path: Path, sql: str = "SELECT 1 AS a") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({sql}) TO '{str(path).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", ("a", "parquet")),
        ("A.B.CSV", ("A.B", "csv")),
        ("a.csv.gz", ("a", "csv")),
        ("a.ndjson", ("a", "json")),
        ("a.jsonl", ("a", "json")),
        ("a.json.gz", ("a", "json")),
        (".parquet", None),
        ("a.txt", None),
        ("parquet", None),
    ],
)
def test_format_by_ending(name: str, expected: tuple[str, str] | None) -> None:
    assert format_of(name) == expected


def test_names_are_unique_and_stable(tmp_path: Path) -> None:
    for name in (
        "t.csv",
        "T.parquet",
        "t.json",
        "t.jsonl",
        "t.csv.gz",
        "u.csv",
        "_hidden.csv",
        ".h.csv",
        "x.txt",
    ):
        (tmp_path / name).write_text("a\n")
    parquet(tmp_path / "t" / "x.parquet")
    (tmp_path / "empty").mkdir()
    tables = named(scan(tmp_path).sources)
    assert {name: source.format for name, source in tables.items()} == {
        "T": "parquet",
        "t_csv": "csv",
        "t_csv_2": "csv",
        "t_json": "json",
        "t_json_2": "json",
        "t_parquet": "parquet",
        "u": "csv",
    }


async def test_every_format_is_a_table(tmp_path: Path, engine: DuckDbEngine) -> None:
    parquet(tmp_path / "p.parquet", "SELECT 1 AS a, 'x' AS b")
    (tmp_path / "c.csv").write_text("a,b\n1,x\n")
    (tmp_path / "j.json").write_text('[{"a": 1, "b": "x"}]')
    (tmp_path / "l.jsonl").write_text('{"a": 1, "b": "x"}\n')
    asking = Asking(engine)
    for table in ("p", "c", "j", "l", "files.main.p", "main.c"):
        assert await asking.rows(f"SELECT a, b FROM {table}") == [(1, "x")]


async def test_a_folder_is_one_table(tmp_path: Path, engine: DuckDbEngine) -> None:
    parquet(tmp_path / "sales" / "year=2023" / "1.parquet", "SELECT 1 AS a")
    parquet(tmp_path / "sales" / "year=2024" / "2.parquet", "SELECT 2 AS a, 'new' AS b")
    (tmp_path / "sales" / "readme.csv").write_text("x\n1\n")
    rows = await Asking(engine).rows("SELECT a, b, year FROM sales ORDER BY a")
    assert rows == [(1, None, 2023), (2, "new", 2024)]


@pytest.mark.parametrize(
    "name", ["a b", 'q"uote', "it's", "Ünï", "semi;colon", "st*r", "br[1]", "q?", "a.b", "select"]
)
async def test_names_that_need_quoting(tmp_path: Path, engine: DuckDbEngine, name: str) -> None:
    parquet(tmp_path / f"{name}.parquet", "SELECT 7 AS a")
    parquet(tmp_path / "brx.parquet", "SELECT 8 AS a")
    quoted = '"' + name.replace('"', '""') + '"'
    assert await Asking(engine).rows(f"SELECT a FROM {quoted}") == [(7,)]


async def test_files_come_change_and_go(tmp_path: Path, engine: DuckDbEngine, clock: ManualClock) -> None:
    asking = Asking(engine)
    path = tmp_path / "t.csv"
    assert (await asking.error("SELECT * FROM t")).kind is EngineErrorKind.TABLE_NOT_FOUND
    path.write_text("a\n1\n")
    await clock.advance(RESCAN_SECONDS)
    assert await asking.rows("SELECT * FROM t") == [(1,)]
    path.write_text("a,b\n1,2\n3,4\n")
    await clock.advance(RESCAN_SECONDS)
    assert await asking.rows("SELECT * FROM t") == [(1, 2), (3, 4)]
    assert [column.name for column in await engine.columns()] == ["a", "b"]
    path.unlink()
    await clock.advance(RESCAN_SECONDS)
    assert (await asking.error("SELECT * FROM t")).kind is EngineErrorKind.TABLE_NOT_FOUND
    assert await engine.tables() == []


async def test_a_broken_file_hides_no_other_and_says_why(
    tmp_path: Path, engine: DuckDbEngine, clock: ManualClock
) -> None:
    (tmp_path / "bad.parquet").write_text("this is not Parquet at all")
    (tmp_path / "good.csv").write_text("a\n1\n")
    asking = Asking(engine)
    assert await asking.rows("SELECT * FROM good") == [(1,)]
    error = await asking.error("SELECT * FROM bad")
    assert error.kind is EngineErrorKind.TABLE_NOT_FOUND
    assert "could not be opened" in error.hint
    parquet(tmp_path / "bad.parquet")
    await clock.advance(RESCAN_SECONDS)
    assert await asking.rows("SELECT * FROM bad") == [(1,)]


async def test_metadata(tmp_path: Path, engine: DuckDbEngine) -> None:
    parquet(tmp_path / "t.parquet", "SELECT 1 AS a, 'x' AS b")
    ref = TableRef("files", "main", "t", "table")
    assert await engine.tables() == [ref]
    assert await engine.columns("main", "t") == [
        ColumnRef(ref, "a", "INTEGER", True, 1),
        ColumnRef(ref, "b", "VARCHAR", True, 2),
    ]
    assert await engine.columns("main", "u") == []
    assert await Asking(engine).rows("SHOW TABLES") == [("t",)]


async def test_a_folder_without_tables_is_said(
    tmp_path: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "notes.txt").write_text("a")
    assert await engine.tables() == []
    assert "has no .parquet, .csv or .json file yet" in caplog.text


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    engine = engine_on_folder(tmp_path / "none")
    with pytest.raises(EngineUnavailable, match="none"):
        await engine.probe()
    (tmp_path / "none").mkdir()
    await engine.probe()
    await engine.close()


async def test_a_folder_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "t.csv").write_text("a\n1\n")
    (tmp_path / "data").symlink_to(tmp_path / "real")
    engine = engine_on_folder(tmp_path / "data")
    assert await Asking(engine).rows("SELECT * FROM t") == [(1,)]
    await engine.close()
