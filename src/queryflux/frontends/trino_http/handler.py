"""Requests to replies: the endpoints of the client protocol, on top of exchanges. No sockets here."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from queryflux.auth.known import known_user
from queryflux.frontends.trino_http.addresses import Addresses
from queryflux.frontends.trino_http.credentials import Credentials
from queryflux.frontends.trino_http.errors import document as error_document
from queryflux.frontends.trino_http.exchange import Exchange, Page, Surroundings
from queryflux.frontends.trino_http.limits import limits_of
from queryflux.frontends.trino_http.local import DIALECT, OURS, Asked, Instead, Local, Outcome
from queryflux.frontends.trino_http.pageuris import Place, place_of
from queryflux.frontends.trino_http.registry import Registry
from queryflux.frontends.trino_http.relay import verify
from queryflux.frontends.trino_http.replicas import Replicas, Wanted, from_where
from queryflux.frontends.trino_http.replies import PROCESS, Reply, plain
from queryflux.frontends.trino_http.session import Caller, caller_of, transaction_of
from queryflux.frontends.trino_http.share import Share
from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    AuthenticationFailed,
    InternalError,
    QueryFluxError,
    QueryNotFound,
    QueryTakenOver,
    Unavailable,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import QueryIds, process_tag_of
from queryflux.model.shared import SharedRow
from queryflux.model.statement import Statement
from queryflux.pipeline.claims import Claims, Standing
from queryflux.pipeline.face import Conversation, Pipeline, Query, StatementKind
from queryflux.wire.http1 import Request
from queryflux.wire.trino import headers as names
from queryflux.wire.trino.documents import Stats, results
from queryflux.wire.trino.native import TrinoStatement

if TYPE_CHECKING:
    from queryflux.frontends.trino_http.elsewhere import Elsewhere

log = logging.getLogger(__name__)

VERSION = "476"
"""The Trino version that clients are told: that of the protocol we follow."""
_STATEMENT = "/v1/statement"
_QUERY = "/v1/query/"
_INFO = "/ui/query.html"
_LONGEST_ID = 100
Watch = Callable[[Callable[[], object] | None], None]


class Handler:
    """Answers the requests of all connections of one door."""

    def __init__(
        self,
        pipeline: Pipeline,
        registry: Registry,
        around: Surroundings,
        credentials: Credentials,
        addresses: Addresses,
        ids: QueryIds,
        state: Callable[[], str],
        claims: Claims | None = None,
    ) -> None:
        """``state`` gives the node's state for /v1/info/state; ``claims`` are there when other processes may
        be asked about our statements, and we about theirs."""
        self.credentials = credentials
        self._pipeline = pipeline
        self._registry = registry
        self._around = around
        self._addresses = addresses
        self._ids = ids
        self._state = state
        self._local = Local(pipeline, registry)
        self._since = around.clock.monotonic()
        self._claims = claims
        self.elsewhere: Elsewhere | None = None
        """Where there are siblings."""
        self.replicas: Replicas | None = None
        if claims is not None:
            self.replicas = Replicas(claims, registry, around.clock, self._adopt)

    def _own_id(self) -> str:
        """An id for a statement that is no query of the pipeline's; it cannot be one of its ids."""
        head, _, tag = self._ids.next().rpartition("_")
        return f"{head}d_{tag}"

    # Submit.

    async def submit(
        self,
        request: Request,
        identity: VerifiedIdentity,
        caller: Caller,
        watch: Watch,
    ) -> Reply:
        """POST /v1/statement, its body complete. ``watch`` is given what to do when the client goes away
        before it has its answer. Raises QueryFluxError for what is told outside a page."""
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            return plain(400, "GENERIC_USER_ERROR", f"the statement is not UTF-8: byte {error.start} is not")
        if not text or text.isspace():
            return plain(400, "SYNTAX_ERROR", "SQL statement is empty")
        headers, session = caller.headers, caller.session
        named = transaction_of(headers) if caller.in_transaction else None
        if named is not None and (tag := self._sibling(named)):
            assert self.elsewhere is not None
            return await self.elsewhere.submit(tag, request, identity, session.peer, watch)
        transaction = self._registry.transaction(named, identity) if named is not None else None
        prepared = ""
        kind = self._pipeline.classify(text, DIALECT).kind
        if kind in OURS:
            asked = Asked(text, identity, session, headers.get(names.PREPARED_STATEMENT, ""), transaction)
            outcome = await self._ours(asked, kind, caller.base)
            if isinstance(outcome, Reply):
                return outcome
            text, prepared = outcome.text, outcome.prepared
        if (malformed := caller.limits.malformed) is not None:
            return Reply(200, _failed(self._own_id(), caller.base, malformed, text))
        native = caller.native
        if prepared:
            native = TrinoStatement((*native.headers, (names.PREPARED_STATEMENT, prepared)))
        statement = Statement(text, DIALECT, native=native)
        if transaction is None:
            talk = self._pipeline.converse(identity, caller.session)
            return await self.first_reply(
                self.exchange(statement, caller, talk, talk.submit(statement)), watch
            )
        talk = transaction.conversation
        talk.session = caller.session
        query = talk.submit(statement)
        transaction.exchange = self.exchange(statement, caller, talk, query, keeps_conversation=True)
        return await self.first_reply(transaction.exchange, watch)

    def exchange(
        self,
        statement: Statement,
        caller: Caller,
        conversation: Conversation,
        query: Query,
        *,
        keeps_conversation: bool = False,
    ) -> Exchange:
        """A query that has been submitted, for its client to fetch; ``keeps_conversation`` as there."""
        exchange = Exchange(
            self._around,
            query.id or self._own_id(),
            conversation.identity.user,
            statement.text,
            conversation,
            query,
            base=caller.base,
            keeps_conversation=keeps_conversation,
            limits=caller.limits,
        )
        if self._claims is not None:
            self._claim(self._claims, exchange, statement, conversation, query, pinned=keeps_conversation)
        return exchange

    def _claim(
        self,
        claims: Claims,
        exchange: Exchange,
        statement: Statement,
        conversation: Conversation,
        query: Query,
        *,
        pinned: bool,
    ) -> Share:
        """It is ours, and others are told once its client has a URI."""
        session, clock = conversation.session, self._around.clock
        share = Share(self._registry, clock, exchange, statement, session, query, pinned=pinned)
        exchange.claim = query.claim = claims.claim(exchange.id, share)
        return share

    def _adopt(self, row: SharedRow, wanted: Wanted) -> Exchange:
        """An exchange of what we have just taken over."""
        about = row.query
        row, token, had = from_where(row, wanted.token)
        native = TrinoStatement(about.native)
        talk, query = self._pipeline.take_over(wanted.identity, row, native, had)
        statement = Statement(about.text, about.dialect, native=native)
        exchange = Exchange(
            self._around,
            about.id,
            about.user,
            about.text,
            talk,
            query,
            base=wanted.base,
            keeps_conversation=False,
            limits=limits_of(about.extra.get(names.SESSION, "")),
        )
        assert self._claims is not None
        share = self._claim(self._claims, exchange, statement, talk, query, pinned=False)
        exchange.adopted(wanted.slug, token, about.created_at)
        exchange.kept = row.kept
        assert exchange.claim is not None
        exchange.claim.taken(share.standing() if row.executing else Standing(executing=False))
        self._registry.add(exchange)
        return exchange

    async def first_reply(self, exchange: Exchange, watch: Watch) -> Reply:
        """The reply to a statement's POST."""
        watch(lambda: self._gone(exchange))
        try:
            page = await exchange.first()
        finally:
            watch(None)
        if page.last:
            return Reply(200, page.body, page.headers, then=exchange.settle)
        self._registry.add(exchange)
        if exchange.claim is not None:
            await exchange.claim.tell()
        gone = partial(self._gone, exchange)
        headers = (*page.headers, (PROCESS, self._ids.tag))
        return Reply(200, page.body, headers, undelivered=gone, query_id=exchange.id)

    def failed(self, exchange: Exchange, error: QueryFluxError) -> Reply:
        """The reply to the POST of a statement that did not begin."""
        page = exchange.failed(error)
        return Reply(200, page.body, page.headers, then=exchange.settle)

    def caller(self, headers: dict[str, str], peer: str) -> Caller:
        """Who asks from where, as the headers of a request have it."""
        return caller_of(headers, peer, self._addresses.base(headers))

    async def _ours(self, asked: Asked, kind: StatementKind, base: bytes) -> Reply | Instead:
        """The reply to a statement about the session; what is to be run instead, if it is not ours after
        all."""
        query_id = self._own_id()
        try:
            outcome = await self._local.answer(asked, kind)
        except QueryFluxError as error:
            outcome = Outcome(error=error)
        if isinstance(outcome, Instead):
            return outcome
        if outcome.error is not None:
            return Reply(200, _failed(query_id, base, outcome.error, asked.text), outcome.headers)
        return self._told(query_id, base, outcome)

    def _told(self, query_id: str, base: bytes, outcome: Outcome) -> Reply:
        body = results(
            query_id,
            _info_uri(base, query_id),
            Stats("FINISHED", processed_rows=len(outcome.rows)),
            columns=outcome.columns,
            rows=list(outcome.rows),
            update=outcome.update,
        )
        return Reply(200, body, outcome.headers)

    def _gone(self, exchange: Exchange) -> None:
        """The client of a POST went away: nobody has the URI to fetch this by."""
        self._around.tasks.spawn(f"client of {exchange.id} has gone", exchange.cancel(EndReason.CLIENT_GONE))

    def _reply(self, exchange: Exchange, page: Page) -> Reply:
        if not page.last:
            return Reply(200, page.body, page.headers)

        async def settle() -> None:
            self._registry.retire(exchange)
            await exchange.settle()

        return Reply(200, page.body, page.headers, settle)

    # Everything else.

    async def other(self, request: Request, path: str, identity: VerifiedIdentity) -> Reply:
        """Requests that need no body. Raises QueryFluxError."""
        method = request.method
        if path.startswith(_STATEMENT + "/"):
            place = place_of(path)
            if place is None:
                return plain(404, "NOT_FOUND", "no statement has such a URI")
            if place.kind == "partial" and method not in ("DELETE", "HEAD"):
                return _not_for_pages(method)
            if method not in ("GET", "HEAD", "DELETE"):
                return _not_for_pages(method)
            return await self._asked(request, place.kind, place.query_id, place.slug, place.token, identity)
        if method not in ("GET", "HEAD") and not (method == "DELETE" and path.startswith(_QUERY)):
            return plain(405, "GENERIC_USER_ERROR", f"{method} is not for {path[:100]}")
        if path == "/v1/info":
            return Reply(200, self._info())
        if path == "/v1/info/state":
            return Reply(200, msgspec.json.encode(self._state()))
        if path.startswith(_QUERY):
            return await self._asked(request, "", path[len(_QUERY) :], None, None, identity)
        if path == _INFO:
            return await self._info_of(request, request.target.partition("?")[2], identity)
        return plain(
            404, "NOT_FOUND", f"there is nothing at {path[:100]}; statements go to POST /v1/statement"
        )

    async def _info_of(self, request: Request, query_id: str, identity: VerifiedIdentity) -> Reply:
        """What an ``infoUri`` leads to: the query's document, or where one that is over is found."""
        place = _QUERY + query_id
        asked = Request(request.method, place, request.headers, None, True)
        with suppress(QueryNotFound):
            reply = await self._asked(asked, "", query_id, None, None, identity)
            if reply.status != 404:
                return reply
        note = "it is not known here any more: the operator finds it with queryflux queries"
        return Reply(200, msgspec.json.encode({"queryId": query_id[:_LONGEST_ID], "note": note}))

    async def _asked(
        self,
        request: Request,
        kind: str,
        query_id: str,
        slug: str | None,
        token: int | None,
        identity: VerifiedIdentity,
    ) -> Reply:
        """A request about a statement; ``kind`` is empty where its URI names no page."""
        if tag := self._sibling(query_id):
            assert self.elsewhere is not None
            reply = await self.elsewhere.ask(tag, request, identity)
            if reply is None:
                raise self._registry.unknown(query_id)
            return reply
        base = self._addresses.base(request.headers)
        path = request.target.partition("?")[0]
        wanted = Wanted(request.method, path, kind, query_id, slug, token, identity, base)
        if self.replicas is None:
            return await self._here(self._registry.find(query_id, slug, identity.user), wanted)
        for _ in range(2):
            exchange = self._registry.get(query_id)
            if exchange is None or (exchange.claim is not None and not await exchange.claim.held()):
                outcome = await self.replicas.answer(wanted)
                if isinstance(outcome, Reply):
                    return outcome
            reply = await self._if_ours(wanted)
            if reply is not None:
                return reply
        raise Unavailable(f"query {query_id} is changing hands", hint="ask again in a moment")

    def _sibling(self, name: str) -> str:
        """The tag of the sibling that gave this id to a query or a transaction; empty: this process answers,
        if only that nobody knows it."""
        tag = process_tag_of(name) if self.elsewhere is not None else ""
        return tag if tag != self._ids.tag and tag.isalnum() else ""

    async def _if_ours(self, wanted: Wanted) -> Reply | None:
        """The reply to a request about a statement of ours; None when it turns out not to be."""
        exchange = self._registry.find(wanted.query_id, wanted.slug, wanted.identity.user)
        claim = exchange.claim
        try:
            reply = await self._here(exchange, wanted)
        except QueryNotFound:
            if claim is None or await claim.held(surely=True):
                raise
            return None
        if reply.status == 410 and claim is not None:
            await claim.held(surely=True)
        return None if exchange.lost else reply

    async def relayed(self, request: Request) -> Reply:
        """A request that another process passes on. Raises AuthenticationFailed; QueryNotFound for what is
        not ours, which is for the other to find out about."""
        claims = self._claims
        if claims is None:
            raise AuthenticationFailed("this process has no others beside it")
        relayed = verify(request, claims.key, claims.instance)
        path = request.target
        place = place_of(path) if path.startswith(_STATEMENT) else Place("", path[len(_QUERY) :], "", 0)
        if place is None:
            raise QueryNotFound(f"no statement has the URI {path[:100]}")
        identity = known_user(relayed.user)
        slug, token = (place.slug, place.token) if place.kind else (None, None)
        wanted = Wanted(request.method, path, place.kind, place.query_id, slug, token, identity, relayed.base)
        reply = await self._if_ours(wanted)
        if reply is None:
            raise self._registry.unknown(place.query_id)
        return reply

    async def _here(self, exchange: Exchange, wanted: Wanted) -> Reply:
        """A statement of ours."""
        if wanted.method == "DELETE":
            if wanted.kind == "partial" and await exchange.partial_cancel():
                return Reply(204)
            # A URI with a page is its client's own; whoever knows but the id may be anybody of that name.
            await exchange.cancel(EndReason.CANCELLED, untold=wanted.token is None)
            return Reply(204)
        if wanted.token is None:
            return self._document(exchange)
        if wanted.method == "HEAD":
            # A sign of life, which must not use up a page.
            await exchange.heartbeat()
            return Reply(200)
        return await self._poll(exchange, wanted.token, wanted.base)

    async def _poll(self, exchange: Exchange, token: int, base: bytes) -> Reply:
        exchange.asking += 1
        exchange.uris.base = base
        try:
            page = await exchange.poll(token)
            if page is not None and not page.last and exchange.claim is not None:
                await exchange.claim.tell()
        except QueryTakenOver:
            return Reply(503)  # who asked looks for its new owner
        finally:
            exchange.asking -= 1
            exchange.last_seen = self._around.clock.monotonic()
        if page is None:
            return plain(
                410, "NOT_FOUND", f"page {token} of query {exchange.id} was fetched before and is gone"
            )
        return self._reply(exchange, page)

    def _document(self, exchange: Exchange) -> Reply:
        document = {
            "queryId": exchange.id,
            "session": {"user": exchange.owner},
            "state": exchange.state.value.upper(),
            "self": (exchange.uris.base + b"/v1/query/" + exchange.id.encode()).decode(),
            "query": exchange.text,
            "finalQueryInfo": exchange.over,
        }
        return Reply(200, msgspec.json.encode(document))

    def _info(self) -> bytes:
        uptime = self._around.clock.monotonic() - self._since
        return msgspec.json.encode(
            {
                "nodeVersion": {"version": VERSION},
                "environment": "queryflux",
                "coordinator": True,
                "starting": self._state() == "STARTING",
                "uptime": f"{uptime / 60:.2f}m",
            }
        )


def _not_for_pages(method: str) -> Reply:
    return plain(405, "GENERIC_USER_ERROR", f"{method} is not for a statement's pages")


def _info_uri(base: bytes, query_id: str) -> bytes:
    return b"%b/ui/query.html?%b" % (base, query_id.encode())


def _failed(query_id: str, base: bytes, error: QueryFluxError, text: str) -> bytes:
    if isinstance(error, InternalError):
        log.error("statement %s failed", query_id, exc_info=error)
    return results(query_id, _info_uri(base, query_id), Stats("FAILED"), error=error_document(error, text))
