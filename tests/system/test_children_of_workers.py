"""The processes that workers start, for scripts and for large statements: they have nothing of what workers
hold, and do not outlive them."""

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.kit.cores import TRINO_ALONE, Cores, cores, lives
from tests.kit.doors import HOST

pytest.importorskip("duckdb", reason="DuckDB is not installed")

SCRIPTED = """
clusters: {duck: {engine: duckDb, threads: 1}}
clusterGroups: {main: {members: [duck]}}
routers:
  - type: pythonScript
    script: |
      import json, os, signal
      def route(query, ctx):
          if "look" in query:
              seen = {}
              for number in os.listdir("/proc/self/fd"):
                  try:
                      seen[number] = os.readlink("/proc/self/fd/" + number)
                  except OSError:
                      pass
              tell(json.dumps(seen))
          if "hang" in query:
              signal.signal(signal.SIGALRM, signal.SIG_IGN)
              tell(str(os.getpid()))
              while True:
                  pass
      def tell(text):
          with open("FILE.new", "w") as file:
              file.write(text)
          os.rename("FILE.new", "FILE")
routingFallback: main
"""
LARGE = f"SELECT 1 WHERE 1 IN ({','.join(map(str, range(1_100_000)))})"
"""Translating it takes longer than it may."""


def post(served: Cores, sql: str) -> None:
    """A statement to the Trino door, whatever becomes of it."""
    connection = http.client.HTTPConnection(HOST, served.port("trinoHttp"), timeout=60)
    with closing(connection), suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/v1/statement", sql, {"X-Trino-User": "ann"})
        connection.getresponse().read()


def begin(served: Cores, sql: str) -> threading.Thread:
    thread = threading.Thread(target=post, args=(served, sql), daemon=True)
    thread.start()
    return thread


def soon(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def helper_of(worker: int) -> int:
    """The process that translates for a worker, once it is busy."""
    deadline = time.monotonic() + 60  # the worker looks at the statement first
    while time.monotonic() < deadline:
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                stat = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                if int(stat[1]) == worker and b"sql.helper" in command and int(stat[11]) > 50:
                    return int(name)
        time.sleep(0.02)
    raise AssertionError("there is none")


def can_be_bound(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True


def test_a_script_sees_no_socket_and_no_file_of_its_worker(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    with cores(tmp_path, TRINO_ALONE + SCRIPTED.replace("FILE", str(file)), count=1) as served:
        post(served, "select 'look'")
        soon(file.exists, 30)
        seen = json.loads(file.read_text())
        (worker,) = served.workers()
        held = set()
        for link in Path(f"/proc/{worker.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it closes the connection of ``post`` about now
                held.add(os.readlink(link))
        assert not held & set(seen.values()) - {"/dev/null"}
    assert {seen.pop(number) for number in "012"} == {"/dev/null"}
    assert len(seen) <= 3, seen  # the two ends of the conversation, and the folder it looks into
    streams = [target for target in seen.values() if not target.startswith("/proc/")]
    assert len(streams) == 2


def test_a_script_that_cannot_be_told_to_end_ends_with_its_worker(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with cores(tmp_path, TRINO_ALONE + SCRIPTED.replace("FILE", str(file)), count=1) as served:
        (worker,) = served.workers()
        asking = begin(served, "select 'hang'")
        soon(file.exists, 30)
        script = int(file.read_text())
        os.kill(worker.pid, signal.SIGKILL)
        try:
            soon(lambda: not lives(script), 20)
        finally:
            with suppress(ProcessLookupError):
                os.kill(script, signal.SIGKILL)
        asking.join(30)


def test_a_worker_that_is_killed_while_its_helper_is_busy_is_replaced_at_once(tmp_path: Path) -> None:
    with cores(tmp_path, TRINO_ALONE + SCRIPTED, count=1) as served:
        (worker,) = served.workers()
        asking = begin(served, LARGE)
        helper = helper_of(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        served.until(lambda: any("was ended by signal 9" in line for line in served.lines), 10)
        assert lives(helper)  # it was not its end that told
        soon(lambda: not lives(helper), 30)
        asking.join(30)
        served.restarted(worker)


def test_the_ports_of_a_parent_that_is_killed_are_free_though_a_helper_is_busy(tmp_path: Path) -> None:
    with cores(tmp_path, TRINO_ALONE + SCRIPTED, count=1) as served:
        (worker,) = served.workers()
        port = served.port("trinoHttp")
        asking = begin(served, LARGE)
        helper = helper_of(worker.pid)
        os.kill(worker.pid, signal.SIGSTOP)  # or it might see its parent go, and end its helper
        served.signal(signal.SIGKILL)
        os.kill(worker.pid, signal.SIGKILL)
        soon(lambda: can_be_bound(port), 10)
        assert lives(helper)
        soon(lambda: not lives(helper), 30)
        asking.join(30)
