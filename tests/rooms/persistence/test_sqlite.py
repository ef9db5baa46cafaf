"""A SQLite file that cannot be used: said as a fault of the configuration, and nothing is left open."""

import sqlite3
from pathlib import Path

import pytest

from queryflux.model.errors import ConfigError
from queryflux.persistence.sqlite.database import SqliteDatabase


async def refused(path: Path) -> str:
    database = SqliteDatabase(str(path))
    with pytest.raises(ConfigError) as caught:
        await database.open()
    other = SqliteDatabase(str(path))
    with pytest.raises(ConfigError) as again:
        await other.open()
    assert again.value.message == caught.value.message, "the first one has not kept the lock"
    return caught.value.message


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert "Is a directory" in await refused(tmp_path / "data")


async def test_another_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are no tables " * 100)
    assert "not a database" in await refused(tmp_path / "notes.txt")


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    first, second = (SqliteDatabase(str(tmp_path / "queryflux.db")) for _ in range(2))
    await first.open()
    with pytest.raises(ConfigError, match="another process serves from"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()
    with sqlite3.connect(tmp_path / "queryflux.db") as connection:
        assert connection.execute("SELECT count(*) FROM queryflux_schema").fetchone() == (0,)


async def test_a_second_process_is_refused_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "queryflux.db")
    first, second = (SqliteDatabase(str(tmp_path / name)) for name in ("queryflux.db", "link.db"))
    await first.open()
    with pytest.raises(ConfigError, match=r"another process serves from .*link\.db"):
        await second.open()
    await first.close()
