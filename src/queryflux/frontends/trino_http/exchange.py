"""One statement that a client fetches page by page.

Every page has a number, the token in its URI. The client asks for the page after the one it has; asking again
for the same one gives the same bytes, since it may not have received them; earlier ones are gone. A page is
made when it is asked for and not before, so that a slow client slows the engine's read.

A Trino engine's pages are pulled within the poll that asks for them: the coordinator itself answers a poll
in time. Anything else is worked on by a task, and a poll that sees no result within HOLD_SECONDS is told the
state instead; the task wakes the next poll.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from queryflux.frontends.trino_http.errors import document as error_document
from queryflux.frontends.trino_http.state import OVER, Event, State, after
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    EngineConnectionLost,
    InternalError,
    QueryAbandoned,
    QueryEnded,
    QueryFluxError,
    QueryNotFound,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Conversation, Query
from queryflux.results.answer import Answer, Batches, Done, Frames
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.trino.documents import Stats, Update, results
from queryflux.wire.trino.native import TrinoFrames, TrinoPage
from queryflux.wire.trino.uris import partial_cancel_of, rewrite

if TYPE_CHECKING:
    from queryflux.wire.trino.rows import Batch, RowEncoder

log = logging.getLogger(__name__)

HOLD_SECONDS = 1.0
"""How long a poll may wait before it is told that the query goes on."""
PAGE_BYTES = 1 << 20
"""A page is closed once its data is this large, as Trino's are (protocol.v1, target result size)."""
_INLINE_VALUES = 4096
"""Fewer values than this are encoded on the loop; more go to a thread."""

Encode = Callable[..., Awaitable[bytes]]


@dataclass(slots=True)
class Page:
    """One response: a document, the headers that go with it, and whether another page follows."""

    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    last: bool = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the exchanges of a door share. ``encode`` runs a function in the door's own thread."""

    clock: Clock
    tasks: TaskGroup
    encode: Encode


