"""HTTP/1.1 to the control planes of a fleet: several addresses, one of which answers.

A call goes to the address that answered last. Where no connection can be made, or the answer is 429, 502,
503 or 504, the others are tried in their turn, and an address that failed goes to the end. So it is when who
answers knows nothing of configurations (404, 405): that is no control plane. And so it is when the connection
breaks, for every call of the worker API may be done twice; but not when half of a call's time has
gone, or ELSEWHERE_SECONDS: it fails then, and the next one goes elsewhere. A wait that breaks late would not
have the time to wait again.

Each call has a connection to itself while it lasts, so a long wait keeps no other waiting. Redirects are not
followed: the secret goes where the configuration says, and nowhere else.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from queryflux.config.fleet import CallerTls
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT, INSTANCE_HEADER, PEER_CONFIG, WORKER_HEADER
from queryflux.model.errors import ConfigError, ProtocolViolation, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import Broken, Call, Connection, Connections, Unreachable
from queryflux.runtime.threads import in_thread
from queryflux.wire.http1 import Response, ResponseParser, encode_request, unpack
from queryflux.worker.port import NO_HEADERS, Reply, SecretRefused

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of an answer that may be a configuration."""
MAX_SHORT_BYTES = 4 * 1024 * 1024
"""Of any other."""
LONG_PATHS = frozenset((CONFIG, CONFIG_WAIT, PEER_CONFIG))
MAX_HEADER_BYTES = 64 * 1024
LONG_BYTES = 128 * 1024
"""Packed answers that are longer are unpacked off the loop."""
CONNECT_SECONDS = 3.0
"""An address that takes no connection within so long is passed over; less when time is short."""
ELSEWHERE_SECONDS = 4.0
TOO_MANY = 429
UNABLE = frozenset((TOO_MANY, 502, 503, 504))
REFUSED = frozenset((401, 403))
NOBODY = frozenset((404, 405))
"""Who answers a plain question for the configuration like this serves no workers."""
PROBLEM = "application/problem+json"
MOST_REASON = 300
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where somebody answers calls. ``authority`` goes into Host; ``base`` is the path before ``/worker``,
    without a slash at its end."""

    host: str
    port: int
    authority: str
    base: str = ""
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    secret: Secret | None = field(repr=False)
    """None: the one who is called knows no secret of ours."""
    instance: str
    worker: str

    def headers(self) -> list[tuple[str, str]]:
        """What every call carries."""
        secret = self.secret
        return [
            *([("Authorization", f"Bearer {secret.reveal()}")] if secret is not None else []),
            (INSTANCE_HEADER, self.instance),
            (WORKER_HEADER, self.worker),
            ("User-Agent", "queryflux-worker"),
            ("Accept-Encoding", "gzip"),
        ]


def address_of(url: str, tls: CallerTls | None) -> Address:
    """An address as configured. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ConfigError(f"{url!r} is not an http or https URL", hint="such as https://control:9000")
    return Address(
        parts.hostname,
        port or DEFAULT_PORTS[parts.scheme],
        parts.netloc.rpartition("@")[2],
        parts.path.rstrip("/"),
        caller_context(tls) if parts.scheme == "https" else None,
        tls.server_name if tls is not None else None,
    )


