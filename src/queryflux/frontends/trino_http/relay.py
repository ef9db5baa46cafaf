"""Requests that one process passes on to the one that answers for a query, and how it proves that it may.

Who passes on has checked the client, and says who it is; no credentials travel. The proof is an HMAC, by a
key that exactly the processes of one database know, over everything that the request says and the
instance that it is for: what is overheard is good for the same request at the same process, and for no other.
"""

import asyncio
import hmac
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from queryflux.model.errors import AuthenticationFailed, ProtocolViolation
from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.wire.http1 import Request, Response, ResponseParser, encode_request

SCHEME = "QueryFlux-Relay"
USER, BASE = "x-queryflux-user", "x-queryflux-base"

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 20.0
"""Most polls are answered within a second or two. The client of one that is not is told to ask again, and we
look again who answers for it."""
MAX_BODY_BYTES = 256 << 20
MAX_IDLE = 8
_PORTS = {"http": 80, "https": 443}


class Unreachable(Exception):
    """The other process cannot be asked; ``slow``: it has not answered yet."""

    def __init__(self, message: str, *, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow


@dataclass(frozen=True, slots=True)
class Relayed:
    """What a request says that was passed on: the client's user and the base of its URIs."""

    user: str
    base: bytes


def proof(key: bytes, instance: str, method: str, path: str, user: str, base: str) -> str:
    """What proves a request for ``instance``; ``user`` and ``base`` as the headers have them."""
    said = "\n".join((instance, method, path, user, base))
    return hmac.new(key, said.encode(), "sha256").hexdigest()


def is_relayed(headers: Mapping[str, str]) -> bool:
    """Whether a request says that another process passes it on."""
    return headers.get("authorization", "").startswith(SCHEME)


def verify(request: Request, key: bytes, instance: str) -> Relayed:
    """What a request says that was passed on. Raises AuthenticationFailed when that is not proved."""
    user, base = request.headers.get(USER, ""), request.headers.get(BASE, "")
    said = request.headers["authorization"].partition(" ")[2]
    right = proof(key, instance, request.method, request.target, user, base) if key else ""
    if not right or not hmac.compare_digest(said.encode(), right.encode()):
        raise AuthenticationFailed("this request is not from a process of this database for this one")
    return Relayed(unquote(user), base.encode())


class Relay:
    """The connections to other processes."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        """``key`` gives what proves who we are."""
        self._key = key
        self._idle: defaultdict[str, list[ByteStream]] = defaultdict(list)
        self._closed = False

    async def ask(
        self, address: str, instance: str, method: str, path: str, user: str, base: bytes
    ) -> Response:
        """Pass a request on. Raises Unreachable."""
        name, where = quote(user), base.decode()
        url = urlsplit(address if "://" in address else f"http://{address}")
        headers = (
            ("Host", url.netloc),
            ("Authorization", f"{SCHEME} {proof(self._key(), instance, method, path, name, where)}"),
            (USER, name),
            (BASE, where),
        )
        message = encode_request(method, path, headers)
        idle = self._idle[address]
        while idle:
            stream = idle.pop()
            if not stream.closed:
                try:
                    return await self._exchange(address, stream, method, message)
                except Unreachable as error:
                    if error.slow:
                        raise
                    break  # it was closed just now, or the process has gone: a new connection tells
        stream = await self._connect(url.scheme, url.hostname, url.port)
        return await self._exchange(address, stream, method, message)

    async def _connect(self, scheme: str, host: str | None, port: int | None) -> ByteStream:
        tls = ssl.create_default_context() if scheme == "https" else None
        try:
            return await connect(
                host or "", port or _PORTS[scheme], tls=tls, server_hostname=host, timeout=CONNECT_SECONDS
            )
        except TimeoutError:
            raise Unreachable(f"no connection within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise Unreachable(error.strerror or str(error)) from error

    async def _exchange(self, address: str, stream: ByteStream, method: str, message: bytes) -> Response:
        parser = ResponseParser(MAX_BODY_BYTES)
        parser.expect(method)
        response: Response | None = None
        try:
            stream.write(message)
            async with asyncio.timeout(ANSWER_SECONDS):
                while response is None:
                    data = await stream.read()
                    if not data:
                        raise Unreachable("it closed the connection")
                    response = parser.feed(data)
        except TimeoutError:
            raise Unreachable(f"no answer within {ANSWER_SECONDS:g} s", slow=True) from None
        except (OSError, ProtocolViolation) as error:
            raise Unreachable(str(error)) from error
        finally:
            if response is None or not response.keep_alive or self._closed:
                stream.abort()
            elif len(self._idle[address]) < MAX_IDLE:
                self._idle[address].append(stream)
            else:
                stream.close()
        return response

    def close(self) -> None:
        """Break off what waits for use."""
        self._closed = True
        for streams in self._idle.values():
            for stream in streams:
                stream.abort()
        self._idle.clear()
