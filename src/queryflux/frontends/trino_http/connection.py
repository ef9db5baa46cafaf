"""One HTTP connection: requests one after another, each authenticated before its body is looked at.

There is one task per connection and none per request. A request must arrive whole in time: its head within
ARRIVE_SECONDS of its first byte, its body at BYTES_PER_SECOND or faster; whoever is slower is told 408 and
cut, as is who does not take his reply at that pace. The door's own tick watches that, so that a request costs
no timer.
"""

import logging
from typing import TYPE_CHECKING

from queryflux.frontends.trino_http.credentials import Remembered
from queryflux.frontends.trino_http.replies import GZIP_BYTES, Reply, encode, plain, refusal
from queryflux.frontends.trino_http.session import Caller
from queryflux.model.errors import AuthenticationFailed, InternalError, QueryFluxError
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
        self._parser = RequestParser(door.max_body_bytes)
        self._violation: HttpViolation | None = None
        self._remembered: Remembered | None = None
        self._caller: Caller | None = None
        self.deadline = self._clock.monotonic() + ARRIVE_SECONDS
        """When ``expire`` is due; infinite while a request is worked on."""
        self._arrives = False
        self._parting = False

    async def serve(self) -> None:
        """Until either side closes."""
        requests = self._parser.requests
        while True:
            while not requests:
                if self._violation is not None:
                    await self._refuse(refusal(self._violation))
                    return
                if not await self._receive():
                    return
            request = requests[0]
            keep_alive = await self._answer(request)
            if not keep_alive or self._parting:
                return
            requests.popleft()
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
        self._parting = True
        if not self._parser.requests:
            self._stream.close()

    # Receiving.

    async def _receive(self) -> bool:
        """Take what has arrived; False at the end of the stream."""
        data = await self._stream.read()
        if not data:
            return False
        if not self._arrives:
            self._arriving()
        try:
            self._parser.feed(data)
        except HttpViolation as violation:
            self._violation = violation
        return True

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
            if not await self._receive():
                raise ConnectionResetError("the client closed in the middle of a request")

    # Answering.

    async def _answer(self, request: Request) -> bool:
        """Handle one request and write its reply; whether the connection goes on."""
        try:
            reply = await self._handle(request)
        except QueryFluxError as error:
            if isinstance(error, AuthenticationFailed):
                self._door.count_auth_failure()
            reply = refusal(error)
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
        return await self._handler.submit(request, identity, caller, self._stream.on_gone)

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
