"""Odd entries of a folder: the rest is served, and the log names each of them once."""

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from queryflux.engines.duckdb import folder as folders
from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.duckdb.folder import RESCAN_SECONDS
from queryflux.model.errors import EngineErrorKind, EngineUnavailable
from tests.kit.clock import ManualClock
from tests.rooms.engine_duckdb.asking import Asking, engine_on_folder


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "t.csv").write_text("a\n1\n")
    return folder


@pytest.fixture
async def engine(folder: Path, clock: ManualClock) -> AsyncIterator[DuckDbEngine]:
    engine = engine_on_folder(folder, clock)
    yield engine
    await engine.close()


async def tables(engine: DuckDbEngine) -> list[str]:
    return [table.name for table in await engine.tables()]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def sniffers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "csv files"]


async def sniffed() -> None:
    """All that is to be looked at has been."""
    for thread in sniffers():
        await asyncio.to_thread(thread.join)


def outside(folder: Path) -> Path:
    place = folder.parent / "outside"
    place.mkdir()
    (place / "x.csv").write_text("a\n9\n")
    return place


def loop(folder: Path) -> str:
    (folder / "loop.csv").symlink_to("loop.csv")
    return f"{folder}/loop.csv: left out: too many levels of symbolic links"


def loop_without_an_ending(folder: Path) -> str:
    (folder / "ping").symlink_to("pong")
    (folder / "pong").symlink_to("ping")
    return f"{folder}/ping: left out: too many levels of symbolic links"


def loop_in_a_folder(folder: Path) -> str:
    (folder / "sub").mkdir()
    (folder / "sub" / "loop.csv").symlink_to("loop.csv")
    return f"{folder}/sub/loop.csv: left out: too many levels of symbolic links"


def link_to_nothing(folder: Path) -> str:
    (folder / "gone.csv").symlink_to("nothing.csv")
    return f"{folder}/gone.csv: left out: a link that leads nowhere"


def link_outside(folder: Path) -> str:
    (folder / "out.csv").symlink_to(outside(folder) / "x.csv")
    return f"{folder}/out.csv: left out: a link that leads outside the folder"


def folder_outside(folder: Path) -> str:
    (folder / "out").symlink_to(outside(folder))
    return f"{folder}/out: left out: a link that leads outside the folder"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe.csv")
    return f"{folder}/pipe.csv: left out: not a regular file"


def no_utf8(folder: Path) -> str:
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff.csv"))).write_text("a\n1\n")
    return f"{folder}/\\udcff.csv: left out: a name that is not UTF-8"


@pytest.mark.parametrize(
    "make",
    [
        loop,
        loop_without_an_ending,
        loop_in_a_folder,
        link_to_nothing,
        link_outside,
        folder_outside,
        pipe,
        no_utf8,
    ],
)
async def test_the_rest_is_served(
    folder: Path,
    engine: DuckDbEngine,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], str],
) -> None:
    said = make(folder)
    await engine.probe()
    assert await Asking(engine).rows("SELECT * FROM t") == [(1,)]
    assert await tables(engine) == ["t"]
    assert said in warnings(caplog)
    count = len(warnings(caplog))
    await clock.advance(RESCAN_SECONDS)
    assert await tables(engine) == ["t"]
    assert len(warnings(caplog)) == count


async def test_a_folder_that_may_not_be_read_hides_no_other(
    folder: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "shut").mkdir()
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert await Asking(engine).rows("SELECT * FROM t") == [(1,)]
    assert warnings(caplog) == [f"{folder}/shut: left out: permission denied"]


async def test_a_file_that_may_not_be_read_leaves_the_rest_of_its_folder(
    folder: Path,
    engine: DuckDbEngine,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "mix").mkdir()
    for name in ("a", "b"):
        (folder / "mix" / f"{name}.csv").write_text(f"x\n{name}\n")
    real = os.access
    shut = True

    def access(path: str, mode: int) -> bool:
        return not (shut and str(path).endswith("b.csv")) and real(path, mode)

    monkeypatch.setattr(os, "access", access)  # root may read everything
    assert await Asking(engine).rows("SELECT * FROM mix") == [("a",)]
    assert warnings(caplog) == [f"{folder}/mix/b.csv: left out: permission denied"]
    shut = False
    await clock.advance(RESCAN_SECONDS)
    assert await Asking(engine).rows("SELECT * FROM mix ORDER BY x") == [("a",), ("b",)]


async def test_a_file_that_goes_while_it_is_looked_at_is_no_news(
    folder: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mix").mkdir()
    for name in ("a", "b"):
        (folder / "mix" / f"{name}.csv").write_text(f"x\n{name}\n")
    real = os.access

    def access(path: str, mode: int) -> bool:
        if str(path).endswith("b.csv"):
            os.unlink(path)
        return real(path, mode)

    monkeypatch.setattr(os, "access", access)
    assert await Asking(engine).rows("SELECT * FROM mix") == [("a",)]
    assert warnings(caplog) == []


async def test_a_broken_file_takes_its_folder_with_it_and_both_are_named(
    folder: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "mix").mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS x) TO '{folder}/mix/a.parquet'")
    (folder / "mix" / "b.parquet").write_text("no parquet at all")
    assert await tables(engine) == ["t"]
    (said,) = warnings(caplog)
    assert said.startswith(f"{folder}/mix is not a table: ")
    assert "mix/b.parquet" in said
    assert "a.parquet" not in said


async def test_links_that_are_no_data_are_not_worth_a_line(
    folder: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "README").symlink_to(outside(folder) / "x.csv")
    (folder / ".hidden.csv").symlink_to("nowhere")
    assert await tables(engine) == ["t"]
    assert warnings(caplog) == []


