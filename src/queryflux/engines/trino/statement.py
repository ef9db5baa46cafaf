"""A statement at the coordinator: POST it, GET page after page, DELETE it.

Overload and hiccups are answered as the protocol's documentation asks: 502, 503 and 504 are tried again after
50 to 100 ms, 429 after what Retry-After says. That is safe for the POST too: a coordinator only begins with a
query once its first page has been asked for. Tries are bounded, and nothing else is ever sent twice, except
on a connection that turned out to have been closed while it was idle.
"""

import asyncio
import logging
import random
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from queryflux.engines.trino.client import Client
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    QueryCancelled,
)
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import Broken, Call, Unreachable
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.http1 import Response, encode_request

log = logging.getLogger(__name__)

TRY_AGAIN = {429, 502, 503, 504}
TRIES = 10
PAUSE_SECONDS = (0.05, 0.1)
LONGEST_PAUSE_SECONDS = 10.0
RECONNECTS = 3
CANCEL_SECONDS = 5.0
_SHOWN = 300
MAX_KEPT = 256
MAX_KEPT_BYTES = 4096
_QUERY_ID = re.compile(r"/v1/statement/(?:queued/|scheduled/|executing/)?([^/?]+)/")

Pairs = tuple[tuple[str, str], ...]


class HeaderBlocks:
    """Headers of requests in their encoded form: most statements come with the headers of one before."""

    def __init__(self) -> None:
        self._known: dict[tuple[Pairs, Pairs], bytes] = {}

    def encoded(self, base: Pairs, more: Pairs) -> bytes:
        """Header lines. Raises ProtocolViolation for a value that would break out of its line."""
        block = self._known.get((base, more))
        if block is None:
            request = encode_request("POST", "/", (*base, *more))
            block = request.partition(b"\r\n")[2][:-2]
            if len(block) <= MAX_KEPT_BYTES:
                if len(self._known) >= MAX_KEPT:
                    self._known.clear()
                self._known[base, more] = block
        return block


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine's statements reach their coordinator."""

    client: Client
    clock: Clock
    tasks: TaskGroup
    blocks: HeaderBlocks = field(default_factory=HeaderBlocks)

    def post_head(self, base: Pairs, more: Pairs) -> bytes:
        """The head of a POST up to where the length of the statement stands. Raises ProtocolViolation."""
        return b"%b%bContent-Length: " % (self.client.target.post_line, self.blocks.encoded(base, more))


def post_message(head: bytes, sql: str) -> bytes:
    """The POST of a statement, after such a head."""
    body = sql.encode()
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)


