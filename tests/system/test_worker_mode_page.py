"""docs/worker-mode.md: its commands, run as they stand there, and its load balancer before a real fleet."""

import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trino

from queryflux.cli import main
from queryflux.model.ids import process_tag_of
from tests.kit.databases import Database, new_database, own_server
from tests.kit.doors import DOORS, HOST
from tests.kit.places import free_port
from tests.kit.postgres import PostgresServer
from tests.kit.process import Process, process
from tests.kit.working import SECRET, get

pytest.importorskip("duckdb", reason="DuckDB is not installed")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "worker-mode.md").read_text(encoding="utf-8")
HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
POSTGRES = DOORS[1]
PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
LONG = "SELECT count(*) FROM range(4000000) AS a(x), range(100000) AS b(y) WHERE x + y = -7"


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str) -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```$", section(title), re.M | re.S)


def with_ports(text: str, ports: Mapping[str, int]) -> str:
    """The text with other ports than those it names."""
    names = "|".join(ports)
    return re.sub(rf"\b(?:{names})\b", lambda found: str(ports[found[0]]), text)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL that lets the page's role in."""
    made = own_server("postgres18")
    try:
        with (made.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all queryflux 127.0.0.1/32 scram-sha-256\n")
        made.scalar("SELECT pg_reload_conf()")
        yield made
    finally:
        made.remove()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_a_fleet_on_one_host_by_hand(server: PostgresServer, tmp_path: Path) -> None:
    ports = {str(port): free_port() for port in (9000, 9101, 9102, 8080, 8081, 8082, 5433, 5434)}
    ports["5432"] = server.port
    shutil.copytree(ROOT / "examples" / "fleet", tmp_path / "examples" / "fleet")
    for file in (tmp_path / "examples" / "fleet").iterdir():
        file.write_text(with_ports(file.read_text(), ports))
    commands = with_ports("".join(blocks("A fleet on one host")), ports)
    commands, stop, rest = commands.partition("kill -TERM ")  # with a record that is on nobody's way yet
    last = f"psql -h {HOST} -p {ports['5433']} -U ann -d main -c 'SELECT 43'\n"
    commands += last + stop + rest
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("QUERYFLUX_")},
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PGHOST": HOST,
        "PGPORT": str(server.port),
        "PGUSER": "trusted",
        "QUERYFLUX_ADMIN_URL": f"http://{HOST}:{ports['9000']}",
    }
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=120)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert shell.returncode == 0, output
    assert re.search(r"^ +42$", output, re.M), output
    for worker in ("edge-1", "edge-2"):
        assert re.search(rf"^{worker} +online +[0-9a-f]{{16}} +controlPlane .* yes$", output, re.M), output
    assert re.search(r"Success +edge-1 +ann .*SELECT 42", output), output
    assert "clusters.scratch.maxRunningQueries: 4 -> 2" in output
    assert '"sequence":2' in output
    assert output.count("draining") == 3
    assert "were not stored" not in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["examples"]
    with psycopg.connect(host=HOST, port=server.port, user="trusted", dbname="queryflux") as kept:
        stored = kept.execute("SELECT count(*) FROM query_records WHERE sql_text = 'SELECT 43'")
        assert stored.fetchone() == (1,)


class Balanced:
    """Two control planes and two workers behind HAProxy, with the addresses that its file asks for."""

    def __init__(self, folder: Path, database: Database, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._examples = ROOT / "examples" / "fleet"
        self.bind = {name: free_port() for name in ("CONTROL", "TRINO", "POSTGRES")}
        self._statistics = free_port()
        secrets = {"WORKER_SECRET": SECRET, "DATABASE_URL": database.dsn}
        self.controls = [self._start(f"control-{i}", "control-plane.yaml", secrets) for i in (1, 2)]
        ops = [free_port(), free_port()]
        self.workers = [
            self._start(f"worker-{i}", f"worker-{i}.yaml", secrets, ops[i - 1], ops[2 - i]) for i in (1, 2)
        ]
        for worker in self.workers:
            worker.until(partial(opened, worker, "postgresWire"))
        addresses = {f"{name}_BIND": f"{HOST}:{port}" for name, port in self.bind.items()}
        for i, (control, worker) in enumerate(zip(self.controls, self.workers, strict=True), 1):
            addresses[f"CONTROL_{i}"] = f"{HOST}:{control.port('operator port')}"
            addresses[f"WORKER_{i}_HOST"] = HOST
            addresses[f"WORKER_{i}_OPS"] = str(worker.port("operator port"))
            addresses[f"WORKER_{i}_TRINO"] = f"{HOST}:{worker.port('trinoHttp')}"
            addresses[f"WORKER_{i}_POSTGRES"] = f"{HOST}:{worker.port('postgresWire')}"
        extra = folder / "statistics.cfg"
        extra.write_text(
            f"global\n    stats socket ipv4@{HOST}:{self._statistics} level user\n", encoding="utf-8"
        )
        balancer = subprocess.Popen(
            ["haproxy", "-db", "-f", HAPROXY, "-f", extra],
            env={**os.environ, "PATH": PATH, **addresses},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(balancer.wait, 10)
        stack.callback(balancer.kill)

    def _start(
        self, name: str, file: str, environ: Mapping[str, str], own_ops: int = 0, peer_ops: int = 0
    ) -> Process:
        text = (self._examples / file).read_text(encoding="utf-8")
        if "role: worker" in text:
            text = text.replace(f"http://{HOST}:9000", f"http://{HOST}:{self.bind['CONTROL']}")
            text = re.sub(rf'address: "{HOST}:\d+"', f'address: "{HOST}:{peer_ops}"', text)
            text = re.sub(r"(opsListener:.*port: )\d+", rf"\g<1>{own_ops}", text)
        else:
            text = re.sub(r"(adminApi:.*port: )\d+", r"\g<1>0", text)
        text = re.sub(r"((?:trinoHttp|postgresWire):.*port: )\d+", r"\g<1>0", text)
        folder = self._folder / name
        folder.mkdir()
        return self._stack.enter_context(process(folder, text, environ))

    def owner(self, query_id: str) -> Process:
        """The worker that made an id, by the end of it."""
        made = {process_tag_of(query_of(worker.port("trinoHttp"))): worker for worker in self.workers}
        return made[process_tag_of(query_id)]

    def until(self, what: Callable[[], object]) -> None:
        self.workers[0].until(what)

    def reached(self) -> bool:
        """Whether the balancer has found all that stand behind its ports."""
        return [state for _, state in self._servers()] == ["UP L7OK"] * 6

    def left(self, worker: Process) -> bool:
        """Whether the balancer sends nothing new to a worker: one failed look (``UP 1/2``) is not enough."""
        name = f"worker-{self.workers.index(worker) + 1}"
        states = [state for server, state in self._servers() if server == name]
        return len(states) == 2 and all(state.startswith("DOWN ") for state in states)

    def _servers(self) -> list[tuple[str, str]]:
        """What stands behind each of the balancer's ports, with its state and how it was last found."""
        try:
            with socket.create_connection((HOST, self._statistics), timeout=10) as asking:
                asking.sendall(b"show stat\n")
                said = asking.makefile(encoding="utf-8").read()
        except ConnectionRefusedError:
            return []
        servers = [row for row in csv.DictReader(said.removeprefix("# ").splitlines()) if row["type"] == "2"]
        return [(row["svname"], f"{row['status']} {row['check_status']}") for row in servers]

    def ready(self) -> bool:
        return all(
            get(f"http://{HOST}:{worker.port('operator port')}/readyz").status == 200
            for worker in self.workers
        )


@pytest.mark.skipif(shutil.which("haproxy", path=PATH) is None, reason="HAProxy is not installed")
def test_a_fleet_behind_the_load_balancer_of_the_page(tmp_path: Path) -> None:
    with new_database("postgres18") as database, ExitStack() as stack:
        fleet = Balanced(tmp_path, database, stack)
        fleet.until(fleet.ready)
        control = f"http://{HOST}:{fleet.bind['CONTROL']}"
        fleet.until(fleet.reached)

        cursor = trino_client(fleet.bind["TRINO"]).cursor()
        for _ in range(3):  # each page and poll comes to the worker that has the query
            cursor.execute("SELECT * FROM range(100000)")
            assert len(cursor.fetchall()) == 100_000
        cancel_through(fleet.bind["POSTGRES"])

        fleet.controls[0].signal(signal.SIGKILL)
        fleet.until(lambda: edit(tmp_path / "edit.yaml", control))
        fleet.until(lambda: [sequence(worker) for worker in fleet.workers] == [2, 2])
        assert fleet.ready()
        assert POSTGRES.ask(fleet.bind["POSTGRES"], "SELECT 43") == [(43,)], "the other one grants leases"

        cursor.execute("SELECT repeat('x', 300) FROM range(100000)")  # pages enough to be some way into
        leaving = fleet.owner(cursor.query_id)
        (staying,) = set(fleet.workers) - {leaving}
        leaving.signal()
        fleet.until(lambda: fleet.left(leaving))
        assert query_of(fleet.bind["TRINO"]).endswith(process_tag_of(query_of(staying.port("trinoHttp"))))
        assert len(cursor.fetchall()) == 100_000, "a draining worker is not ready, and ends what it has"
        assert leaving.wait() == 0


def trino_client(port: int) -> Any:
    """A client that takes the first answer to any request."""
    return trino.dbapi.connect(HOST, port, user="ann", max_attempts=1)  # type: ignore[no-untyped-call]


def query_of(port: int) -> str:
    """The id of a query that was just asked there."""
    cursor = trino_client(port).cursor()
    cursor.execute("SELECT 1")
    query_id: str = cursor.query_id
    return query_id


def cancel_through(port: int) -> None:
    """A cancel, which comes on a connection of its own, ends the query."""
    with psycopg.connect(host=HOST, port=port, user="ann", dbname="main", autocommit=True) as client:
        ended = threading.Event()

        def cancel() -> None:
            while not ended.wait(1):  # one that comes before the query ends nothing
                client.cancel_safe()

        cancelling = threading.Thread(target=cancel)
        cancelling.start()
        try:
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute(LONG)
        finally:
            ended.set()
            cancelling.join()


def edit(file: Path, control: str) -> bool:
    """Another limit, by whichever control plane the balancer gives us; whether that was done."""
    file.write_text("clusters: {scratch: {engine: duckDb, maxRunningQueries: 2}}", encoding="utf-8")
    return main(["config", "apply", str(file), "--url", control]) == 0


def opened(worker: Process, door: str) -> bool:
    """Whether a worker has said where a door listens."""
    return any(f"{door} listens" in line for line in worker.lines)


def sequence(worker: Process) -> object:
    """How far the configuration is that a worker uses."""
    return get(f"http://{HOST}:{worker.port('operator port')}/worker/status").json["sequence"]