def caller_context(tls: CallerTls | None) -> ssl.SSLContext:
    """TLS towards another process, as configured. Raises ConfigError when ``caFile`` cannot be used."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file if tls is not None else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls.caFile: {error}", hint="a PEM file with the authorities to trust") from error
    if tls is not None and tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Bounded(Connections[Connection[ResponseParser], Response]):
    """Connections to one address for answers of at most so many bytes."""

    def __init__(self, address: Address, clock: Clock, most: int) -> None:
        def made(stream: ByteStream) -> Connection[ResponseParser]:
            return Connection(stream, ResponseParser(most, MAX_HEADER_BYTES), clock)

        super().__init__(address, made, ProtocolViolation, clock)
        self.most = most


class Server:
    """The connections to one address."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.refuses = False
        """It refused our secret; 429 may follow that, and says nothing else."""
        self._clock = clock
        self._long = Bounded(address, clock, MAX_BODY_BYTES)
        self._short = Bounded(address, clock, MAX_SHORT_BYTES)

    async def call(
        self, method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]], until: float
    ) -> Reply:
        """One call; ``until`` is monotonic. Raises Unreachable, Broken."""
        address = self.address
        connections = self._long if path.partition("?")[0] in LONG_PATHS else self._short
        message = encode_request(method, address.base + path, [("Host", address.authority), *headers], body)
        while True:
            left = max(0.01, until - self._clock.monotonic())
            try:
                response = await connections.request(
                    method, message, Call(), seconds=left, connect_seconds=min(CONNECT_SECONDS, left)
                )
            except Broken as error:
                if not error.stale:
                    raise
            else:
                return await _reply(response, connections.most)

    def close(self) -> None:
        """Break off everything."""
        self._long.close()
        self._short.close()


async def _reply(response: Response, most: int) -> Reply:
    """Raises Broken."""
    body, coding = response.body, response.headers.get("content-encoding")
    try:
        if coding is not None and len(body) >= LONG_BYTES:
            body = await in_thread("unpack", unpack, body, coding, most)
        else:
            body = unpack(body, coding, most)
    except ProtocolViolation as error:
        raise Broken(error.message) from error
    return Reply(response.status, response.headers, body)


class HttpControlPlane:
    """Implements ``ControlPlane``."""

    def __init__(self, addresses: Sequence[Address], caller: Caller, clock: Clock) -> None:
        """``addresses``: at least one, in the order in which they are tried at first."""
        self._headers = caller.headers()
        self._clock = clock
        self._servers = [Server(address, clock) for address in addresses]

    @property
    def answering(self) -> str:
        """The address that calls go to first."""
        return self._servers[0].address.authority

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        """As ControlPlane."""
        began = self._clock.monotonic()
        sent = None if method == "GET" else body
        mine = [*self._headers, *headers.items()]
        failures: list[str] = []
        refused = False
        unable = UNABLE | REFUSED | (NOBODY if path == CONFIG else frozenset())
        for server in list(self._servers):
            name = server.address.authority
            try:
                reply = await server.call(method, path, sent, mine, began + seconds)
            except Unreachable as error:
                failures.append(str(error))
            except Broken as error:
                failures.append(f"{name}: {error}")
            else:
                if reply.status != TOO_MANY:
                    server.refuses = reply.status in REFUSED
                if reply.status not in unable:
                    self._first(server)
                    return reply
                refused = refused or server.refuses
                failures.append(f"{name}: {_unable(reply, refuses=server.refuses)}")
            self._last(server)
            if self._clock.monotonic() - began > min(seconds / 2, ELSEWHERE_SECONDS):
                break
        kind = SecretRefused if refused else StoreUnavailable
        raise kind("; ".join(failures), hint="see docs/worker-mode.md")

    def _first(self, server: Server) -> None:
        if self._servers[0] is not server:
            self._servers.remove(server)
            self._servers.insert(0, server)

    def _last(self, server: Server) -> None:
        self._servers.remove(server)
        self._servers.append(server)

    def close(self) -> None:
        """Break off everything."""
        for server in self._servers:
            server.close()


def _unable(reply: Reply, *, refuses: bool) -> str:
    """Why this answer is none, in one line; with a control plane's own reason, if it gave one. ``refuses``:
    it refused our secret."""
    status = reply.status
    if refuses:
        return f"the shared secret is refused ({status})"
    if status in NOBODY:
        return f"it answers {status}: is workerApi.enabled there?"
    try:
        said = f"it answers {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"it answers {status}"
    reason = _reason(reply)
    return f"{said} ({reason})" if reason else said


def _reason(reply: Reply) -> str:
    if not reply.headers.get("content-type", "").startswith(PROBLEM):
        return ""
    try:
        problem = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return " ".join(detail.split())[:MOST_REASON] if isinstance(detail, str) else ""
