"""Results go from engine to worker to client: what passes between a worker and its control plane is small."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.kit.doors import DOORS, HOST
from tests.kit.serving import serving
from tests.kit.working import SECRET, worker_file, working

pytest.importorskip("duckdb", reason="DuckDB is not installed")

CENTRAL = f"""
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  workerApi: {{enabled: true, secret: {SECRET}}}
  coordination: {{leaseRenewSecs: 1, leaseExpirySecs: 5}}
  logging: {{level: error}}
clusters:
  duck: {{engine: duckDb, threads: 1, maxRunningQueries: 4}}
clusterGroups:
  main: {{members: [duck]}}
routingFallback: main
"""
ROWS = 20_000
LONG = f"SELECT repeat('x', 100) AS text FROM range({ROWS})"


class Meter:
    """Forwards a port of loopback, and counts the bytes that pass either way."""

    def __init__(self, target: int) -> None:
        self.passed = 0
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection((HOST, self._target))
                self._open += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.passed += len(data)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def metered(target: int) -> Iterator[Meter]:
    meter = Meter(target)
    try:
        yield meter
    finally:
        meter.close()


def test_results_never_pass_through_the_control_plane() -> None:
    with serving(CENTRAL) as served, metered(served.port("adminApi")) as meter:
        file = worker_file(f"http://{HOST}:{meter.port}").replace(
            "{enabled: false}", "{flushIntervalSecs: 1}"
        )
        with working(file) as worker:
            worker.until(lambda status: status["ready"])
            for door in DOORS:
                with door.connect(worker.port(door.name)) as client:
                    assert len(client.ask(LONG)) == ROWS
            status = worker.until(lambda status: status["historyUplink"]["delivered"] == len(DOORS))
            assert status["coordination"]["state"] == "fleet", "places are had from the control plane"
        assert 1000 < meter.passed < 100_000, "of some 8 MB that the clients got"
