"""The lane of the ordinary statement: a POST with the head of the one before it, answered at once and whole.

A client on a kept-alive connection sends the same head over and over; what it says (who asks, in which
session, what a coordinator gets of it) is known after the first time. A query that arrives in one piece with
that head, goes to a Trino engine that has room, and is answered with one small page needs no exchange, no
registry and no URI: its answer goes out at once, and its conversation serves the next one.

The lane steps aside at the first thing that is otherwise, and nothing is lost by it: ``take`` then has taken
nothing, and ``run`` hands what it has to an Exchange. A conversation that has served anything but such
statements is not kept, since it may hold something of theirs.
"""

import logging

from queryflux.frontends.trino_http.credentials import Credentials, Remembered
from queryflux.frontends.trino_http.exchange import Exchange
from queryflux.frontends.trino_http.handler import Handler, Watch
from queryflux.frontends.trino_http.local import DIALECT
from queryflux.frontends.trino_http.replies import GZIP_BYTES, Reply, page_reply
from queryflux.frontends.trino_http.session import Caller
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryFluxError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Conversation, Pipeline, Query, StatementKind
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.http1 import Request, RequestParser
from queryflux.wire.trino.native import TrinoPage
from queryflux.wire.trino.uris import sole_uri

log = logging.getLogger(__name__)


class Lane:
    """One connection's. ``request`` is the POST whose head it knows, without the body."""

    __slots__ = (
        "_caller",
        "_credentials",
        "_handler",
        "_known",
        "_parser",
        "_pipeline",
        "_query",
        "_stream",
        "_talk",
        "_tasks",
        "_watch",
        "closing",
        "request",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        handler: Handler,
        tasks: TaskGroup,
        stream: ByteStream,
        parser: RequestParser,
        watch: Watch,
    ) -> None:
        """``watch`` as for ``Handler.submit``."""
        self.request: Request | None = None
        self.closing = False
        """The connection ends with its next reply, which has to say so."""
        self._pipeline = pipeline
        self._handler = handler
        self._credentials: Credentials = handler.credentials
        self._tasks = tasks
        self._stream = stream
        self._parser = parser
        self._watch = watch
        self._known: Remembered | None = None
        self._caller: Caller | None = None
        self._talk: Conversation | None = None
        self._query: Query | None = None

    def learn(self, request: Request, known: Remembered | None, caller: Caller) -> None:
        """A POST was answered the general way: this is what its head says."""
        if self.request is None or self.request.headers is not request.headers:
            self.request = Request(request.method, request.target, request.headers, None, True)
            self.request.complete = True
        self._known = known
        ordinary = known is not None and not caller.in_transaction and caller.limits.malformed is None
        self._caller = caller if ordinary else None

    def take(self, data: bytes) -> Statement | None:
        """The statement, if ``data`` is a request for this lane."""
        caller, known = self._caller, self._known
        if caller is None or known is None or self._stream.closed or not self._credentials.hold(known):
            return None
        body = self._parser.again(data, caller.headers)
        if not body:
            return None
        try:
            text = body.decode()
            self._pipeline.check_ready()
        except (UnicodeDecodeError, QueryFluxError):
            return None
        if self._pipeline.classify(text, DIALECT).kind is not StatementKind.QUERY:
            return None
        return Statement(text, DIALECT, (), caller.native)

    async def run(self, statement: Statement) -> Reply | None:
        """Run what ``take`` gave. None: it has been answered; otherwise the reply that is to be written.
        Raises QueryFluxError for what is told outside a page."""
        caller, known = self._caller, self._known
        assert caller is not None
        assert known is not None
        talk = self._talk
        if talk is None or talk.identity is not known.identity:
            talk = await self._converse(known.identity, caller)
        talk.session = caller.session
        query = talk.submit(statement)
        if query.waiting or query.engine_protocol is not ClientProtocol.TRINO_HTTP:
            return await self._handler.first_reply(self._exchange(statement, query), self._watch)
        self._query = query
        try:
            answer = await query.start()
        except QueryFluxError as error:
            return self._handler.failed(self._exchange(statement, query), error)
        finally:
            self._query = None
        page = query.take()
        if isinstance(page, TrinoPage) and self._sent(page, query, caller):
            if not query.finish():
                await self._end(query)
            return None
        exchange = self._exchange(statement, query)
        exchange.begun(answer, page)
        return await self._handler.first_reply(exchange, self._watch)

    async def _converse(self, identity: VerifiedIdentity, caller: Caller) -> Conversation:
        await self.close()
        talk = self._talk = self._pipeline.converse(identity, caller.session)
        return talk

    def _sent(self, page: TrinoPage, query: Query, caller: Caller) -> bool:
        """Write a page that is all there is of an answer, and no more than an ordinary one."""
        if page.next_uri is not None or page.headers or len(page.body) >= GZIP_BYTES or self.closing:
            return False
        place = sole_uri(page.body)
        if place is None:
            return False
        self._stream.write(page_reply(page.body, place, caller.info, query.id))
        return True

    async def _end(self, query: Query) -> None:
        try:
            await query.next()  # gives None: that is its end
        except QueryFluxError as error:
            log.info("query %s ended after its last page: %s", query.id, error.message)

    def _exchange(self, statement: Statement, query: Query) -> Exchange:
        """For what is not ordinary: the conversation is the exchange's from now on."""
        talk, self._talk = self._talk, None
        assert talk is not None
        assert self._caller is not None
        return self._handler.exchange(statement, self._caller, talk, query)

    def gone(self) -> None:
        """The client has gone: nobody would read the answer."""
        query = self._query
        if query is not None:
            self._tasks.spawn(f"client of {query.id} has gone", query.cancel(EndReason.CLIENT_GONE))

    async def close(self) -> None:
        """Nothing further comes."""
        talk, self._talk = self._talk, None
        if talk is not None and not talk.leave():
            await talk.close()
