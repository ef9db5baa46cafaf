"""An HTTP client for one coordinator: kept-alive connections, one request at a time on each.

A request is one write, and reads until the response is whole; there is no task and no future of ours in it.
When it takes too long its connection is aborted. A request that is not finished, for whatever reason, takes
its connection down with it.
"""

from queryflux.engines.trino.target import Target
from queryflux.model.errors import ProtocolViolation
from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.runtime.clock import Clock, Timer
from queryflux.wire.http1 import Response, ResponseParser, gunzip

MAX_BODY_BYTES = 128 * 1024 * 1024
"""What a coordinator puts on a page at most, when a client asks for it; it is a megabyte otherwise."""
MAX_RESPONSE_HEADER_BYTES = 1024 * 1024
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 300.0
"""Without an answer for so long the coordinator counts as gone. It answers a poll within a second or two,
but may be long about analysing a statement."""
IDLE_SECONDS = 20.0
"""Connections idle for longer are not used again: coordinators and balancers close them soon after."""
MAX_IDLE = 64


class Unreachable(Exception):
    """No connection could be made: nothing was sent."""


class Broken(Exception):
    """The connection broke, or what came was not HTTP. ``stale`` says that it had been idle in the pool and
    closed before a byte of the response: the request was most likely never read."""

    def __init__(self, message: str, *, stale: bool = False) -> None:
        super().__init__(message)
        self.stale = stale


class Connection:
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

    def __init__(self, stream: ByteStream, clock: Clock) -> None:
        self.stream = stream
        self.parser = ResponseParser(MAX_BODY_BYTES, MAX_RESPONSE_HEADER_BYTES)
        self.idle_since = 0.0
        self.used = False
        self.timed_out = False
        self._clock = clock
        self._deadline: float | None = None
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def expect_within(self, seconds: float) -> None:
        """Abort it unless ``answered`` is called in time."""
        now = self._clock.monotonic()
        self._deadline = now + seconds
        if self._timer is None or self._timer_due > self._deadline:
            self._arm(seconds)

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

    __slots__ = ("_stream", "aborted")

    def __init__(self) -> None:
        self._stream: ByteStream | None = None
        self.aborted = False

    def attach(self, stream: ByteStream) -> None:
        """The request goes over this connection; aborted at once if that was asked for before."""
        self._stream = stream
        if self.aborted:
            stream.abort()

    def detach(self) -> None:
        """The response is whole: the connection is somebody else's now."""
        self._stream = None

    def abort(self) -> None:
        """Break it off; whoever waits for it gets Broken."""
        self.aborted = True
        if self._stream is not None:
            self._stream.abort()


class Client:
    """The connections to one coordinator."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self.target = target
        self._clock = clock
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._closed = False

    async def request(
        self, method: str, message: bytes, call: Call, *, seconds: float = ANSWER_SECONDS
    ) -> Response:
        """Send an encoded request and return its response, unpacked if it came packed. Raises Unreachable,
        Broken."""
        connection = self._take() or await self._connect()
        stream = connection.stream
        call.attach(stream)
        connection.expect_within(seconds)
        answered = False
        try:
            connection.parser.expect(method)
            stream.write(message)
            response = None
            while response is None:
                data = await stream.read()
                if data:
                    answered = True
                    response = connection.parser.feed(data)
                else:
                    response = self._ended(connection, answered)
        except (OSError, ProtocolViolation) as error:
            self._drop(connection)
            if connection.timed_out:
                raise Broken(f"there was no answer within {seconds:.0f} s") from error
            raise Broken(_reason(error), stale=connection.used and not answered) from error
        except BaseException:
            self._drop(connection)
            raise
        finally:
            connection.answered()
        call.detach()
        self._give_back(connection, response)
        if response.headers.get("content-encoding", "identity") != "identity":
            response.body = self._unpacked(response)
        return response

    def _ended(self, connection: Connection, answered: bool) -> Response:
        response = connection.parser.eof()
        if response is None:
            raise ConnectionResetError(
                "the connection was closed in the middle of the answer"
                if answered
                else "the connection was closed before the answer"
            )
        response.keep_alive = False
        return response

    @staticmethod
    def _unpacked(response: Response) -> bytes:
        coding = response.headers["content-encoding"].strip().lower()
        if coding not in {"gzip", "x-gzip"}:
            raise Broken(f"the answer is packed as {coding!r}, which was not asked for")
        try:
            return gunzip(response.body, MAX_BODY_BYTES)
        except ProtocolViolation as error:
            raise Broken(error.message) from error

    def _take(self) -> Connection | None:
        now = self._clock.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since <= IDLE_SECONDS and not connection.stream.closed:
                return connection
            self._drop(connection)
        return None

    async def _connect(self) -> Connection:
        target = self.target
        if self._closed:
            raise Unreachable("the client is closed")
        try:
            stream = await connect(
                target.host,
                target.port,
                tls=target.tls,
                server_hostname=target.server_name,
                timeout=CONNECT_SECONDS,
            )
        except TimeoutError as error:
            raise Unreachable(f"{target.authority}: no connection within {CONNECT_SECONDS:.0f} s") from error
        except OSError as error:
            raise Unreachable(f"{target.authority}: {_reason(error)}") from error
        connection = Connection(stream, self._clock)
        self._all.add(connection)
        self._check_open(connection)
        return connection

    def _check_open(self, connection: Connection) -> None:
        """``close`` may have come while it was being connected."""
        if self._closed:
            self._drop(connection)
            raise Unreachable("the client is closed")

    def _give_back(self, connection: Connection, response: Response) -> None:
        if not response.keep_alive or self._closed or connection.stream.closed or len(self._idle) >= MAX_IDLE:
            self._drop(connection)
            return
        connection.used = True
        connection.idle_since = self._clock.monotonic()
        self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._all.discard(connection)
        connection.abort()

    def close(self) -> None:
        """Break off everything."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._all):
            self._drop(connection)


def _reason(error: Exception) -> str:
    if isinstance(error, ProtocolViolation):
        return error.message
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
