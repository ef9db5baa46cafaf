"""The listener of the operator port (docs/operations.md); what it serves is controlplane/operator_port.py."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from queryflux.app.bounded_http import BoundedHttp
from queryflux.config.listeners import Address
from queryflux.frontends.listener import how_to_bind, server_context
from queryflux.model.errors import ConfigError

KEEP_ALIVE_SECS = 75
"""Longer than workers keep a connection that they do not use, so that it is them who close it."""


class Server(uvicorn.Server):
    """uvicorn without signal handlers, which says when it accepts."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


class OpsListener:
    """Serves an application on the operator port, on our loop and without signal handlers of its own."""

    def __init__(self, config: Address, app: ASGIApp, key: str = "adminApi") -> None:
        """``key`` is where ``config`` stands under ``queryflux``."""
        self._config = config
        self._app = app
        self._key = key
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Bind and serve. Raises ConfigError when the address cannot be had."""
        if self._config.tls is not None:
            server_context(self._config.tls)  # says what is wrong with the files; uvicorn would not
        listening = self._bind()
        self.port = listening.getsockname()[1]
        tls = self._config.tls
        self._server = Server(
            uvicorn.Config(
                self._app,
                log_config=None,
                access_log=False,
                lifespan="on",
                http=BoundedHttp,
                timeout_keep_alive=KEEP_ALIVE_SECS,
                proxy_headers=False,  # who calls is who connects; login.py looks at the headers itself
                server_header=False,
                timeout_graceful_shutdown=1,
                ssl_certfile=tls.cert_file if tls else None,
                ssl_keyfile=tls.key_file if tls else None,
            )
        )
        self._task = asyncio.create_task(self._server.serve([listening]), name="ops listener")
        accepting = asyncio.ensure_future(self._server.accepting.wait())
        await asyncio.wait({self._task, accepting}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            accepting.cancel()
            self._task.result()

    def _bind(self) -> socket.socket:
        host, port = self._config.host, self._config.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            listening.close()
            raise ConfigError(
                f"the operator port cannot bind {host}:{port}: {error.strerror}",
                hint=how_to_bind(error, f"queryflux.{self._key}"),
            ) from error
        listening.setblocking(False)
        return listening

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