class Exchange:
    """A query and the pages that have been made of it."""

    __slots__ = (
        "_answer",
        "_around",
        "_broken",
        "_columns",
        "_conversation",
        "_created",
        "_encoder",
        "_partial_cancel",
        "_query",
        "_relays",
        "_rest",
        "_rows",
        "_settled",
        "_slug",
        "_started",
        "_text",
        "_turn",
        "_work",
        "asking",
        "base",
        "id",
        "last_seen",
        "owner",
        "page",
        "state",
        "token",
    )

    def __init__(
        self,
        around: Surroundings,
        query_id: str,
        owner: str,
        text: str,
        conversation: Conversation,
        query: Query,
        *,
        base: bytes,
        keeps_conversation: bool,
    ) -> None:
        """``keeps_conversation``: it belongs to a transaction, and is not closed with the query."""
        self.id = query_id
        self.owner = owner
        self.state = State.SUBMITTED
        self.base = base
        self.token = 0
        self.page: Page | None = None
        self.asking = 0
        self.last_seen = around.clock.monotonic()
        self._around = around
        self._text = text
        self._query = query
        self._conversation = conversation if not keeps_conversation else None
        self._created = self.last_seen
        self._started: float | None = None
        self._slug = ""
        self._answer: Answer | None = None
        self._columns: bytes | None = None
        self._encoder: RowEncoder | None = None
        self._rest: Batch | None = None
        self._rows = 0
        self._partial_cancel: str | None = None
        self._work: asyncio.Task[Page] | None = None
        self._turn: asyncio.Future[None] | None = None
        self._settled = False
        self._relays = False
        self._broken = False
        """It failed here, and not in the query, which goes on."""

    # What a connection asks.

    @property
    def over(self) -> bool:
        """It has ended, whether or not its last page was fetched."""
        return self.state in OVER

    @property
    def text(self) -> str:
        """The statement."""
        return self._text

    def matches(self, slug: str) -> bool:
        """Whether a URI's unguessable part is ours."""
        return bool(self._slug) and secrets.compare_digest(slug.encode(), self._slug.encode())

    async def first(self) -> Page:
        """The answer to the POST."""
        if self._waiting:
            self._move(Event.QUEUE)
            page = await self._next_page()
        else:
            self._move(Event.RUN)
            self._relays = self._query.engine_protocol is ClientProtocol.TRINO_HTTP
            page = await (self._produce() if self._relays else self._next_page())
        self.page = page
        return page

    async def poll(self, token: int) -> Page | None:
        """Page ``token``; None when it is gone. Raises QueryNotFound for one that cannot be yet."""
        while self._turn is not None:
            await asyncio.shield(self._turn)
        if token == self.token and self.page is not None:
            return self.page
        if token < self.token:
            return None
        if token > self.token + 1 or (self.page is not None and self.page.last):
            raise QueryNotFound(f"query {self.id} has no page {token}")
        self._turn = asyncio.get_running_loop().create_future()
        try:
            self.token = token
            self.page = None
            self.page = await self._next_page()
            return self.page
        finally:
            turn, self._turn = self._turn, None
            turn.set_result(None)

    async def settle(self) -> None:
        """Once the last page has been handed out: let the query end, and close what is ours."""
        if self._settled:
            return
        self._settled = True
        try:
            if self._broken:
                await self._query.close(EndReason.FAILED)
            elif self._relays:
                await self._query.next()  # gives None: that is its end
        except QueryFluxError as error:
            log.info("query %s ended after its last page: %s", self.id, error.message)
        finally:
            if self._conversation is not None:
                await self._conversation.close()

    async def cancel(self, reason: EndReason) -> None:
        """Stop it; a poll that waits, or comes after, is told why."""
        if self.over:
            return
        self._move(Event.ABANDON if reason is EndReason.ABANDONED else Event.CANCEL)
        self.last_seen = self._around.clock.monotonic()
        try:
            await self._query.cancel(reason)
        finally:
            if self._conversation is not None:
                await self._conversation.close()

    async def partial_cancel(self) -> bool:
        """Pass on the client's wish for the stage of the last page. False where there is none to stop."""
        if not isinstance(self._answer, TrinoFrames) or self._partial_cancel is None:
            return False
        await self._answer.partial_cancel(self._partial_cancel)
        return True

    async def heartbeat(self) -> None:
        """The client is alive although it does not read on: let the coordinator know."""
        if isinstance(self._answer, TrinoFrames) and not self.over and self._turn is None:
            await self._answer.heartbeat()

    # URIs.

    def _uri(self, kind: bytes, token: int) -> bytes:
        if not self._slug:
            self._slug = secrets.token_hex(16)
        return b"%b/v1/statement/qf/%b/%b/%b/%d" % (
            self.base,
            kind,
            self.id.encode(),
            self._slug.encode(),
            token,
        )

    @property
    def following(self) -> bytes:
        """The URI of the page after this one."""
        kind = b"queued" if self.state is State.QUEUED else b"executing"
        return self._uri(kind, self._next_token)

    @property
    def _next_token(self) -> int:
        """The token after the one that the page in the making will be given out for: that of the poll that
        waits for it or was broken off or, if the last poll has had its page, of the next one."""
        return self.token + (1 if self.page is None else 2)

    @property
    def _info(self) -> bytes:
        return b"%b/ui/query.html?%b" % (self.base, self.id.encode())

    # Making pages.

    @property
    def _waiting(self) -> bool:
        return self._query.waiting

    def _move(self, event: Event) -> None:
        self.state = after(self.state, event)

    async def _next_page(self) -> Page:
        if self._relays and self._work is None:
            return await self._produce()
        if self._work is None:
            self._work = self._around.tasks.spawn(f"page of {self.id}", self._produce())
        if not await self._done_in_time(self._work):
            return self._progress()
        work, self._work = self._work, None
        return work.result()

    async def _done_in_time(self, work: "asyncio.Task[Page]") -> bool:
        """Wait for the task, but not over HOLD_SECONDS."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(*_: object) -> None:
            if not waiter.done():
                waiter.set_result(None)

        work.add_done_callback(wake)
        timer = self._around.clock.call_later(HOLD_SECONDS, wake)
        try:
            await waiter
        finally:
            timer.cancel()
            work.remove_done_callback(wake)
        return work.done()

    def _progress(self) -> Page:
        """How far it is."""
        if not self.over and self.state is not State.PAGING:
            self._move(Event.QUEUE if self._waiting else Event.RUN)
        state = "QUEUED" if self.state is State.QUEUED else "RUNNING"
        body = results(
            self.id, self._info, self._stats(state), following=self.following, columns=self._columns
        )
        return Page(body, last=False)

    async def _produce(self) -> Page:
        """The next page; what goes wrong becomes one too."""
        try:
            if self._answer is None:
                answer = await self._query.start()
                self._begin(answer)
            if self._relays:
                return await self._relay()
            if isinstance(self._answer, Done):
                return self._count(self._answer)
            return await self._page_of_rows()
        except QueryFluxError as error:
            return self._failure(error)
        except Exception as error:
            self._broken = True
            log.error("query %s failed at the Trino door", self.id, exc_info=error)
            told = f"internal error; the operator finds the cause in the log under {self.id}"
            return self._failure(InternalError(told))

    def _begin(self, answer: Answer) -> None:
        if not self.over:
            self._move(Event.RUN)
        self._started = self._around.clock.monotonic()
        self._answer = answer
        self._relays = isinstance(answer, Frames)
        if isinstance(answer, Batches):
            from queryflux.wire.trino.rows import RowEncoder

            self._encoder = RowEncoder(answer.schema)
            self._columns = self._encoder.columns

    def _stats(self, state: str) -> Stats:
        now = self._around.clock.monotonic()
        begun = self._started if self._started is not None else now
        engine = self._answer.stats if self._answer is not None else None
        stats = Stats(
            state,
            elapsed=int((now - self._created) * 1000),
            queued=int(((now if state == "QUEUED" else begun) - self._created) * 1000)
            if self._query.waited
            else 0,
            processed_rows=self._rows,
        )
        if engine is not None:
            stats.cpu = engine.cpu_ms or 0
            stats.processed_rows = engine.processed_rows or self._rows
            stats.processed_bytes = engine.processed_bytes or 0
            stats.input_bytes = engine.physical_input_bytes or 0
            stats.peak_memory = engine.peak_memory_bytes or 0
            stats.spilled = engine.spilled_bytes or 0
            stats.splits = engine.total_splits or 0
        return stats

    def _failure(self, error: QueryFluxError) -> Page:
        if not self.over:
            self._move(_event_of(error))
        body = results(
            self.id,
            self._info,
            self._stats("FAILED"),
            columns=self._columns,
            error=error_document(error, self._text),
        )
        return Page(body)

    def _count(self, done: Done) -> Page:
        if not self.over:
            self._move(Event.END)
        update = Update(done.tag, done.rows)
        body = results(self.id, self._info, self._stats("FINISHED"), update=update)
        return Page(body, tuple(done.headers.items()))

    async def _relay(self) -> Page:
        """The coordinator's next page, with URIs of ours."""
        frame = await self._query.next()
        if frame is None:
            self._relays = False
            raise EngineConnectionLost(f"the engine ended query {self.id} without a last page")
        page = cast(TrinoPage, frame)
        following = partial = None
        if page.next_uri is not None:
            following = self.following
            self._partial_cancel = partial_cancel_of(page.body)
            partial = self._uri(b"partial", self._next_token)
        try:
            body = rewrite(page.body, self._info, partial, following)
        except ValueError as error:
            self._broken = True
            raise EngineConnectionLost(f"the engine answered query {self.id} with garbage: {error}") from None
        if not self.over:
            failed = cast(Frames, self._answer).failure is not None
            self._move(Event.PAGE if following else Event.FAIL if failed else Event.END)
        return Page(body, page.headers, last=following is None)

    async def _page_of_rows(self) -> Page:
        """Rows until the page is full or there are no more."""
        parts: list[bytes] = []
        size = 0
        while size < PAGE_BYTES:
            batch = await self._take(PAGE_BYTES - size)
            if batch is None:
                break
            part = await self._encode(batch)
            if batch.num_rows:
                self._rows += batch.num_rows
                parts.append(part)
                size += len(part) + 1
        last = size < PAGE_BYTES
        if not self.over:
            self._move(Event.END if last else Event.PAGE)
        body = results(
            self.id,
            self._info,
            self._stats("FINISHED" if last else "RUNNING"),
            following=None if last else self.following,
            columns=self._columns,
            rows=parts,
        )
        return Page(body, last=last)

    async def _take(self, room: int) -> "Batch | None":
        """As many rows as fit ``room`` bytes, from what was left over or from the engine."""
        batch, self._rest = self._rest, None
        if batch is None:
            batch = cast("Batch | None", await self._query.next())
        if batch is None:
            return None
        assert self._encoder is not None
        batch, self._rest = self._encoder.split(batch, room)
        return batch

    async def _encode(self, batch: "Batch") -> bytes:
        assert self._encoder is not None
        if batch.num_rows * batch.num_columns <= _INLINE_VALUES:
            return self._encoder.encode(batch)
        return await self._around.encode(self._encoder.encode, batch)


def _event_of(error: QueryFluxError) -> Event:
    if isinstance(error, QueryAbandoned):
        return Event.ABANDON
    return Event.CANCEL if isinstance(error, QueryEnded) and error.code == "CANCELLED" else Event.FAIL