async def test_an_entry_that_was_well_in_between_is_said_again(
    folder: Path, engine: DuckDbEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        said = loop(folder)
        await clock.advance(RESCAN_SECONDS)
        assert await tables(engine) == ["t"]
        (folder / "loop.csv").unlink()
        await clock.advance(RESCAN_SECONDS)
        assert await tables(engine) == ["t"]
    assert warnings(caplog) == [said, said]


@pytest.fixture
def deep(folder: Path) -> Iterator[None]:
    """A file far down; removed here, for it is too deep for the runner's own tidying."""
    place = folder / "deep"
    place.mkdir()
    for _ in range(1500):
        place /= "d"
        place.mkdir()
    (place / "x.csv").write_text("a\n2\n")
    yield
    subprocess.run(["rm", "-rf", str(folder / "deep")], check=True)


@pytest.mark.usefixtures("deep")
async def test_a_very_deep_folder(engine: DuckDbEngine) -> None:
    assert await Asking(engine).rows("SELECT * FROM deep") == [(2,)]
    assert await tables(engine) == ["deep", "t"]


async def test_a_folder_of_several_formats_says_what_is_left_out(
    folder: Path, engine: DuckDbEngine, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "mixed").mkdir()
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 5 AS a) TO '{folder}/mixed/x.parquet'")
    (folder / "mixed" / "y.csv").write_text("a\n2\n")
    (folder / "mixed" / "z.json").write_text('{"a": 3}')
    assert await Asking(engine).rows("SELECT * FROM mixed") == [(5,)]
    assert warnings(caplog) == [
        f"{folder}/mixed: a folder with files of several formats: its table has those of parquet,"
        " and 2 of csv and json are left out"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,c\n1,2,3\n4,5\n6,7,8,9\n", "lines 1 to 3 are left out"),
        ("a,b\n1,2\n3\n4,5\n", "is read as one column"),
        ("a,b\n1,2\n3,4\n", ""),
        ("text\nhello\n", ""),
    ],
)
async def test_a_ragged_csv_file_is_said_once(
    folder: Path,
    clock: ManualClock,
    engine: DuckDbEngine,
    caplog: pytest.LogCaptureFixture,
    text: str,
    said: str,
) -> None:
    (folder / "r.csv").write_text(text)
    for _ in range(3):
        assert await tables(engine) == ["r", "t"]
        await sniffed()
        await clock.advance(RESCAN_SECONDS)
        with (folder / "r.csv").open("a") as file:
            file.write(text.splitlines()[-1] + "\n")
    expected = [f"{folder}/r.csv: {said}"] if said else []
    assert [line[: len(expected[0])] if expected else line for line in warnings(caplog)] == expected


async def test_no_query_waits_while_csv_files_are_looked_at(
    folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever = "SELECT sum(a.range + b.range), $1 FROM range(10000000) a, range(1000000) b"
    monkeypatch.setattr(folders, "_SNIFF", forever)
    engine = engine_on_folder(folder, clock)
    async with asyncio.timeout(5):
        for name in ("u", "v"):
            (folder / f"{name}.csv").write_text("a\n1\n")
            await clock.advance(RESCAN_SECONDS)
            assert name in await tables(engine)
        assert len(sniffers()) == 1
        await engine.close()
    assert not sniffers()


async def test_csv_files_are_looked_at_for_so_long(
    folder: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SNIFFING_SECONDS", 0.0)
    (folder / "r.csv").write_text("a,b,c\n1,2,3\n4,5\n6,7,8,9\n")
    engine = engine_on_folder(folder, clock)
    assert await tables(engine) == ["r", "t"]
    await sniffed()
    await engine.close()
    assert warnings(caplog) == []


@pytest.mark.parametrize("name", ["data[1]", "d*ta", "d?ta", "[x]*[!a]"])
async def test_a_folder_whose_own_name_is_a_pattern(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for place in (folder, folder / "su[b]"):
        place.mkdir()
        (place / "t[2].csv").write_text("a\n1\n")
    for like in ("data1", "dxta", "x*a"):
        (tmp_path / like).mkdir()
        (tmp_path / like / "t[2].csv").write_text("a\n9\n")
    engine = engine_on_folder(folder)
    asking = Asking(engine)
    assert await asking.rows('SELECT * FROM "t[2]"') == [(1,)]
    assert await asking.rows('SELECT * FROM "su[b]"') == [(1,)]
    for path in (f"{folder}/../data1/t[[]2].csv", f"{tmp_path}/data1/*", f"{tmp_path}/*/*", f"{folder}x/*"):
        error = await asking.error(f"SELECT * FROM read_csv('{path}')")
        assert error.kind is EngineErrorKind.PERMISSION, path
    await engine.close()


async def test_a_folder_that_is_there_as_the_pattern_of_another(tmp_path: Path) -> None:
    (tmp_path / "data[1]").mkdir()
    (tmp_path / "data[[]1]").mkdir()
    engine = engine_on_folder(tmp_path / "data[1]")
    with pytest.raises(EngineUnavailable, match="is not served while there is"):
        await engine.probe()
    await engine.close()


async def test_a_folder_that_is_a_loop(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    engine = engine_on_folder(tmp_path / "loop")
    with pytest.raises(EngineUnavailable, match="symbolic links"):
        await engine.probe()
    await engine.close()


async def test_a_folder_that_may_not_be_read_is_no_empty_one(
    folder: Path, engine: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: str) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        with pytest.raises(EngineUnavailable, match="Permission denied"):
            await engine.probe()
    await engine.probe()
    assert await tables(engine) == ["t"]
