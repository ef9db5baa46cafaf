"""P1: what QueryFlux adds to a Trino query.

A mock coordinator and the proxy each run in a process of their own. Each run: 50 warm-ups, then 500 times
``SELECT 1`` directly and via the proxy, interleaved, every body checked. The overhead is the difference of
percentiles; of several runs the median is reported.

Between two queries an idle virtual machine puts its processors to sleep, and each is then answered by one
that has to be woken and has forgotten the code. So it is measured twice: as it is, and (rows ``awake_``) with
a loop of idle priority on each processor, which gives way to everything and keeps it awake.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.processes import queryflux
from bench.result import Result
from tests.kit.places import free_port

ID = "P1"
TITLE = "What the proxy adds to a Trino query"
RUNS = 7
WARM_UPS = 50
QUERIES = 500

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: {port}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  logging: {{level: info, format: json}}
clusters:
  mock: {{engine: trino, endpoint: "http://127.0.0.1:{mock}"}}
clusterGroups:
  main: {{members: [mock]}}
  other: {{members: [mock]}}
routers:
  - {{type: header, headerName: x-team, headerValueToGroup: {{etl: other}}}}
  - {{type: queryRegex, rules: [{{regex: "(?i)^\\\\s*insert", targetGroup: other}}]}}
routingFallback: main
"""


class Client:
    """One kept-alive connection that posts a statement and reads its answer, with nothing else in the way."""

    def __init__(self, port: int, headers: str = "") -> None:
        """``headers`` are sent besides a client's usual ones, each with its end of line."""
        self._socket = _connected(port)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = (
            f"POST /v1/statement HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            "User-Agent: trino-python-client/0.3\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\n"
            "Connection: keep-alive\r\nX-Trino-User: bench\r\nX-Trino-Source: bench\r\n"
            "X-Trino-Catalog: tpch\r\nX-Trino-Schema: tiny\r\n"
            "X-Trino-Time-Zone: UTC\r\nX-Trino-Client-Capabilities: PARAMETRIC_DATETIME\r\n"
            f"X-Trino-Transaction-Id: NONE\r\n{headers}Content-Length: 8\r\n\r\nSELECT 1"
        ).encode()

    def query(self) -> float:
        """Seconds from the first byte sent to the last byte of a right answer."""
        started = time.perf_counter()
        self.ask()
        head, body = self.answer()
        took = time.perf_counter() - started
        check(head, body)
        return took

    def ask(self) -> None:
        """Send the statement."""
        self._socket.sendall(self._request)

    def answer(self) -> tuple[bytes, bytes]:
        """Head and body of the answer."""
        data = self._socket.recv(65536)
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._socket.recv(65536)
        return head, body

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def check(head: bytes, body: bytes) -> None:
    """The answer is right."""
    assert head.startswith(b"HTTP/1.1 200"), head
    document = json.loads(body)
    assert document["data"] == [[1]], document
    assert document["stats"]["state"] == "FINISHED", document


def _connected(port: int, seconds: float = 10) -> socket.socket:
    """A connection, as soon as the port is open."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextmanager
def mock() -> Iterator[int]:
    """The coordinator's port."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.mock_trino"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def awake() -> Iterator[None]:
    """A loop on each processor that runs when nobody else wants to."""
    code = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one_run(direct: Client, proxied: Client) -> tuple[list[float], list[float]]:
    """Sorted times in ms, direct and via the proxy."""
    for _ in range(WARM_UPS):
        direct.query()
        proxied.query()
    plain, through = [], []
    for _ in range(QUERIES):
        plain.append(direct.query() * 1000)
        through.append(proxied.query() * 1000)
    return sorted(plain), sorted(through)


def percentile(values: list[float], share: float) -> float:
    """Of sorted values, the nearest rank."""
    return values[min(len(values) - 1, int(len(values) * share))]


def measure(mock_port: int, proxy_port: int, headers: str = "") -> dict[str, float]:
    """The figures, medians of RUNS runs; ``headers`` as of Client."""
    runs = []
    for _ in range(RUNS):
        direct, proxied = Client(mock_port), Client(proxy_port, headers)
        runs.append(one_run(direct, proxied))
        direct.close()
        proxied.close()
    figures: dict[str, float] = {}
    for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99)):
        plain = [percentile(direct, share) for direct, _ in runs]
        added = [percentile(proxied, share) - percentile(direct, share) for direct, proxied in runs]
        figures[f"added_{name}_ms"] = round(statistics.median(added), 4)
        figures[f"direct_{name}_ms"] = round(statistics.median(plain), 4)
    return figures


def run() -> Result:
    """Measure P1."""
    port, admin = free_port(), free_port()
    with mock() as mock_port, queryflux(CONFIG, port=port, admin=admin, mock=mock_port):
        figures = measure(mock_port, port)
        with awake():
            kept = measure(mock_port, port)
    figures |= {f"awake_{name}": value for name, value in kept.items()}
    ratio = {
        f"{name}_of_direct": round(1 + figures[f"added_{name}_ms"] / figures[f"direct_{name}_ms"], 3)
        for name in ("p50", "p95", "p99")
    }
    return Result(
        figures,
        peer="the mock coordinator asked directly",
        ratio=ratio,
        notes=f"medians of {RUNS} runs of {QUERIES} queries; routing, history and metrics on",
    )
