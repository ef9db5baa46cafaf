"""One HTTP connection: requests one after another, each authenticated before its body is looked at.

There is one task per connection and none per request. What can be said by the head of the request before goes
through the lane (lane.py). A request must arrive whole in time: its head within
ARRIVE_SECONDS of its first byte, its body at BYTES_PER_SECOND or faster; whoever is slower is told 408 and
cut, as is who does not take his reply at that pace. The door's own tick watches that, so that a request costs
no timer.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from queryflux.frontends.trino_http.credentials import Remembered
from queryflux.frontends.trino_http.lane import Lane
from queryflux.frontends.trino_http.relay import is_relayed
from queryflux.frontends.trino_http.replies import GZIP_BYTES, Reply, encode, plain, refusal
from queryflux.frontends.trino_http.session import Caller
from queryflux.model.errors import AuthenticationFailed, InternalError, QueryFluxError, ShuttingDown
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.http1 import CONTINUE, HttpViolation, Request, RequestParser, accepts_gzip, gzip

if TYPE_CHECKING:
    from queryflux.frontends.trino_http.door import TrinoDoor

log = logging.getLogger(__name__)

NEVER = float("inf")
IDLE_SECONDS = 600.0
"""How long a connection may stay open between requests."""
ARRIVE_SECONDS = 30.0
BYTES_PER_SECOND = 16 * 1024
LINGER_SECONDS = 2.0
"""How long a client that was refused may go on sending before it is cut: else it would not read the reply."""

_SLOW = plain(408, "GENERIC_USER_ERROR", "the request did not arrive in time")


class Connection:
    """One client's connection."""

    def __init__(self, door: "TrinoDoor", stream: ByteStream) -> None:
        self._door = door
        self._handler = door.handler
        self._clock = door.clock
        self._stream = stream
        self._peer = stream.peer
        self._parser = parser = RequestParser(door.max_body_bytes)
        self._lane = Lane(door.pipeline, door.handler, door.tasks, stream, parser, self._watch)
        self._when_gone: Callable[[], object] | None = None
        self._violation: HttpViolation | None = None
        self._remembered: Remembered | None = None
        self._caller: Caller | None = None
        self.deadline = self._clock.monotonic() + ARRIVE_SECONDS
        """When ``expire`` is due; infinite while a request is worked on."""
        self._arrives = False
        self._parting = False

    async def serve(self) -> None:
        """Until either side closes."""
        self._stream.on_gone(self._gone)
        try:
            await self._serve()
        finally:
            await self._lane.close()

    async def _serve(self) -> None:
        requests, lane = self._parser.requests, self._lane
        while True:
            if requests:
                request = requests[0]
                keep_alive = await self._answer(request, self._handle(request))
                requests.popleft()
            elif self._violation is not None:
                await self._refuse(refusal(self._violation))
                return
            else:
                data = await self._stream.read()
                if not data:
                    return
                statement = lane.take(data)
                if statement is None:
                    self._take(data)
                    continue
                assert lane.request is not None
                self.deadline = NEVER
                keep_alive = await self._answer(lane.request, lane.run(statement))
            if not keep_alive or self._parting:
                return
            if requests or not self._parser.idle:
                self._arriving()
            else:
                self.deadline = self._clock.monotonic() + IDLE_SECONDS

    def expire(self) -> None:
        """The time is up: say so where a request was on its way, and close."""
        if self._arrives:
            self._stream.write(encode(_SLOW, keep_alive=False))
            self._stream.close()
        else:
            self._stream.abort()

    def part(self) -> None:
        """The door closes: end once what has been asked is answered."""
        self._parting = self._lane.closing = True
        if not self._parser.requests and self.deadline != NEVER:
            self._stream.close()

    def _watch(self, callback: Callable[[], object] | None) -> None:
        """Call ``callback`` once, as soon as the client goes away; at once if it has. None takes it back."""
        self._when_gone = callback
        if callback is not None and self._stream.closed:
            self._gone()

    def _gone(self) -> None:
        self._lane.gone()
        callback, self._when_gone = self._when_gone, None
        if callback is not None:
            callback()

    # Receiving.

    def _take(self, data: bytes) -> None:
        """Take what has arrived."""
        if not self._arrives:
            self._arriving()
        try:
            self._parser.feed(data)
        except HttpViolation as violation:
            self._violation = violation

    def _arriving(self) -> None:
        self._arrives = True
        self.deadline = self._clock.monotonic() + ARRIVE_SECONDS

    async def _body(self, request: Request) -> None:
        """Wait for the rest of the body. Raises HttpViolation; ConnectionError when the client goes away."""
        if self._violation is None and request.expects_continue:
            self._stream.write(CONTINUE)
        length = self._door.max_body_bytes if request.length is None else request.length
        self.deadline += length / BYTES_PER_SECOND
        while not request.complete:
            if self._violation is not None:
                raise self._violation
            data = await self._stream.read()
            if not data:
                raise ConnectionResetError("the client closed in the middle of a request")
            self._take(data)

    # Answering.

    async def _answer(self, request: Request, handling: Awaitable[Reply | None]) -> bool:
        """Handle one request and write its reply, unless that has been done; whether the connection goes
        on."""
        try:
            reply = await handling
            if reply is None:
                self.deadline = self._clock.monotonic() + ARRIVE_SECONDS
                await self._stream.drain()
                return True
        except QueryFluxError as error:
            if isinstance(error, AuthenticationFailed):
                self._door.count_auth_failure()
            reply = refusal(error)
            if isinstance(error, ShuttingDown) and self._handler.elsewhere is not None:
                reply.close = True  # who connects anew reaches a sibling
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            log.error("a request from %s failed", self._peer, exc_info=error)
            reply = refusal(InternalError("internal error; the operator finds the cause in the log"))
        if not request.complete:
            await self._refuse(reply)
            return False
        keep_alive = request.keep_alive and not (reply.close or self._parting or self._violation)
        try:
            await self._write(request, reply, keep_alive)
        finally:
            if reply.undelivered is not None and self._stream.closed:
                reply.undelivered()
            if reply.then is not None:
                await reply.then()
        return keep_alive

    async def _handle(self, request: Request) -> Reply:
        path = request.target.partition("?")[0]
        headers = request.headers
        identity, self._remembered = self._handler.credentials.trusted(headers, self._remembered)
        if identity is None:
            if is_relayed(headers):
                self._arrives, self.deadline = False, NEVER
                return await self._handler.relayed(request)
            identity = await self._proven(headers)
        submits = path == "/v1/statement" and request.method == "POST"
        if submits:
            self._door.pipeline.check_ready()
        if not request.complete:
            await self._body(request)
        # It has arrived: what it takes to answer it is not the client's fault.
        self._arrives = False
        self.deadline = NEVER
        if not submits:
            return await self._handler.other(request, path, identity)
        caller = self._caller
        if caller is None or (caller.headers is not headers and caller.headers != headers):
            caller = self._caller = self._handler.caller(headers, self._peer)
        self._lane.learn(request, self._remembered, caller)
        return await self._handler.submit(request, identity, caller, self._watch)

    async def _proven(self, headers: dict[str, str]) -> VerifiedIdentity:
        """Who the Authorization header says it is."""
        identity, self._remembered = await self._handler.credentials.check(
            headers, self._remembered, encrypted=self._stream.encrypted
        )
        return identity

    async def _write(self, request: Request, reply: Reply, keep_alive: bool) -> None:
        body = reply.body
        packed = len(body) >= GZIP_BYTES and accepts_gzip(request.headers.get("accept-encoding", ""))
        if packed:
            body = await self._door.in_thread(gzip, body)
            reply = Reply(reply.status, body, reply.headers, close=reply.close)
        head_only = request.method == "HEAD"
        self.deadline = self._clock.monotonic() + ARRIVE_SECONDS + len(body) / BYTES_PER_SECOND
        self._stream.write(encode(reply, keep_alive=keep_alive, head_only=head_only, packed=packed))
        await self._stream.drain()

    async def _refuse(self, reply: Reply) -> None:
        """The last reply of a connection whose client may still be sending."""
        self._stream.write(encode(reply, keep_alive=False))
        self._arrives = False
        self.deadline = self._clock.monotonic() + LINGER_SECONDS
        while await self._stream.read():
            pass
