"""Somebody who calls the worker API of a running process as a worker does, and edits as an operator does."""

import http.client
import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import WorkerSnapshot, read
from tests.kit.doors import HOST
from tests.kit.operators import Reply

SECRET = "0123456789abcdef-worker"
ROTATED = "fedcba9876543210-worker"


class WorkerCaller:
    """Each call is on a connection of its own."""

    def __init__(self, port: int, secret: str = SECRET) -> None:
        self.port = port
        self.secret = secret

    def __call__(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET", body: bytes = b""
    ) -> Reply:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            sent = {"Authorization": f"Bearer {self.secret}", **(headers or {})}
            connection.request(method, path, body or None, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def snapshot(self) -> WorkerSnapshot:
        """What is published, verified."""
        reply = self(CONFIG)
        assert reply.status == 200, reply.body
        return read(reply.body)

    def wait(self, has: WorkerSnapshot, seconds: float = 20, **more: str) -> Reply:
        """Wait for news."""
        asked = {"revision": has.revision, "epoch": has.epoch, "sequence": str(has.sequence), **more}
        return self(f"{CONFIG_WAIT}?{urlencode({**asked, 'timeoutSecs': str(seconds)})}")

    def operator(self, method: str, path: str, body: Any = None) -> Reply:
        """A call of the admin API."""
        headers = {"Authorization": "Basic YWRtaW46YWRtaW4=", "Content-Type": "application/json"}
        return self(path, headers, method, b"" if body is None else json.dumps(body).encode())


class Waiting:
    """A wait in a thread of its own."""

    def __init__(self, caller: WorkerCaller, has: WorkerSnapshot, seconds: float = 20, **more: str) -> None:
        self._reply: Reply | None = None
        self._thread = threading.Thread(target=self._wait, args=(caller, has, seconds, more))
        self._thread.start()

    def _wait(self, caller: WorkerCaller, has: WorkerSnapshot, seconds: float, more: dict[str, str]) -> None:
        self._reply = caller.wait(has, seconds, **more)

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return not self._thread.is_alive()

    def reply(self, seconds: float = 20) -> Reply:
        """The answer, once it is there."""
        self._thread.join(seconds)
        assert self._reply is not None, "the wait goes on"
        return self._reply
