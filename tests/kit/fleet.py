"""A whole fleet of processes: PostgreSQL, control planes behind HAProxy, workers; an engine that counts."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.kit.calling import WorkerCaller
from tests.kit.databases import Database, own_server
from tests.kit.doors import HOST
from tests.kit.haproxy import haproxy
from tests.kit.load import ENGINE
from tests.kit.places import free_port
from tests.kit.postgres import PASSWORD
from tests.kit.process import Process
from tests.kit.working import get

OLD, NEW = "0123456789abcdef-old-one", "fedcba9876543210-new-one"
CONTROL_PLANE = """
queryflux:
  role: controlPlane
  instanceId: {name}
  frontends: {{trinoHttp: {{enabled: false}}}}
  adminApi: {{host: 127.0.0.1, port: {port}}}
  workerApi: {{secret: {secret}, secrets: [{more}]}}
  persistence: {{type: postgres, url: '{url}', acquireTimeoutSecs: 2}}
  coordination: {{leaseRenewSecs: 2, leaseExpirySecs: {expiry}, sweepIntervalSecs: 2}}
clusters:
  counting:
    {{engine: postgres, endpoint: '{engine}', database: qf,
     auth: {{type: basic, username: scram, password: {password}}}}}
  duck: {{engine: duckDb, threads: 1}}
clusterGroups:
  counted: {{members: [counting], maxRunningQueries: {cap}, capacityWaitTimeoutSecs: {wait}}}
  free: {{members: [duck]}}
routers:
  - {{type: queryRegex, rules: [{{regex: "(?i)work|lines", targetGroup: counted}}]}}
routingFallback: free
"""
WORKER = """
queryflux:
  role: worker
  workerName: {name}
  controlPlane:
    url: http://127.0.0.1:{planes}
    secret: {secret}
    heartbeatIntervalSecs: 1
    peerBootstrap: {{address: '127.0.0.1:{peer}', maxAgeSecs: 600}}
  coordination: {{leaseRenewSecs: 2, leaseExpirySecs: {expiry}}}
  historyUplink: {{flushIntervalSecs: {flush}}}
  opsListener: {{host: 127.0.0.1, port: {ops}}}
  shutdownDrainTimeoutSecs: 20
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: 0}}
    mysqlWire: {{host: 127.0.0.1, port: 0}}
    flightSql: {{host: 127.0.0.1, port: 0}}
"""
FLUSH_SECS = 1


class Worker:
    """One start of a worker."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.leaving_at: float | None = None
        self.killed = False
        self.instance: str = self.status["instanceId"]

    @property
    def status(self) -> dict[str, Any]:
        """The document of /worker/status."""
        return get(f"http://{HOST}:{self.port('operator port')}/worker/status").json

    def port(self, door: str) -> int:
        """Where a door listens."""
        return self.process.port(door)

    def until(self, what: Callable[[dict[str, Any]], object], seconds: float = 30) -> dict[str, Any]:
        """The status, once ``what`` is true of it."""
        found: dict[str, Any] = {}

        def so() -> object:
            found.update(self.status)
            return what(found)

        self.process.until(so, seconds)
        return found

    def signal(self, number: int) -> None:
        """Tell it to end, or make it."""
        self.leaving_at = time.monotonic()
        self.process.signal(number)


