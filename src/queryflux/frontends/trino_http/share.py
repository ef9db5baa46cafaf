"""One statement as the other processes of the database are told of it: enough to answer its client in our
place, and no credentials."""

import hashlib

from queryflux.frontends.trino_http.exchange import Exchange
from queryflux.frontends.trino_http.registry import Registry
from queryflux.frontends.trino_http.state import STOPPED
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import SharedQuery
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.claims import Standing
from queryflux.pipeline.face import Query
from queryflux.runtime.clock import Clock
from queryflux.wire.trino.headers import EXTRA_CREDENTIAL
from queryflux.wire.trino.native import TrinoStatement

KEPT_LENGTH = 64 << 10
"""Characters of the text of a query that runs: all that its record will have."""


def hash_of(slug: str) -> str:
    """What is stored of the unguessable part of a URI."""
    return hashlib.sha256(slug.encode()).hexdigest()[:32]


class Share:
    """The Subject of a claim."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        exchange: Exchange,
        statement: Statement,
        session: Session,
        query: Query,
        *,
        pinned: bool,
    ) -> None:
        """``pinned``: it is one of a transaction, which is ours alone."""
        self._registry = registry
        self._clock = clock
        self._exchange = exchange
        self._statement = statement
        self._session = session
        self._query = query
        self._pinned = pinned

    def shared(self, *, executing: bool) -> SharedQuery:
        """As Subject."""
        exchange, statement, session = self._exchange, self._statement, self._session
        native = statement.native.headers if isinstance(statement.native, TrinoStatement) else ()
        stored = tuple(pair for pair in native if pair[0] != EXTRA_CREDENTIAL)
        text = statement.text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return SharedQuery(
            id=exchange.id,
            user=exchange.owner,
            slug=hash_of(exchange.uris.slug),
            text=text[:KEPT_LENGTH] if executing else text,
            dialect=statement.dialect,
            created_at=exchange.progress.created_at,
            protocol=session.protocol.value,
            group=self._query.group,
            catalog=session.catalog,
            database=session.database,
            tags=dict(session.tags),
            extra=dict(session.extra),
            peer=session.peer,
            native=stored,
            whole=len(stored) == len(native) and text == statement.text and not self._pinned,
            waited_secs=exchange.progress.waited_secs if executing else None,
        )

    def standing(self) -> Standing:
        """As Subject."""
        exchange, query = self._exchange, self._query
        kept = exchange.kept if not self._pinned else None
        if kept is None and (query.waiting or self.will_be_kept()):
            return Standing(executing=False)
        return Standing(executing=True, cluster=query.cluster, backend_id=exchange.backend_id, kept=kept)

    def will_be_kept(self) -> bool:
        """As Subject: a coordinator begins with a query when it is asked for the page after its first."""
        native = self._query.engine_protocol is ClientProtocol.TRINO_HTTP
        return native and not self._pinned and not self._exchange.over

    def is_wanted(self) -> bool:
        """As Subject."""
        exchange = self._exchange
        return not exchange.settled and (exchange.untold or exchange.state not in STOPPED)

    def idle(self) -> float:
        """As Subject."""
        return 0.0 if self._exchange.asking else self._clock.monotonic() - self._exchange.last_seen

    def asked_elsewhere(self, idle: float) -> None:
        """As Subject."""
        exchange = self._exchange
        exchange.last_seen = max(exchange.last_seen, self._clock.monotonic() - idle)

    async def drop(self) -> None:
        """As Subject."""
        self._registry.drop(self._exchange)
        await self._exchange.drop()
