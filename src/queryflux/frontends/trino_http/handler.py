"""Requests to replies: the endpoints of the client protocol, on top of exchanges. No sockets here."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from queryflux.frontends.trino_http.addresses import Addresses
from queryflux.frontends.trino_http.credentials import Credentials
from queryflux.frontends.trino_http.errors import document as error_document
from queryflux.frontends.trino_http.exchange import Exchange, Page, Surroundings
from queryflux.frontends.trino_http.local import DIALECT, OURS, Asked, Instead, Local, Outcome
from queryflux.frontends.trino_http.registry import Registry, Transaction
from queryflux.frontends.trino_http.replies import Reply, plain
from queryflux.frontends.trino_http.session import Caller, caller_of
from queryflux.model.endings import EndReason
from queryflux.model.errors import InternalError, QueryFluxError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import QueryIds
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Pipeline, StatementKind
from queryflux.wire.http1 import Request
from queryflux.wire.trino import headers as names
from queryflux.wire.trino.documents import Stats, results
from queryflux.wire.trino.native import TrinoStatement

log = logging.getLogger(__name__)

VERSION = "476"
"""The Trino version that clients are told: that of the protocol we follow."""
_STATEMENT = "/v1/statement"
_QUERY = "/v1/query/"
_KINDS = ("queued", "executing", "partial")


@dataclass(frozen=True, slots=True)
class Place:
    """What a statement URI names: query, unguessable part, page."""

    kind: str
    query_id: str
    slug: str
    token: int


def place_of(path: str) -> Place | None:
    """The parts of ``/v1/statement/qf/{kind}/{id}/{slug}/{token}``; None for anything else."""
    parts = path.split("/")
    if len(parts) != 8 or parts[3] != "qf" or parts[4] not in _KINDS:
        return None
    token = parts[7]
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        return None
    return Place(parts[4], parts[5], parts[6], int(token))


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
    ) -> None:
        """``state`` gives the node's state for /v1/info/state."""
        self.credentials = credentials
        self._pipeline = pipeline
        self._registry = registry
        self._around = around
        self._addresses = addresses
        self._ids = ids
        self._state = state
        self._local = Local(pipeline, registry)
        self._since = around.clock.monotonic()

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
        watch: Callable[[Callable[[], object] | None], None],
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
        transaction = self._transaction(headers, identity)
        prepared = ""
        kind = self._pipeline.classify(text, DIALECT).kind
        if kind in OURS:
            asked = Asked(text, identity, session, headers.get(names.PREPARED_STATEMENT, ""), transaction)
            outcome = await self._ours(asked, kind, caller.base)
            if isinstance(outcome, Reply):
                return outcome
            text, prepared = outcome.text, outcome.prepared
        native = caller.native
        if prepared:
            native = (*native, (names.PREPARED_STATEMENT, prepared))
        statement = Statement(text, DIALECT, native=TrinoStatement(native))
        exchange = self._exchange(statement, caller, identity, transaction)
        watch(lambda: self._gone(exchange))
        try:
            page = await exchange.first()
        finally:
            watch(None)
        if page.last:
            return Reply(200, page.body, page.headers, then=exchange.settle)
        self._registry.add(exchange)
        return Reply(200, page.body, page.headers, undelivered=lambda: self._gone(exchange))

    def caller(self, headers: dict[str, str], peer: str) -> Caller:
        """Who asks from where, as the headers of a request have it."""
        return caller_of(headers, peer, self._addresses.base(headers))

    def _transaction(self, headers: dict[str, str], identity: VerifiedIdentity) -> Transaction | None:
        named = headers.get(names.TRANSACTION_ID)
        if not named or named.upper() == names.NO_TRANSACTION:
            return None
        return self._registry.transaction(named, identity)

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

    def _exchange(
        self,
        statement: Statement,
        caller: Caller,
        identity: VerifiedIdentity,
        transaction: Transaction | None,
    ) -> Exchange:
        if transaction is not None:
            conversation = transaction.conversation
            conversation.session = caller.session
        else:
            conversation = self._pipeline.converse(identity, caller.session)
        query = conversation.submit(statement)
        exchange = Exchange(
            self._around,
            query.id or self._own_id(),
            identity.user,
            statement.text,
            conversation,
            query,
            base=caller.base,
            keeps_conversation=transaction is not None,
        )
        if transaction is not None:
            transaction.exchange = exchange
        return exchange

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
            return await self._statement(request, method, place, identity)
        if method not in ("GET", "HEAD") and not (method == "DELETE" and path.startswith(_QUERY)):
            return plain(405, "GENERIC_USER_ERROR", f"{method} is not for {path[:100]}")
        if path == "/v1/info":
            return Reply(200, self._info())
        if path == "/v1/info/state":
            return Reply(200, msgspec.json.encode(self._state()))
        if path.startswith(_QUERY):
            return await self._query(method, path[len(_QUERY) :], identity)
        return plain(
            404, "NOT_FOUND", f"there is nothing at {path[:100]}; statements go to POST /v1/statement"
        )

    async def _statement(
        self, request: Request, method: str, place: Place, identity: VerifiedIdentity
    ) -> Reply:
        exchange = self._registry.find(place.query_id, place.slug, identity)
        if method == "DELETE":
            if place.kind == "partial" and await exchange.partial_cancel():
                return Reply(204)
            await exchange.cancel(EndReason.CANCELLED)
            return Reply(204)
        if method == "HEAD":
            # A sign of life, which must not use up a page.
            await exchange.heartbeat()
            return Reply(200)
        if method != "GET" or place.kind == "partial":
            return plain(405, "GENERIC_USER_ERROR", f"{method} is not for a statement's pages")
        return await self._poll(request, exchange, place.token)

    async def _poll(self, request: Request, exchange: Exchange, token: int) -> Reply:
        exchange.asking += 1
        exchange.base = self._addresses.base(request.headers)
        try:
            page = await exchange.poll(token)
        finally:
            exchange.asking -= 1
            exchange.last_seen = self._around.clock.monotonic()
        if page is None:
            return plain(
                410, "NOT_FOUND", f"page {token} of query {exchange.id} was fetched before and is gone"
            )
        return self._reply(exchange, page)

    async def _query(self, method: str, query_id: str, identity: VerifiedIdentity) -> Reply:
        exchange = self._registry.find(query_id, None, identity)
        if method == "DELETE":
            await exchange.cancel(EndReason.CANCELLED)
            return Reply(204)
        document = {
            "queryId": exchange.id,
            "session": {"user": exchange.owner},
            "state": exchange.state.value.upper(),
            "self": (exchange.base + b"/v1/query/" + exchange.id.encode()).decode(),
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


def _info_uri(base: bytes, query_id: str) -> bytes:
    return b"%b/ui/query.html?%b" % (base, query_id.encode())


def _failed(query_id: str, base: bytes, error: QueryFluxError, text: str) -> bytes:
    if isinstance(error, InternalError):
        log.error("statement %s failed", query_id, exc_info=error)
    return results(query_id, _info_uri(base, query_id), Stats("FAILED"), error=error_document(error, text))
