"""``queryflux serve --workers N`` as tests see it: one parent, its workers, and what each of them says."""

import atexit
import base64
import json
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.doors import HOST
from tests.kit.process import Process

_PROCESS = re.compile(r"worker (\S+) is process (\d+), tag (\w+)")
_OWN_PORT = re.compile(r"(\S+): (operator port|flightSql) listens on [\d.]+:(\d+)")
_METRIC = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.M)

DOORS = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
    mysqlWire: {host: 127.0.0.1, port: 0}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  shutdownDrainTimeoutSecs: 10
"""
TRINO_ALONE = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  shutdownDrainTimeoutSecs: 10
"""
DUCK = """
clusters: {duck: {engine: duckDb, threads: 1}}
clusterGroups: {main: {members: [duck], maxRunningQueries: LIMIT}}
routingFallback: main
"""


@dataclass(frozen=True)
class Worker:
    """One worker's latest process."""

    name: str
    pid: int
    tag: str
    ports: Mapping[str, int]

    def ready(self) -> bool:
        """Whether it takes queries."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.ports['operator port']}/readyz", timeout=10):
                return True
        except urllib.error.HTTPError:
            return False

    def metric(self, name: str, part: str = "") -> float:
        """The sum of a metric's samples whose labels have ``part`` in them."""
        url = f"http://{HOST}:{self.ports['operator port']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        return sum(
            float(value) for found, labels, value in _METRIC.findall(text) if found == name and part in labels
        )


class Cores(Process):
    """A parent and its workers."""

    def __init__(self, folder: Path, yaml: str, count: int, environ: Mapping[str, str]) -> None:
        super().__init__(folder, yaml, environ, "--workers", str(count))
        self.count = count
        self.folder = folder
        self.until(lambda: any(line.endswith(" ready\n") or " started, " in line for line in self.lines))
        self._wanted = {"operator port"} | ({"flightSql"} & set(yaml.replace(":", " ").split()))
        self.until(lambda: [self._told(worker) for worker in self.workers()] == [True] * count)

    def _told(self, worker: Worker) -> bool:
        """Whether its own lines, which need not come before its parent's, have told all its ports."""
        return set(worker.ports) == self._wanted

    @property
    def pid(self) -> int:
        """The parent's."""
        return self._process.pid

    def workers(self) -> list[Worker]:
        """As the log has them, by name."""
        found: dict[str, Worker] = {}
        for line in list(self.lines):
            if match := _PROCESS.search(line):
                found[match[1]] = Worker(match[1], int(match[2]), match[3], {})
            elif (match := _OWN_PORT.search(line)) and match[1] in found:
                before = found[match[1]]
                ports = {**before.ports, match[2]: int(match[3])}
                found[match[1]] = Worker(before.name, before.pid, before.tag, ports)
        return [found[name] for name in sorted(found)]

    def worker(self, tag: str) -> Worker:
        """The one whose ids end in ``tag``."""
        return next(worker for worker in self.workers() if worker.tag == tag)

    def admin(self, path: str, method: str = "GET", **body: Any) -> Any:
        """An answer of the admin API; None when it has no body."""
        request = urllib.request.Request(
            f"http://{HOST}:{self.port('operator port')}{path}",
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={
                "Authorization": "Basic " + base64.b64encode(b"admin:admin").decode(),
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = response.read()
        return json.loads(answer) if answer else None

    def running(self) -> list[dict[str, Any]]:
        """The queries that run or wait at any worker."""
        found: list[dict[str, Any]] = self.admin("/admin/queries/running")
        return found

    def restarted(self, before: Worker) -> Worker:
        """The process that comes in place of one that has gone, once it serves."""

        def serves() -> bool:
            now = next(worker for worker in self.workers() if worker.name == before.name)
            return now.pid != before.pid and self._told(now) and now.ready()

        self.until(serves)
        return next(worker for worker in self.workers() if worker.name == before.name)


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not buried does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SHORT = "temporary"
"""A link in a test's folder to a short path: names of Unix sockets have 107 characters at most."""


def temporary(folder: Path) -> str:
    """A TMPDIR for the parent of a test with this folder."""
    short = tempfile.mkdtemp(prefix="qf-")
    atexit.register(shutil.rmtree, short, ignore_errors=True)
    (folder / SHORT).symlink_to(short)
    return short


def directories(folder: Path) -> list[str]:
    """Private directories that are left of the parent of a test with this folder."""
    return [name for name in os.listdir(folder / SHORT) if name.startswith("queryflux-")]


@contextmanager
def cores(folder: Path, yaml: str = DOORS + DUCK.replace("LIMIT", "16"), count: int = 2) -> Iterator[Cores]:
    """A parent with so many workers, whose other files are in ``folder``; gone when the block ends.
    What it leaves in its TMPDIR stays to be looked at."""
    made = Cores(folder, yaml, count, {"TMPDIR": temporary(folder)})
    try:
        yield made
    finally:
        made.end()
