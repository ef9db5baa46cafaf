"""One listening port: bind, limit, hand each connection to its protocol, stop.

The protocol decides when TLS begins (an SSLRequest, a capability flag), so the context is only kept here. A
connection over ``maxConnections`` goes to ``refuse``, which says so in the protocol's own words; no more than
REFUSALS of those are spoken to at a time, so that a flood costs a closed socket each and nothing else.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from queryflux.config.listeners import ListenerConfig, ListenerTls
from queryflux.model.errors import ConfigError, QueryFluxError
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.turns import Acceptor, Shared

log = logging.getLogger(__name__)

BACKLOG = 1024
REFUSALS = 64
LINGER_SECONDS = 10.0
"""How long a closed connection may take to fetch what was written to it."""
HANDSHAKE_SECONDS = 30.0
"""From accept to an authenticated client, whatever it sends and however slowly."""

Handle = Callable[[ByteStream], Awaitable[None]]


class Listener:
    """Accepts on one address and runs ``handle`` for each connection in a task of its own.

    The stream is closed when ``handle`` returns. ``handle`` keeps its own hand-shake deadline with
    ``handshake``; ``refuse`` runs under one.
    """

    def __init__(
        self,
        name: str,
        config: ListenerConfig,
        handle: Handle,
        *,
        refuse: Handle,
        metrics: Metrics,
        tls: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        shared: Shared | None = None,
    ) -> None:
        """``name`` is the protocol's label in metrics and logs. ``implicit_tls``: TLS, where there is a
        context, begins with the first byte (HTTPS) and not when the protocol says so. ``shared``: sockets
        that were bound already, and that others accept on too; ``maxConnections`` is then for all together.
        """
        self.name = name
        self.tls = tls
        self._implicit_tls = tls if implicit_tls else None
        self.handshake_seconds = handshake_seconds
        self._config = config
        self._limit = config.max_connections or 0
        self._handle = handle
        self._refuse = refuse
        self._tasks = TaskGroup(name)
        self._refusals = TaskGroup(f"{name}/refused")
        self._leaving: set[ByteStream] = set()
        self._shared = shared
        self._server: asyncio.Server | None = None
        self._acceptors: list[Acceptor] = []
        self._accepting = False
        self._open = metrics.gauge("queryflux_connections", protocol=name)
        self._accepted = metrics.counter("queryflux_connections_accepted_total", protocol=name)
        self._refused = metrics.counter("queryflux_connections_refused_total", protocol=name)
        self._port = 0

    async def start(self) -> None:
        """Bind, unless that was done, and accept. Raises ConfigError when the address cannot be had."""
        self._accepting = True
        shared = self._shared
        if shared is not None:
            shared.tally.write(0)
            self._acceptors = [Acceptor(shared, listening, self._connected) for listening in shared.sockets]
            self._port = int(shared.sockets[0].getsockname()[1])
            return
        host, port = self._config.host, self._config.port
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: ByteStream(self._connected),
                host or None,
                port,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise _not_bound(self.name, self._config, error) from error
        for listening in self._server.sockets:
            _keep_alive(listening)
        self._port = int(self._server.sockets[0].getsockname()[1])

    @property
    def port(self) -> int:
        """The port that was bound, also when the configuration says 0."""
        return self._port

    @property
    def connections(self) -> int:
        """Connections that ``handle`` is busy with."""
        return len(self._tasks)

    def handshake(self) -> asyncio.Timeout:
        """A context that raises TimeoutError when its body takes longer than a hand-shake may."""
        return asyncio.timeout(self.handshake_seconds)

    def _connected(self, stream: ByteStream) -> None:
        if not self._accepting:
            stream.abort()
        elif self._limit and self._connections_of_all() >= self._limit:
            self._refused.inc()
            if len(self._refusals) >= REFUSALS:
                stream.abort()
            else:
                self._refusals.spawn("connection", self._turn_away(stream))
        else:
            self._accepted.inc()
            self._tasks.spawn("connection", self._serve(stream)).add_done_callback(self._count)
            self._count()

    def _connections_of_all(self) -> int:
        return self._shared.tally.total() if self._shared is not None else len(self._tasks)

    def _count(self, _: object = None) -> None:
        if self._shared is not None and self._accepting:
            self._shared.tally.write(len(self._tasks))

    async def _serve(self, stream: ByteStream) -> None:
        self._open.inc()
        try:
            if self._implicit_tls is not None:
                await self._start_tls(stream, self._implicit_tls)
            await self._handle(stream)
        except (ConnectionError, TimeoutError, ssl.SSLError) as error:
            log.debug("%s: connection from %s ended: %s", self.name, stream.peer, error)
        except QueryFluxError as error:
            log.info("%s: connection from %s ended: %s", self.name, stream.peer, error.message)
        except Exception:
            log.exception("%s: connection from %s failed", self.name, stream.peer)
        except asyncio.CancelledError:
            stream.abort()
            raise
        finally:
            self._open.dec()
            self._close(stream)

    async def _turn_away(self, stream: ByteStream) -> None:
        try:
            if self._implicit_tls is not None:
                await self._start_tls(stream, self._implicit_tls)
            async with self.handshake():
                await self._refuse(stream)
        except (ConnectionError, TimeoutError, ssl.SSLError, QueryFluxError) as error:
            log.debug("%s: refused connection from %s ended: %s", self.name, stream.peer, error)
        finally:
            self._close(stream)

    async def _start_tls(self, stream: ByteStream, context: ssl.SSLContext) -> None:
        """The client begins unasked: what has come belongs to its hand-shake."""
        await stream.start_tls(context, server_side=True, timeout=self.handshake_seconds, received=b"")

    def _close(self, stream: ByteStream) -> None:
        stream.close()
        self._leaving.add(stream)
        timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, stream.abort)

        def left() -> None:
            timer.cancel()
            self._leaving.discard(stream)

        stream.on_lost(left)

    def stop_accepting(self) -> None:
        """Take no further connections; those that are open go on."""
        if not self._accepting:
            return
        self._accepting = False
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._shared is not None:
            self._shared.tally.write(None)
            for acceptor in self._acceptors:
                acceptor.close()
            for listening in self._shared.sockets:
                listening.close()

    async def close(self, grace: float = 0) -> None:
        """Stop accepting, give open connections ``grace`` seconds to end by themselves and to fetch what was
        written to them, then cancel them. No task is left after it returns."""
        self.stop_accepting()
        try:
            async with asyncio.timeout(grace):
                await self._tasks.wait()
                for stream in list(self._leaving):
                    await stream.wait_closed()
        except TimeoutError:
            log.debug("%s: %d connections are cut", self.name, len(self._tasks))
        await self._refusals.close()
        await self._tasks.close()


def bind(name: str, config: ListenerConfig) -> list[socket.socket]:
    """Sockets that listen on an address, for the processes that will accept on them. Of several addresses of
    a name those that this machine does not have are left out. Raises ConfigError."""
    made: list[socket.socket] = []
    missing: OSError | None = None
    port = config.port
    try:
        for family, _, _, _, address in _places(config.host or None, port):
            try:
                # Where any port would do all of them take the same.
                listening = _listening(family, (address[0], port or address[1], *address[2:]))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                log.info("%s: this machine has no address %s", name, address[0])
                continue
            made.append(listening)
            port = listening.getsockname()[1]
        if missing is not None and not made:
            raise missing
    except OSError as error:
        for listening in made:
            listening.close()
        raise _not_bound(name, config, error) from error
    return made


def _listening(family: int, address: tuple[str | int, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        _keep_alive(listening)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _places(host: str | None, port: int) -> list[tuple[int, int, int, str, tuple[str | int, ...]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def _not_bound(name: str, config: ListenerConfig, error: OSError) -> ConfigError:
    number = error.errno or 0  # the loop's own words name the address once more; a name's errors are below 0
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    return ConfigError(
        f"the {name} listener cannot bind {config.host}:{config.port}: {reason}",
        hint=how_to_bind(error, f"queryflux.frontends.{name[:1].lower()}{name[1:]}"),
    )


def how_to_bind(error: OSError, block: str) -> str:
    """What to do about an address that could not be had, which ``block`` of the configuration asks for."""
    if error.errno == errno.EACCES:
        return f"low ports need rights that this process does not have: set {block}.port, 1024 or above"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or isinstance(error, socket.gaierror):
        return f"set {block}.host to an address of this machine"
    return f"stop what holds the port, or set {block}.port"


def _keep_alive(listening: socket.socket) -> None:
    """Connections inherit it: a client whose machine is gone is noticed in minutes, also while its query
    runs."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15)):
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, seconds)


def server_context(tls: ListenerTls, alpn: list[str] | None = None) -> ssl.SSLContext:
    """The TLS context of a listener: TLS 1.2 and later. Raises ConfigError naming the file at fault."""
    for path in (tls.cert_file, tls.key_file):
        if not Path(path).is_file():
            raise ConfigError(f"the TLS file {path} does not exist", hint="check certFile and keyFile")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"the TLS certificate {tls.cert_file} and key {tls.key_file} cannot be used: {error}",
            hint="both must be PEM files, and the key must belong to the certificate",
        ) from error
    if alpn:
        context.set_alpn_protocols(alpn)
    return context
