"""Connections to one server that are kept open between requests: one request at a time on each.

A request is one write, and reads until the answer is whole; there is no task and no future of ours in it.
When it takes too long its connection is aborted. A request that is not finished, for whatever reason, takes
its connection down with it. What an answer looks like is the parser's business.
"""

import ssl
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.runtime.clock import Clock, Timer

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 300.0
"""Without an answer for so long a server counts as gone, unless told. A Trino coordinator answers a poll
within a second or two, but may be long about analysing a statement."""
IDLE_SECONDS = 20.0
"""Connections idle for longer are not used again: servers and balancers close them soon after."""
MAX_IDLE = 64


class Answer(Protocol):
    """What a parser gives. ``keep_alive``: the connection is good for another request."""

    keep_alive: bool


A = TypeVar("A", bound=Answer)
A_co = TypeVar("A_co", bound=Answer, covariant=True)
P = TypeVar("P", bound="Parser[Any]")
C = TypeVar("C", bound="Connection[Any]")


class Parser(Protocol[A_co]):
    """The client's side of one connection."""

    def expect(self, method: str) -> None:
        """A request goes out."""

    def feed(self, data: bytes) -> A_co | None:
        """Take what arrived; the answer once it is whole."""

    def eof(self) -> A_co | None:
        """The server closed: the answer if its end was to be told that way."""


class Unreachable(Exception):
    """No connection could be made: nothing was sent."""


class Broken(Exception):
    """The connection broke, or what came was no answer. ``stale`` says that it had been idle and closed
    before a byte of the answer: the request was most likely never read. ``late``: there was none in time."""

    def __init__(self, message: str, *, stale: bool = False, late: bool = False) -> None:
        super().__init__(message)
        self.stale = stale
        self.late = late


class Place(Protocol):
    """Where a server is. ``authority`` is how messages name it; ``server_name`` what its certificate must
    say, where that is not the host."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def authority(self) -> str: ...
    @property
    def tls(self) -> ssl.SSLContext | None: ...
    @property
    def server_name(self) -> str | None: ...


class Connection(Generic[P]):
    """One connection. ``used`` says that it has answered before.

    Its timer outlives a request: when it goes off it looks at what the request of then is due, so that most
    requests set none."""

    __slots__ = (
        "_clock",
        "_deadline",
        "_timer",
        "_timer_due",
        "idle_since",
        "parser",
        "stream",
        "timed_out",
        "used",
    )

    def __init__(self, stream: ByteStream, parser: P, clock: Clock) -> None:
        self.stream = stream
        self.parser = parser
        self.idle_since = 0.0
        self.used = False
        self.timed_out = False
        self._clock = clock
        self._deadline: float | None = None
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def send(self, method: str, message: bytes, now: float, seconds: float) -> None:
        """Write a request, and abort the connection unless ``answered`` is called in time."""
        self._deadline = deadline = now + seconds
        if self._timer is None or self._timer_due > deadline:
            self._arm(seconds)
        self.parser.expect(method)
        self.stream.write(message)

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return self._deadline is not None

    def answered(self) -> None:
        """The request is over, one way or another."""
        self._deadline = None

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = self._clock.monotonic() + seconds
        self._timer = self._clock.call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        left = self._deadline - self._clock.monotonic()
        if left > 0:
            self._arm(left)
        else:
            self.timed_out = True
            self.stream.abort()

    def abort(self) -> None:
        """Break it off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.stream.abort()


class Call:
    """One request under way, so that somebody else can abort it."""

    aborted = False
    _stream: ByteStream | None = None

    def attach(self, stream: ByteStream) -> None:
        """The request goes over this connection; aborted at once if that was asked for before."""
        self._stream = stream
        if self.aborted:
            stream.abort()

    def detach(self) -> None:
        """The answer is whole: the connection is somebody else's now."""
        self._stream = None

    def abort(self) -> None:
        """Break it off; whoever waits for it gets Broken."""
        self.aborted = True
        if self._stream is not None:
            self._stream.abort()


class Connections(Generic[C, A]):
    """The connections to one server."""

    def __init__(
        self, place: Place, made: Callable[[ByteStream], C], violation: type[Exception], clock: Clock
    ) -> None:
        """``made`` makes a connection of a stream; ``violation`` is what its parser raises for bytes that are
        no answer."""
        self._place = place
        self._made = made
        self._wrong = (OSError, violation)
        self._clock = clock
        self._idle: list[C] = []
        self._all: set[C] = set()
        self._closed = False

    async def request(
        self,
        method: str,
        message: bytes,
        call: Call,
        *,
        seconds: float = ANSWER_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> A:
        """Send an encoded request and return its answer. Raises Unreachable, Broken."""
        connection = self.take(self._clock.monotonic()) or await self._connect(connect_seconds)
        call.attach(connection.stream)
        connection.send(method, message, self._clock.monotonic(), seconds)
        return await self.receive(connection, call, seconds=seconds)

    async def receive(
        self, connection: C, call: Call, data: bytes | None = None, *, seconds: float = ANSWER_SECONDS
    ) -> A:
        """The answer to what ``send`` sent; ``data`` is what was read of it already, empty at the end of the
        stream. Raises Broken."""
        stream = connection.stream
        answered = False
        try:
            answer: A | None = None
            while answer is None:
                if data is None:
                    data = await stream.read()
                if data:
                    answered = True
                    answer = connection.parser.feed(data)
                else:
                    answer = self._ended(connection, answered)
                data = None
        except self._wrong as error:
            self.drop(connection)
            if connection.timed_out:
                raise Broken(f"there was no answer within {seconds:.0f} s", late=True) from error
            raise Broken(_reason(error), stale=connection.used and not answered) from error
        except BaseException:
            self.drop(connection)
            raise
        finally:
            connection.answered()
        call.detach()
        if answer.keep_alive:
            self.done(connection)
        else:
            self.drop(connection)
        return answer

    def _ended(self, connection: C, answered: bool) -> A:
        answer: A | None = connection.parser.eof()
        if answer is None:
            raise ConnectionResetError(
                "the connection was closed in the middle of the answer"
                if answered
                else "the connection was closed before the answer"
            )
        answer.keep_alive = False
        return answer

    def take(self, now: float) -> C | None:
        """A connection that waits for use, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since <= IDLE_SECONDS and not connection.stream.closed:
                return connection
            self.drop(connection)
        return None

    async def _connect(self, seconds: float) -> C:
        place = self._place
        if self._closed:
            raise Unreachable("the client is closed")
        try:
            stream = await connect(
                place.host, place.port, tls=place.tls, server_hostname=place.server_name, timeout=seconds
            )
        except TimeoutError as error:
            raise Unreachable(f"{place.authority}: no connection within {seconds:.0f} s") from error
        except OSError as error:
            raise Unreachable(f"{place.authority}: {_reason(error)}") from error
        connection = self._made(stream)
        self._all.add(connection)
        self._check_open(connection)
        return connection

    def _check_open(self, connection: C) -> None:
        """``close`` may have come while it was being connected."""
        if self._closed:
            self.drop(connection)
            raise Unreachable("the client is closed")

    def done(self, connection: C) -> None:
        """Its answer is whole: it waits for the next use."""
        if self._closed or connection.stream.closed or len(self._idle) >= MAX_IDLE:
            self.drop(connection)
            return
        connection.used = True
        connection.idle_since = self._clock.monotonic()
        self._idle.append(connection)

    def drop(self, connection: C) -> None:
        """Break it off."""
        self._all.discard(connection)
        connection.abort()

    def close(self) -> None:
        """Break off everything."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._all):
            self.drop(connection)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
