"""Servers that benchmarks measure beside: QueryFlux in a process of its own, PostgreSQL, PgBouncer."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.databases import Database
from tests.kit.places import free_port
from tests.kit.postgres import PostgresServer, find_binaries, unprivileged


@contextmanager
def queryflux(config: str, *options: str, **ports: int) -> Iterator[subprocess.Popen[bytes]]:
    """``queryflux serve``, with further ``options``, on a configuration until the block ends; ``admin`` among
    ``ports`` is its operator port, on which it says when it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "queryflux.yaml")
        path.write_text(config.format(**ports), encoding="utf-8")
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "queryflux.cli", "serve", "-c", str(path), *options],
                stdout=log,
                stderr=log,
            )
        try:
            wait_ready(process, ports["admin"], Path(folder, "log"))
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when /readyz says so. Raises RuntimeError with the log when it does not come."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise RuntimeError(f"QueryFlux did not start:\n{log.read_text()}")


@contextmanager
def postgres(**settings: str) -> Iterator[PostgresServer]:
    """A PostgreSQL of our own. Raises RuntimeError when there are no binaries."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("no PostgreSQL binaries (apt-get install postgresql)")
    server = PostgresServer(binaries, **settings)
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def durable_database(name: str) -> Iterator[Database]:
    """A database with our tables on a PostgreSQL of our own that writes to disk for every commit. Raises as
    ``postgres``."""
    with postgres(fsync="on", synchronous_commit="on", full_page_writes="on") as server:
        with server.admin("postgres") as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        database = Database(server, name)
        database.migrate()
        yield database


@contextmanager
def pgbouncer(server: PostgresServer, mode: str) -> Iterator[int]:
    """PgBouncer before ``server`` in a pool mode; gives its port. Raises RuntimeError when it is missing."""
    tool = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(tool).exists():
        raise RuntimeError("no PgBouncer (apt-get install pgbouncer)")
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "users").write_text('"trusted" ""\n', encoding="utf-8")
        settings = (
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n"
            f"pool_mode = {mode}\nmax_client_conn = 200\ndefault_pool_size = 20\nlogfile = {folder}/log\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        (folder / "pgbouncer.ini").write_text(settings, encoding="utf-8")
        process = subprocess.Popen(
            [tool, "-q", str(folder / "pgbouncer.ini")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **unprivileged(),
        )
        try:
            time.sleep(1)
            if process.poll() is not None:
                raise RuntimeError("PgBouncer did not start")
            yield port
        finally:
            process.terminate()
            process.wait(10)


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
