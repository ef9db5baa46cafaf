"""uvicorn's protocol on httptools, which takes a third of the time of the one on h11, with the bounds that it
lacks: httptools keeps the head of a request, or what follows the last chunk of a body, however long it grows,
and uvicorn waits for a request for ever, unless the connection has had one.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_UNFINISHED = 64 * 1024
"""Bytes of which no piece of a body, and no end of a head or a message, came out."""
HEAD_SECONDS = 30.0
"""How long the head of a request may take, from the connection or from its first byte."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\nconnection: close\r\n\r\n"
    b"the head is too large"
)


class BoundedHttp(HttpToolsProtocol):
    """Refuses what goes on for more than MOST_UNFINISHED bytes, and what the transport reads at a time; hangs
    up on who does not come to the point."""

    _unfinished = 0
    _in_head = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As asyncio.Protocol."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        self._has_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > MOST_UNFINISHED and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._in_head and self._unfinished and self._patience is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _has_head(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def on_headers_complete(self) -> None:
        """As httptools calls it."""
        self._unfinished = 0
        self._in_head = False
        self._has_head()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """As httptools calls it."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """As httptools calls it."""
        self._unfinished = 0
        self._in_head = True
        super().on_message_complete()
