"""One statement that a client fetches page by page.

Every page has a number, the token in its URI. The client asks for the page after the one it has; asking again
for the same one gives the same bytes, since it may not have received them; earlier ones are gone. A page is
made when it is asked for and not before, so that a slow client slows the engine's read.

A Trino engine's pages are pulled within the poll that asks for them: the coordinator itself answers a poll
in time. Anything else is worked on by a task, and a poll that sees no result within HOLD_SECONDS (the POST:
within FIRST_HOLD_SECONDS) is told the state instead; the task wakes the next poll.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import cast

from queryflux.frontends.trino_http.errors import document as error_document
from queryflux.frontends.trino_http.limits import NO_LIMITS, Limits, TimeLimit
from queryflux.frontends.trino_http.pageuris import PageUris
from queryflux.frontends.trino_http.progress import Progress
from queryflux.frontends.trino_http.rowpages import Encode, RowPages
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
from queryflux.model.shared import Kept
from queryflux.pipeline.claims import OwnClaim
from queryflux.pipeline.face import Conversation, Query
from queryflux.results.answer import Answer, Batches, Done, Frames
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup, done_within
from queryflux.wire.trino.documents import Stats, Update, results
from queryflux.wire.trino.native import TrinoFrames, TrinoPage
from queryflux.wire.trino.uris import id_of, partial_cancel_of, rewrite

log = logging.getLogger(__name__)

HOLD_SECONDS = 1.0
"""How long a poll may wait before it is told that the query goes on."""
FIRST_HOLD_SECONDS = 0.1
"""How long the POST may: a quick answer comes with it, and the client of a longer query soon has the URI that
it needs to cancel it."""


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
        "_ahead",
        "_answer",
        "_around",
        "_broken",
        "_conversation",
        "_limit",
        "_partial_cancel",
        "_query",
        "_relays",
        "_rows",
        "_text",
        "_turn",
        "_work",
        "asking",
        "backend_id",
        "claim",
        "id",
        "kept",
        "last_seen",
        "owner",
        "page",
        "progress",
        "settled",
        "state",
        "token",
        "untold",
        "uris",
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
        limits: Limits = NO_LIMITS,
    ) -> None:
        """``keeps_conversation``: it belongs to a transaction, and is not closed with the query."""
        self.id = query_id
        self.owner = owner
        self.state = State.SUBMITTED
        self.uris = PageUris(base, query_id)
        self.progress = Progress(query, around.clock)
        self.token = 0
        self.page: Page | None = None
        self.asking = 0
        self.last_seen = around.clock.monotonic()
        self.claim: OwnClaim | None = None
        """That it is ours to answer for, where it might be another process's."""
        self.kept: Kept | None = None
        """Where the engine keeps the pages to come, if it does."""
        self.backend_id = ""
        self._around = around
        self._text = text
        self._query = query
        self._conversation = conversation if not keeps_conversation else None
        self._answer: Answer | None = None
        self._ahead: object | None = None
        """A frame that has been taken of the answer already."""
        self._rows: RowPages | None = None
        self._partial_cancel: str | None = None
        self._work: asyncio.Task[Page] | None = None
        self._turn: asyncio.Future[None] | None = None
        self.settled = False
        self.untold = False
        """It was stopped by somebody else than its client, who will ask for it and is to hear why."""
        self._relays = False
        self._limit = (
            TimeLimit(limits, query, around.clock, around.tasks) if limits is not NO_LIMITS else None
        )
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

    @property
    def lost(self) -> bool:
        """Another process answers for it."""
        return self.claim is not None and self.claim.lost

    async def first(self) -> Page:
        """The answer to the POST."""
        self._begin_life()
        page = await (self._produce() if self._relays else self._next_page(FIRST_HOLD_SECONDS))
        self.page = page
        return page

    def _begin_life(self) -> None:
        if self._waiting:
            self._move(Event.QUEUE)
        else:
            self._move(Event.RUN)
            self._relays = self._query.engine_protocol is ClientProtocol.TRINO_HTTP
        if self._limit is not None and not self._relays:
            self._limit.begin(self.progress.created_at)

    def adopted(self, slug: str | None, token: int, created_at: float) -> None:
        """It was begun by another process, and its client has the pages before ``token``. ``slug`` None: its
        URIs are not known here."""
        self.uris.goes_on_with(slug)
        self.progress.goes_on_from(created_at)
        self.token = token
        self._begin_life()

    def begun(self, answer: Answer, frame: object | None) -> None:
        """It was started before this was made; ``frame`` was taken of its answer. ``first`` goes on there."""
        self._begin(answer)
        self._ahead = frame

    def failed(self, error: QueryFluxError) -> Page:
        """It was started before this was made, and failed: the answer to the POST."""
        self._move(Event.RUN)
        self.page = self._failure(error)
        return self.page

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
        if self.settled:
            return
        self.settled = True
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
            await self.gone()

    async def gone(self) -> None:
        """Nobody will be asked for it any more, here or in another process."""
        if self.claim is not None:
            await self.claim.gone()

    async def drop(self) -> None:
        """Another process answers for it now: leave it, and all that is at work for it, to that one."""
        if not self.over:
            self._move(Event.ABANDON)
        try:
            await self._query.forsake()
        finally:
            if self._conversation is not None:
                await self._conversation.close()

    async def cancel(self, reason: EndReason, *, untold: bool = False) -> None:
        """Stop it; a poll that waits, or comes after, is told why. ``untold``: its client does not know, and
        may ask another process, which has to find us."""
        if self.over:
            return
        self.untold = untold
        self._move(Event.ABANDON if reason is EndReason.ABANDONED else Event.CANCEL)
        self.last_seen = self._around.clock.monotonic()
        try:
            await self._query.cancel(reason)
        finally:
            if self._conversation is not None:
                await self._conversation.close()
            if not untold:
                await self.gone()

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

    @property
    def following(self) -> bytes:
        """The URI of the page after this one."""
        kind = b"queued" if self.state is State.QUEUED else b"executing"
        return self.uris.page(kind, self._next_token)

    @property
    def _next_token(self) -> int:
        """The token after the one that the page in the making will be given out for: that of the poll that
        waits for it or was broken off or, if the last poll has had its page, of the next one."""
        return self.token + (1 if self.page is None else 2)

    @property
    def _columns(self) -> bytes | None:
        return self._rows.columns if self._rows is not None else None

    # Making pages.

    @property
    def _waiting(self) -> bool:
        return self._query.waiting

    def _move(self, event: Event) -> None:
        self.state = after(self.state, event)
        if self._limit is not None and self.state in OVER:
            self._limit.end()

    async def _next_page(self, hold: float = HOLD_SECONDS) -> Page:
        if self._relays and self._work is None:
            return await self._produce()
        if self._work is None:
            self._work = self._around.tasks.spawn(f"page of {self.id}", self._produce())
        if not await done_within(self._work, hold, self._around.clock):
            return self._progress()
        work, self._work = self._work, None
        return work.result()

    def _progress(self) -> Page:
        """How far it is."""
        if not self.over and self.state is not State.PAGING:
            self._move(Event.QUEUE if self._waiting else Event.RUN)
        state = "QUEUED" if self.state is State.QUEUED else "RUNNING"
        body = results(
            self.id, self.uris.info, self._stats(state), following=self.following, columns=self._columns
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
            assert self._rows is not None
            return await self._page_of_rows(self._rows)
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
        self.progress.start()
        self._answer = answer
        self._relays = isinstance(answer, Frames)
        if isinstance(answer, Batches):
            self._rows = RowPages(answer, self._query, self._around.encode)

    def _stats(self, state: str) -> Stats:
        return self.progress.stats(state, self._answer, self._rows.rows if self._rows is not None else 0)

    def _failure(self, error: QueryFluxError) -> Page:
        if self._limit is not None:
            error = self._limit.told(error)
        if not self.over:
            self._move(_event_of(error))
        body = results(
            self.id,
            self.uris.info,
            self._stats("FAILED"),
            columns=self._columns,
            error=error_document(error, self._text),
        )
        return Page(body)

    def _count(self, done: Done) -> Page:
        if not self.over:
            self._move(Event.END)
        update = Update(done.tag, done.rows)
        body = results(self.id, self.uris.info, self._stats("FINISHED"), update=update)
        return Page(body, tuple(done.headers.items()))

    async def _relay(self) -> Page:
        """The coordinator's next page, with URIs of ours."""
        frame, self._ahead = self._ahead, None
        if frame is None:
            if self.claim is not None:
                await self.claim.written()  # others know the page that is asked for now
            frame = await self._query.next()
        if frame is None:
            self._relays = False
            raise EngineConnectionLost(f"the engine ended query {self.id} without a last page")
        page = cast(TrinoPage, frame)
        following = partial = None
        if page.next_uri is not None:
            following = self.following
            self._partial_cancel = partial_cancel_of(page.body)
            partial = self.uris.page(b"partial", self._next_token)
        try:
            body = rewrite(page.body, self.uris.info, partial, following)
        except ValueError as error:
            self._broken = True
            raise EngineConnectionLost(f"the engine answered query {self.id} with garbage: {error}") from None
        if not self.over:
            failed = cast(Frames, self._answer).failure is not None
            self._move(Event.PAGE if following else Event.FAIL if failed else Event.END)
        if self.claim is not None and page.next_uri is not None:
            before = self.kept.uri if self.kept is not None else ""
            self.kept = Kept(self._next_token, page.next_uri, before)
            self.backend_id = id_of(page.body)
            await self.claim.tell()
        return Page(body, page.headers, last=following is None)

    async def _page_of_rows(self, pages: RowPages) -> Page:
        """Rows until the page is full or there are no more."""
        parts, last = await pages.fill()
        if not self.over:
            self._move(Event.END if last else Event.PAGE)
        body = results(
            self.id,
            self.uris.info,
            self._stats("FINISHED" if last else "RUNNING"),
            following=None if last else self.following,
            columns=pages.columns,
            rows=parts,
        )
        return Page(body, last=last)


def _event_of(error: QueryFluxError) -> Event:
    if isinstance(error, QueryAbandoned):
        return Event.ABANDON
    return Event.CANCEL if isinstance(error, QueryEnded) and error.code == "CANCELLED" else Event.FAIL
