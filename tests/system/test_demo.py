"""``queryflux demo`` and ``serve --data`` on free ports: what they say, and how they end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.places import free_port


def port_flags() -> list[str]:
    return [f"--{name}-port={free_port()}" for name in ("trino", "postgres", "mysql", "flight", "admin")]


@contextmanager
def running(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A command with its output in one pipe."""
    with subprocess.Popen(
        [sys.executable, "-m", "queryflux.cli", *arguments, *port_flags()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: "subprocess.Popen[str]", words: str) -> str:
    """What was said up to a line with these words."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    pytest.fail(f"it ended without {words!r}: {said}")


def test_the_demo_is_right_and_ends_well_on_ctrl_c(tmp_path: Path) -> None:
    with running("demo", f"--dir={tmp_path}") as process:
        said = until(process, "Serving until Ctrl-C")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "12 answers, 0 wrong." in said
    assert "WRONG" not in said
    assert "psql -h 127.0.0.1" in said
    assert "/readyz" in said
    assert "group folder, cluster folder" in said
    assert "Traceback" not in rest


def test_the_demo_can_be_a_check(tmp_path: Path) -> None:
    with running("demo", "--check", f"--dir={tmp_path}") as process:
        said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert "12 answers, 0 wrong." in said


def test_a_folder_is_served_with_the_commands_to_connect(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    with running("serve", f"--data={tmp_path}") as process:
        said = until(process, "/readyz")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "psql -h 127.0.0.1" in said
    assert "server process" not in said + rest  # uvicorn's own words
