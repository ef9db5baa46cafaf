"""A worker, running in a thread of the test process, as its clients and its operators see it."""

import asyncio
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from queryflux.app.worker import Worker
from tests.kit.doors import HOST
from tests.kit.serving import in_thread

SECRET = "0123456789abcdef-workers"
LOCAL = """
queryflux:
  role: worker
  workerName: w1
  controlPlane: {{url: "{url}", secret: {secret}{control}}}
  opsListener: {{host: 127.0.0.1, port: 0}}
  historyUplink: {{enabled: false}}
  frontends:
    trinoHttp: {{host: 127.0.0.1, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: 0}}
    mysqlWire: {{host: 127.0.0.1, port: 0}}
    flightSql: {{host: 127.0.0.1, port: 0}}
  logging: {{level: warning}}
"""


def worker_file(url: str, control: str = "", secret: str = SECRET) -> str:
    """A worker's file with all doors; ``control`` is more of ``controlPlane``, with a comma before it."""
    return LOCAL.format(url=url, secret=secret, control=control)


class Answered:
    """What the ops listener says to one request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> dict[str, Any]:
        """The body as a document."""
        document: dict[str, Any] = json.loads(self.body)
        return document


def get(
    url: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None
) -> Answered:
    """A GET, whatever is answered."""
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return Answered(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answered(error.code, dict(error.headers), error.read())


class Working:
    """A running worker."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.worker = worker
        self._loop = loop

    def port(self, door: str) -> int:
        """The port of a door, by its configuration key; ``opsListener`` is the operator port."""
        return self.worker.ports()["adminApi" if door == "opsListener" else door]

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answered:
        """Ask the ops listener."""
        return get(f"http://{HOST}:{self.port('opsListener')}{path}", headers)

    @property
    def status(self) -> dict[str, Any]:
        """The document of /worker/status."""
        return self.get("/worker/status").json

    def metric(self, name: str) -> float:
        """One value of /metrics, by its name and labels."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics").body.decode(), re.M)
        assert found is not None, name
        return float(found[1])

    def until(self, what: Callable[[dict[str, Any]], object], seconds: float = 60) -> dict[str, Any]:
        """The status, once ``what`` is true of it."""
        deadline = time.monotonic() + seconds
        while not what(status := self.status):
            assert time.monotonic() < deadline, status
            time.sleep(0.02)
        return status


@contextmanager
def working(text: str) -> Iterator[Working]:
    """Run a worker with this file; it is gone when the block ends."""
    with in_thread(text, None, Worker) as (worker, loop):
        yield Working(worker, loop)