class TrinoStatement(Call):
    """``next_uri`` is the coordinator's own; ``ended`` says that nothing of it is left there."""

    # Where most statements that are relayed begin and end: an object of its own has what changed.
    next_uri: str | None = None
    ended = False
    cancelled = False
    _stopping: asyncio.Task[None] | None = None

    def __init__(self, way: Way, headers: Pairs) -> None:
        """``headers`` go with each request: Host, credentials, user."""
        self._way = way
        self._headers = headers

    async def post(self, sql: str, headers: Pairs) -> Response:
        """Begin. Raises EngineUnavailable (nothing was started), EngineError, EngineConnectionLost,
        QueryCancelled."""
        return await self.exchange("POST", post_message(self._way.post_head(self._headers, headers), sql))

    async def get(self) -> Response:
        """The next page. Raises EngineConnectionLost, QueryCancelled."""
        assert self.next_uri is not None
        message = encode_request("GET", path_of(self.next_uri), self._headers)
        return await self.exchange("GET", message)

    async def exchange(
        self, method: str, message: bytes, first: Coroutine[Any, Any, Response] | None = None
    ) -> Response:
        """A request and its response. ``first`` is the first try, where that is under way already. Raises as
        ``post``."""
        tries = 0
        while True:
            if self.cancelled and first is None:
                raise QueryCancelled("the query was cancelled")
            tries += 1
            attempt, first = first or self._way.client.request(method, message, self), None
            try:
                response = await attempt
            except asyncio.CancelledError:
                await self.stop()
                raise
            except (Unreachable, Broken) as error:
                if self.cancelled:
                    raise QueryCancelled("the query was cancelled") from error
                if not self._again(method, error, tries):
                    raise self._lost(method, error) from error
                if isinstance(error, Unreachable):
                    await self._pause(PAUSE_SECONDS)
                continue
            if response.status == 200:
                return response
            if response.status not in TRY_AGAIN or tries >= TRIES:
                raise self._refused(method, response)
            await self._pause(_pause_after(response))

    def _again(self, method: str, error: Exception, tries: int) -> bool:
        """A stale connection is no answer at all. A coordinator that cannot be reached may be back for a page
        of a query it has; a new query goes elsewhere instead."""
        if isinstance(error, Broken):
            return error.stale and tries < TRIES
        return method == "GET" and tries <= RECONNECTS

    async def _pause(self, between: tuple[float, float]) -> None:
        try:
            await self._way.clock.sleep(random.uniform(*between))
        except asyncio.CancelledError:
            await self.stop()
            raise

    def _lost(self, method: str, error: Exception) -> EngineUnavailable | EngineConnectionLost:
        self.ended = self.next_uri is None
        if method == "POST" and isinstance(error, Unreachable):
            return EngineUnavailable(f"Trino cannot be reached: {error}")
        return EngineConnectionLost(f"the connection to Trino was lost: {error}")

    def _refused(
        self, method: str, response: Response
    ) -> EngineUnavailable | EngineConnectionLost | EngineError:
        text = response.body[:_SHOWN].decode(errors="replace").strip()
        what = f"Trino answered {response.status}" + (f": {text}" if text else "")
        if response.status == 401:
            self.ended = True
            return EngineError(
                "Trino refused the cluster's credentials",
                kind=EngineErrorKind.PERMISSION,
                hint="Check auth of this cluster in the configuration.",
            )
        if method == "POST":
            self.ended = True
            if response.status in TRY_AGAIN:
                return EngineUnavailable(what)
            kind = EngineErrorKind.PERMISSION if response.status == 403 else EngineErrorKind.OTHER
            return EngineError(what, kind=kind)
        if response.status in {404, 410}:
            self.ended = True
            return EngineConnectionLost(f"Trino does not know the query any more ({what})")
        return EngineConnectionLost(what)

    async def delete(self, uri: str) -> None:
        """DELETE a URI. Raises EngineConnectionLost."""
        await self._short("DELETE", uri)

    async def head(self, uri: str) -> None:
        """HEAD a URI. Raises EngineConnectionLost."""
        await self._short("HEAD", uri)

    async def _short(self, method: str, uri: str) -> None:
        message = encode_request(method, path_of(uri), self._headers)
        for last in (False, True):
            try:
                response = await self._way.client.request(method, message, Call(), seconds=CANCEL_SECONDS)
            except (Unreachable, Broken) as error:
                if last:
                    raise EngineConnectionLost(f"{method} did not reach Trino: {error}") from error
                continue
            if response.status not in TRY_AGAIN:
                return
            if not last:
                await self._way.clock.sleep(random.uniform(*_pause_after(response)))

    def why_ended(self) -> QueryCancelled | None:
        """The error it ended with at the coordinator, if we cancelled it: that fails its transaction too."""
        return QueryCancelled("the query was cancelled") if self.cancelled else None

    async def stop(self) -> None:
        """Cancel what is left of it at the coordinator; returns when that has been said, or could not be
        (which is logged). Goes on even if the caller does not wait."""
        if self.ended:
            return
        self.cancelled = True
        if self._stopping is None:
            self._stopping = self._way.tasks.spawn("cancel", self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            if self.next_uri is not None:
                await self.delete(self.next_uri)
        except EngineConnectionLost as error:
            log.warning("a query could not be cancelled: %s", error.message)
        finally:
            self.abort()
            self.ended = True


def path_of(uri: str) -> str:
    """Path and query of a URI that the coordinator gave. Raises EngineConnectionLost when it is none."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise EngineConnectionLost("Trino gave an address that is none") from None
    if not parts.path.startswith("/"):
        raise EngineConnectionLost("Trino gave an address that is none")
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def query_id_in(uri: str) -> str | None:
    """The coordinator's id of the query whose page a URI leads to: ``/v1/statement/executing/ID/...``."""
    found = _QUERY_ID.search(uri)
    return found[1] if found is not None else None


def _pause_after(response: Response) -> tuple[float, float]:
    after = response.headers.get("retry-after", "")
    if response.status == 429 and after.isdigit():
        seconds = min(float(after), LONGEST_PAUSE_SECONDS)
        return seconds, seconds
    return PAUSE_SECONDS


Ended = Callable[[Exception | None], None]
"""Told once when an answer has come to its end, with its failure if it failed."""
