"""Requests about statements that another process of the database began.

Whoever is polled looks into the row. One that waits is QUEUED, whoever says so; it is taken over when nobody
lives who answers for it. One that runs is asked of its owner where that can be reached. Where it cannot, and
the engine keeps the result, it is taken over; where the result is the owner's alone, the client is told who
that is. A query without a row has ended, unless the database was away a moment ago: then its process may be
about to tell of it. The checks are those of a statement of one's own: the unguessable part of the URI, and
the user.
"""

import asyncio
import hmac
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from queryflux.auth.known import known_user
from queryflux.frontends.trino_http.exchange import HOLD_SECONDS, Exchange
from queryflux.frontends.trino_http.registry import Registry
from queryflux.frontends.trino_http.relay import Relay, Unreachable
from queryflux.frontends.trino_http.replies import Reply
from queryflux.frontends.trino_http.share import hash_of
from queryflux.model.endings import EndReason
from queryflux.model.errors import AccessDenied, QueryNotFound, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import process_tag_of
from queryflux.model.shared import Kept, SharedRow
from queryflux.pipeline.claims import Claims
from queryflux.runtime.clock import Clock
from queryflux.wire.http1 import Response
from queryflux.wire.trino.documents import Stats, results

LOOKS = 4
"""So often the row is looked at while the query goes from hand to hand, at ever longer intervals."""
LOOK_SECONDS = 0.05


class Wanted(msgspec.Struct, frozen=True):
    """A request about a statement. ``slug`` and ``token`` are None where its URI has none; ``base`` is that
    of URIs for this client."""

    method: str
    path: str
    kind: str
    query_id: str
    slug: str | None
    token: int | None
    identity: VerifiedIdentity
    base: bytes


def from_where(row: SharedRow, token: int | None) -> tuple[SharedRow, int, int]:
    """From where to go on for a client that asks for page ``token``: the row with the engine's place of that
    page, the page that is made next, and how many pages from that place the client has had. Its last page may
    not have reached it, and the owner may have got one page further than it had written down."""
    kept = row.kept
    if kept is None:
        return row, token if token is not None else 0, 0
    if token == kept.token + 1:
        return row, token, 1
    if token == kept.token - 1 and kept.before:
        return replace(row, kept=Kept(token, kept.before)), token, 0
    return row, kept.token, 0


def _unknown(query_id: str) -> QueryNotFound:
    """Whose it was does not matter any more."""
    return QueryNotFound(
        f"Query {query_id} is not known here: it has ended, and no process of this database answers for it",
        hint="run it again",
    )


Adopt = Callable[[SharedRow, Wanted], Exchange]
"""Makes an exchange of what we have just taken over."""


