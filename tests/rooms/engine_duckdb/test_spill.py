"""Folders of processes that were killed go; nobody else's."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from queryflux.engines.duckdb.spill import SpillFolder

HOLD = """
import sys, time
from queryflux.engines.duckdb.spill import SpillFolder
folder = SpillFolder(time.time())
(folder.path / "block").write_text("spilled")
print(folder.path, flush=True)
time.sleep(60)
"""
LATER = 3600.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_stays_as_long_as_its_process_and_no_longer(place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        assert theirs.parent == place
        try:
            SpillFolder(time.time() + LATER).close()
            assert (theirs / "block").exists()
        finally:
            process.send_signal(signal.SIGKILL)
    SpillFolder(time.time()).close()
    assert theirs.exists(), "it may be about to be locked"
    SpillFolder(time.time() + LATER).close()
    assert list(place.iterdir()) == []


def test_what_only_looks_like_one_stays(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (place / "queryflux-spill-link").symlink_to(elsewhere)
    (place / "queryflux-spill-file").write_text("x")
    SpillFolder(time.time() + LATER).close()
    assert sorted(one.name for one in place.iterdir()) == [
        "elsewhere",
        "queryflux-spill-file",
        "queryflux-spill-link",
    ]