class Fleet:
    """The processes. ``workers`` are those that clients may ask; ``all`` are those that ever were, as are
    ``processes``."""

    def __init__(self, folder: Path, stack: ExitStack, *, cap: int, wait_secs: int, expiry_secs: int) -> None:
        self._folder = folder
        self._stack = stack
        self._starts = 0
        self._settings = {"cap": cap, "wait": wait_secs, "expiry": expiry_secs}
        servers = [own_server(kind) for kind in ("postgres15", "postgres18")]
        for server in servers:
            stack.callback(server.remove)
        self.store, self.engine = servers
        with self.store.admin("postgres") as admin:
            admin.execute("CREATE DATABASE ours")
        self.database = Database(self.store, "ours")
        with self.engine.admin() as admin:
            admin.execute(ENGINE.encode())
        self.plane_ports = {"cp1": free_port(), "cp2": free_port()}
        self.ops_ports = {f"w{number}": free_port() for number in range(1, 6)}
        self.planes: dict[str, Process] = {}
        self.workers: list[Worker] = []
        self.all: list[Worker] = []
        self.processes: list[Process] = []
        self.balancer = stack.enter_context(haproxy(folder, self.plane_ports))
        self.url = f"http://{HOST}:{self.balancer}"
        self.secret = OLD
        self.sequence = 0
        """Where the latest edit has brought the configuration."""

    def _process(self, name: str, text: str) -> Process:
        self._starts += 1
        place = self._folder / f"{name}-{self._starts}"
        place.mkdir()
        process = Process(place, text, {})
        self._stack.callback(process.end)
        self.processes.append(process)
        return process

    # Control planes.

    def start_plane(self, name: str, secret: str = OLD, *more: str) -> None:
        """Start one, where it always is; returns when the balancer can use it."""
        port = self.plane_ports[name]
        text = CONTROL_PLANE.format(
            name=name,
            port=port,
            secret=secret,
            more=", ".join(more),
            url=self.database.dsn,
            engine=f"{self.engine.host}:{self.engine.port}",
            password=PASSWORD,
            **self._settings,
        )
        self.planes[name] = plane = self._process(name, text)
        plane.until(lambda: get(f"http://{HOST}:{port}/readyz").status == 200)

    def start_planes(self) -> None:
        """Both at once."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.start_plane, self.plane_ports))

    def end_plane(self, name: str, number: int) -> int:
        """Send it a signal; its exit status."""
        plane = self.planes.pop(name)
        plane.signal(number)
        return plane.wait(40)

    def operator(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the admin API through the balancer; the document of its answer."""
        reply = WorkerCaller(self.balancer, self.secret).operator(method, path, body)
        assert reply.status in (200, 201, 204), (reply.status, reply.body)
        self.sequence = int(reply.headers.get("x-queryflux-config-sequence", self.sequence))
        return json.loads(reply.body) if reply.body else None

    def ask_planes(self, path: str) -> list[Any]:
        """What each control plane answers to a GET."""
        ports = [self.plane_ports[name] for name in self.planes]
        return [WorkerCaller(port, self.secret).operator("GET", path).json for port in ports]

    def listed(self) -> list[dict[str, Any]]:
        """GET /admin/workers of every control plane: those that clients may ask now."""
        running = {worker.instance for worker in self.workers}
        answers = self.ask_planes("/admin/workers")
        return [row for answer in answers for row in answer["workers"] if row["instanceId"] in running]

    def command(self, *arguments: str) -> str:
        """What a command of the product prints."""
        command = [sys.executable, "-m", "queryflux.cli", *arguments, "--url", self.url]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    # Workers.

    def start_worker(self, name: str, secret: str | None = None) -> Worker:
        """Start one; clients ask it as soon as it is ready."""
        worker = self.new_worker(name, secret or self.secret)
        worker.until(lambda status: status["ready"])
        self.workers.append(worker)
        return worker

    def new_worker(self, name: str, secret: str) -> Worker:
        """Start one that nobody asks yet."""
        names = list(self.ops_ports)
        peer = names[(names.index(name) + 1) % 4] if name in names else names[0]
        text = WORKER.format(
            name=name,
            planes=self.balancer,
            secret=secret,
            ops=self.ops_ports.get(name, 0),
            peer=self.ops_ports[peer],
            flush=FLUSH_SECS,
            **self._settings,
        )
        worker = Worker(name, self._process(name, text))
        self.all.append(worker)
        return worker

    def start_workers(self, *names: str) -> None:
        """All at once."""
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self.start_worker, names))

    def worker(self, name: str) -> Worker:
        """The one that runs under this name."""
        return next(worker for worker in self.workers if worker.name == name)

    def signal_worker(self, worker: Worker, number: int) -> None:
        """Clients choose it no more."""
        self.workers.remove(worker)
        worker.signal(number)

    def until(self, what: Callable[[], object], seconds: float = 30) -> float:
        """How long it took until ``what`` was true."""
        began = time.monotonic()
        while not what():
            assert time.monotonic() - began < seconds, self.command("status")
            time.sleep(0.05)
        return time.monotonic() - began

    def all_current(self) -> bool:
        """Every control plane publishes the latest edit, and every worker runs what they publish."""
        snapshots = [status["snapshot"] for status in self.ask_planes("/admin/status")]
        if any(snapshot["sequence"] < self.sequence for snapshot in snapshots):
            return False
        rows = self.listed()
        return len(rows) == len(self.workers) * len(self.planes) and all(row["current"] for row in rows)


@contextmanager
def fleet(folder: Path, *, cap: int, wait_secs: int, expiry_secs: int) -> Iterator[Fleet]:
    """A fleet without processes yet; all of them are gone when the block ends."""
    with ExitStack() as stack:
        yield Fleet(folder, stack, cap=cap, wait_secs=wait_secs, expiry_secs=expiry_secs)