class Replicas:
    """The statements of the other processes."""

    def __init__(self, claims: Claims, registry: Registry, clock: Clock, adopt: Adopt) -> None:
        self.claims = claims
        self._registry = registry
        self._clock = clock
        self._adopt = adopt
        self._relay = Relay(lambda: claims.key)

    async def answer(self, wanted: Wanted) -> Reply | Exchange:
        """The reply; or the exchange, if the query is ours now. Raises QueryNotFound, AccessDenied,
        Unavailable."""
        for look in range(LOOKS):
            if look:
                await self._clock.sleep(look * LOOK_SECONDS)
            ours = self._registry.get(wanted.query_id)
            if ours is not None:
                return ours  # taken over meanwhile, for another request
            row = await self._row(wanted.query_id)
            self._check(row, wanted)
            looked = await (self._running(row, wanted) if row.executing else self._waiting(row, wanted))
            if looked is not None:
                return looked
        raise Unavailable(f"query {wanted.query_id} is changing hands", hint="ask again in a moment")

    async def _row(self, query_id: str) -> SharedRow:
        """The row of a query by our id. Raises QueryNotFound, Unavailable."""
        row = await self.claims.find(query_id)
        if row is None and self._may_be_told(query_id):
            await self._clock.sleep(HOLD_SECONDS)
            row = await self.claims.find(query_id)
            if row is None and self._may_be_told(query_id):
                told = f"Query {query_id} is not known here yet: the database was away a moment ago"
                raise Unavailable(told, hint="ask again in a moment")
        if row is None or row.query.id != query_id:
            raise _unknown(query_id)
        return row

    def _may_be_told(self, query_id: str) -> bool:
        """It is another process's, which could not tell of it until now."""
        tag = process_tag_of(query_id)
        return tag not in ("", self._registry.tag) and self.claims.arrears.unsteady

    def _check(self, row: SharedRow, wanted: Wanted) -> None:
        if wanted.slug is not None and not hmac.compare_digest(hash_of(wanted.slug), row.query.slug):
            raise _unknown(wanted.query_id)
        if row.query.user != wanted.identity.user:
            raise AccessDenied(f"Query {wanted.query_id} belongs to another user")

    async def cancel(self, query_id: str) -> bool:
        """An operator ends a query, by our id or the engine's. False: no process knows it."""
        row = await self.claims.find(query_id)
        if row is None:
            return False
        identity = known_user(row.query.user)
        path = f"/v1/query/{row.query.id}"
        outcome = await self.answer(Wanted("DELETE", path, "", row.query.id, None, None, identity, b""))
        if isinstance(outcome, Exchange):
            await outcome.cancel(EndReason.CANCELLED, untold=row.executing)
            return True
        return outcome.status < 300

    # One that waits.

    async def _waiting(self, row: SharedRow, wanted: Wanted) -> Reply | Exchange | None:
        about = row.query
        if wanted.method == "GET" and wanted.token is None:
            return self._document(row, wanted)
        ends = wanted.method == "DELETE"
        if (row.stale or ends) and not self.claims.draining:
            if not about.whole and not ends:
                told = f"query {about.id} waited in process {row.owner}, which has gone; what it came with "
                raise QueryNotFound(told + "is not known to others", hint="run it again")
            return await self._take(row, wanted, alive=ends)
        if wanted.method != "GET":
            return Reply(503 if ends else 200, close=self.claims.draining)
        if not self.claims.draining:
            await self._clock.sleep(HOLD_SECONDS)
        return self._progress(row, wanted, "QUEUED")

    # One that runs.

    async def _running(self, row: SharedRow, wanted: Wanted) -> Reply | Exchange | None:
        if wanted.method == "GET" and wanted.token is None:
            return self._document(row, wanted)
        alive = not row.stale
        ours = row.owner == self.claims.instance  # and we do not know it: one of our name was here before us
        why = "it has not been heard of for too long" if row.stale else "it has no queryflux.advertiseAddress"
        if alive and row.address is not None and not ours:
            try:
                return self._passed_on(await self._ask(row, wanted), wanted)
            except Unreachable as error:
                if error.slow and wanted.method == "GET":
                    return self._progress(row, wanted, "RUNNING")
                why = f"{row.address}: {error}"
        if row.kept is not None and not self.claims.draining:
            if wanted.kind == "partial":
                return Reply(204)  # a hint, and no loss: the query goes on with all it has to do
            return await self._take(row, wanted, alive=alive)
        told = f"Query {row.query.id} is answered by process {row.owner} only, which this one cannot ask"
        if row.stale:
            raise QueryNotFound(f"{told}: {why}", hint="run it again")
        if row.address is None:
            raise QueryNotFound(f"{told}: {why}", hint="set it, or keep clients at one process")
        raise Unavailable(f"{told}: {why}", hint="ask again in a moment")

    async def _ask(self, row: SharedRow, wanted: Wanted) -> Response:
        assert row.owner is not None
        assert row.address is not None
        return await self._relay.ask(
            row.address, row.owner, wanted.method, wanted.path, wanted.identity.user, wanted.base
        )

    @staticmethod
    def _passed_on(response: Response, wanted: Wanted) -> Reply | None:
        """The owner's reply; None when it is not the owner any more."""
        if response.status in (401, 404):
            return None
        told = tuple(pair for pair in response.pairs if pair[0].startswith("x-trino-"))
        body = b"" if wanted.method == "HEAD" else response.body
        return Reply(response.status, body, told)

    # Taking over.

    async def _take(self, row: SharedRow, wanted: Wanted, *, alive: bool) -> Exchange | None:
        """An exchange of ours; None when another process was faster."""
        taking = asyncio.ensure_future(self._taken(row, wanted, alive=alive))
        return await asyncio.shield(taking)  # what is ours has to be known here, whoever waits for it

    async def _taken(self, row: SharedRow, wanted: Wanted, *, alive: bool) -> Exchange | None:
        taken = await self.claims.take(row, alive=alive)
        return self._adopt(taken, wanted) if taken is not None else None

    # Replies.

    def _progress(self, row: SharedRow, wanted: Wanted, state: str) -> Reply:
        """Ask again for the same page."""
        elapsed = max(int((self._clock.now() - row.query.created_at) * 1000), 0)
        stats = Stats(state, elapsed=elapsed, queued=elapsed if state == "QUEUED" else 0)
        query_id = wanted.query_id.encode()
        info = b"%b/ui/query.html?%b" % (wanted.base, query_id)
        return Reply(
            200,
            results(wanted.query_id, info, stats, following=wanted.base + wanted.path.encode()),
            close=self.claims.draining,
        )

    @staticmethod
    def _document(row: SharedRow, wanted: Wanted) -> Reply:
        document = {
            "queryId": row.query.id,
            "session": {"user": row.query.user},
            "state": "RUNNING" if row.executing else "QUEUED",
            "self": (wanted.base + b"/v1/query/" + row.query.id.encode()).decode(),
            "query": row.query.text,
            "finalQueryInfo": False,
        }
        return Reply(200, msgspec.json.encode(document))

    def close(self) -> None:
        """Nothing is passed on any more."""
        self._relay.close()
