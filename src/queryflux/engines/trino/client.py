"""The connections to one coordinator.

The ordinary POST (connection.py) does by itself what ``request`` does, with ``send``, one read and ``done``;
for anything but the answer it expects it calls ``receive``.
"""

from queryflux.engines.trino.target import Target
from queryflux.model.errors import ProtocolViolation
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import ANSWER_SECONDS, Broken, Call, Connections
from queryflux.runtime.connections import Connection as KeptConnection
from queryflux.wire.http1 import Response, ResponseParser, unpack

MAX_BODY_BYTES = 128 * 1024 * 1024
"""What a coordinator puts on a page at most, when a client asks for it; it is a megabyte otherwise."""
MAX_RESPONSE_HEADER_BYTES = 1024 * 1024


class Connection(KeptConnection[ResponseParser]):
    """``ordinary`` is what it found in the head of its last response, if that was one as most are
    (``is_ordinary``)."""

    __slots__ = ("ordinary",)

    def __init__(self, stream: ByteStream, clock: Clock) -> None:
        super().__init__(stream, ResponseParser(MAX_BODY_BYTES, MAX_RESPONSE_HEADER_BYTES), clock)
        self.ordinary: list[tuple[str, str]] | None = None


class Client(Connections[Connection, Response]):
    """Speaks to one coordinator."""

    def __init__(self, target: Target, clock: Clock) -> None:
        super().__init__(target, lambda stream: Connection(stream, clock), ProtocolViolation, clock)
        self.target = target

    async def receive(
        self,
        connection: Connection,
        call: Call,
        data: bytes | None = None,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Response:
        """The response, unpacked if it came packed."""
        response = await super().receive(connection, call, data, seconds=seconds)
        if response.pairs is not connection.ordinary:
            connection.ordinary = response.pairs if is_ordinary(response) else None
        try:
            coding = response.headers.get("content-encoding")
            response.body = unpack(response.body, coding, MAX_BODY_BYTES)
        except ProtocolViolation as error:
            raise Broken(error.message) from error
        return response


def is_ordinary(response: Response) -> bool:
    """Whether its head says nothing that anybody has to look at: the body is all there is."""
    coding = response.headers.get("content-encoding", "identity")
    told = any(name.startswith("x-trino-") for name in response.headers)
    return response.status == 200 and coding == "identity" and not told
