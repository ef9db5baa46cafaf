"""A control plane's endpoints behind a real server, and a worker's client of it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence

import uvicorn

from queryflux.app.ops import Server
from queryflux.controlplane.worker_app import WorkerApp, WorkerEndpoint
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.secret import Secret
from queryflux.runtime.clock import SystemClock
from queryflux.worker.client import Caller, HttpControlPlane, address_of
from queryflux.worker.port import NO_HEADERS, Reply

HOST = "127.0.0.1"
SECRET = "one that workers know"


def guard(peer: str, authorization: str, worker: str) -> None:
    """Lets in who knows the secret."""
    if authorization != f"Bearer {SECRET}":
        raise AuthenticationFailed("wrong secret")


@contextlib.asynccontextmanager
async def served(endpoints: Sequence[WorkerEndpoint]) -> AsyncIterator[int]:
    """Serve endpoints on this loop; gives the port."""
    listening = socket.socket()
    listening.bind((HOST, 0))
    app = WorkerApp(endpoints, guard)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http="httptools",
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve([listening]))
    await server.accepting.wait()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class Client:
    """A worker's client. ``missing`` names paths that an older control plane does not have; ``calls`` are all
    that were made."""

    def __init__(self, port: int, instance: str, missing: Sequence[str] = ()) -> None:
        caller = Caller(Secret(SECRET), instance, f"worker of {instance}")
        self._client = HttpControlPlane([address_of(f"http://{HOST}:{port}", None)], caller, SystemClock())
        self.port = port
        self.instance = instance
        self.missing = set(missing)
        self.calls: list[str] = []

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        self.calls.append(path)
        if path in self.missing:
            path += "-is-not-there"
        return await self._client.call(method, path, body, headers=headers, seconds=seconds)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()
