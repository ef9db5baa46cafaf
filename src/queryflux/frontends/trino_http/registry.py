"""The statements and transactions that clients hold URIs and ids of, and when they are forgotten.

A statement whose client has not asked for ABANDON_SECONDS is stopped. One that has ended is kept for
RETAIN_SECONDS, so that a client whose last page got lost can ask for it again; of such pages no more than
RETAIN_BYTES are kept.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from queryflux.frontends.trino_http.errors import TrinoError
from queryflux.frontends.trino_http.exchange import Exchange
from queryflux.frontends.trino_http.state import STOPPED
from queryflux.model.endings import EndReason
from queryflux.model.errors import AccessDenied, QueryNotFound
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import process_tag_of
from queryflux.pipeline.face import Conversation, TransactionStatus
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

ABANDON_SECONDS = 300.0
RETAIN_SECONDS = 60.0
RETAIN_BYTES = 32 << 20


@dataclass(slots=True)
class Transaction:
    """A conversation that a client comes back to by a transaction id."""

    id: str
    owner: str
    conversation: Conversation
    last_seen: float
    exchange: Exchange | None = None


class Registry:
    """What is alive at this door."""

    def __init__(self, clock: Clock, tasks: TaskGroup, process_tag: str) -> None:
        self._clock = clock
        self._tasks = tasks
        self.tag = process_tag
        self._exchanges: dict[str, Exchange] = {}
        self._ended: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._ended_bytes = 0
        self._transactions: dict[str, Transaction] = {}
        self._handed_out = asyncio.Event()
        self.siblings = False
        """Whether all statements whose process lives can be asked for here."""

    def __len__(self) -> int:
        return len(self._exchanges)

    @property
    def live(self) -> list[Exchange]:
        """Statements that have not ended."""
        return [exchange for exchange in self._exchanges.values() if not exchange.over]

    def add(self, exchange: Exchange) -> None:
        """Its client has been given a URI."""
        self._exchanges[exchange.id] = exchange

    def get(self, query_id: str) -> Exchange | None:
        """The statement, if it is here and nobody has taken it over."""
        exchange = self._exchanges.get(query_id)
        return None if exchange is not None and exchange.lost else exchange

    def find(self, query_id: str, slug: str | None, user: str) -> Exchange:
        """The statement of a URI. Raises QueryNotFound, and AccessDenied for anybody but its owner."""
        exchange = self.get(query_id)
        if exchange is None or (slug is not None and not exchange.uris.matches(slug)):
            raise self.unknown(query_id)
        if exchange.owner != user:
            raise AccessDenied(f"Query {query_id} belongs to another user")
        exchange.last_seen = self._clock.monotonic()
        return exchange

    def unknown(self, query_id: str) -> QueryNotFound:
        """What is said of a statement that is not here."""
        tag = process_tag_of(query_id)
        why = "it has ended"
        if tag != self.tag:
            why = f"it belongs to process {tag or '?'}, and this is {self.tag}"
            if self.siblings:
                why = f"it belonged to process {tag or '?'}, which has gone"
        return QueryNotFound(f"Query {query_id} is not known here: {why}", hint="run it again")

    def drop(self, exchange: Exchange) -> None:
        """Another process answers for it now."""
        if self._exchanges.get(exchange.id) is exchange:
            if exchange.id in self._ended:
                self._forget(exchange.id)
            else:
                del self._exchanges[exchange.id]
            self._handed_out.set()

    def retire(self, exchange: Exchange) -> None:
        """It has ended and its last page was handed out: keep that for a while."""
        if exchange.id not in self._exchanges or exchange.id in self._ended:
            return
        size = len(exchange.page.body) if exchange.page is not None else 0
        self._handed_out.set()
        self._ended[exchange.id] = (self._clock.monotonic() + RETAIN_SECONDS, size)
        self._ended_bytes += size
        while self._ended_bytes > RETAIN_BYTES:
            self._forget(next(iter(self._ended)))

    async def wait_until_fetched(self) -> None:
        """Return when every statement that was not stopped has had its last page fetched."""
        while any(
            exchange.id not in self._ended and exchange.state not in STOPPED
            for exchange in self._exchanges.values()
        ):
            self._handed_out.clear()
            await self._handed_out.wait()

    def _forget(self, query_id: str) -> None:
        _, size = self._ended.pop(query_id)
        self._ended_bytes -= size
        self._exchanges.pop(query_id, None)

    def sweep(self) -> None:
        """Stop what was abandoned, forget what ended long enough ago."""
        now = self._clock.monotonic()
        while self._ended and next(iter(self._ended.values()))[0] <= now:
            self._forget(next(iter(self._ended)))
        for exchange in list(self._exchanges.values()):
            idle = now - exchange.last_seen
            if exchange.asking or exchange.id in self._ended:
                continue
            if exchange.over:
                if idle >= RETAIN_SECONDS:
                    self._exchanges.pop(exchange.id)
                    self._tasks.spawn(f"forget {exchange.id}", exchange.gone())
            elif idle >= ABANDON_SECONDS:
                self._tasks.spawn(f"abandon {exchange.id}", exchange.cancel(EndReason.ABANDONED))
        for transaction in list(self._transactions.values()):
            busy = transaction.exchange is not None and not transaction.exchange.over
            if not busy and now - transaction.last_seen >= ABANDON_SECONDS:
                self.end_transaction(transaction)

    # Transactions.

    def begin_transaction(self, conversation: Conversation, identity: VerifiedIdentity) -> Transaction:
        """Keep a conversation under an id that nobody can guess."""
        transaction_id = f"{secrets.token_hex(16)}_{self.tag}"
        transaction = Transaction(transaction_id, identity.user, conversation, self._clock.monotonic())
        self._transactions[transaction.id] = transaction
        return transaction

    def transaction(self, transaction_id: str, identity: VerifiedIdentity) -> Transaction:
        """The one a client names. Raises TrinoError for one that is unknown or busy; AccessDenied for another
        user's."""
        transaction = self._transactions.get(transaction_id)
        if transaction is None:
            raise TrinoError(
                "UNKNOWN_TRANSACTION", f"Unknown transaction ID: {transaction_id}. Possibly expired?"
            )
        if transaction.owner != identity.user:
            raise AccessDenied(f"Transaction {transaction_id} belongs to another user")
        if transaction.exchange is not None and not transaction.exchange.over:
            raise TrinoError(
                "TRANSACTION_CONFLICT",
                f"Query {transaction.exchange.id} of this transaction has not been read to its end",
            )
        transaction.last_seen = self._clock.monotonic()
        return transaction

    def end_transaction(self, transaction: Transaction) -> None:
        """It is over: nothing of it is kept."""
        if self._transactions.pop(transaction.id, None) is not None:
            self._tasks.spawn("end of a transaction", transaction.conversation.close())

    @staticmethod
    def is_open(transaction: Transaction) -> bool:
        """Whether statements may still run in it."""
        return transaction.conversation.transaction is TransactionStatus.OPEN

    async def close(self) -> None:
        """Stop everything."""
        endings = [exchange.cancel(EndReason.SHUTDOWN) for exchange in self.live]
        endings += [exchange.gone() for exchange in self._exchanges.values() if exchange.over]
        endings += [transaction.conversation.close() for transaction in self._transactions.values()]
        for outcome in await asyncio.gather(*endings, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.warning("ending a statement at shutdown: %s", outcome)
        self._exchanges.clear()
        self._transactions.clear()
        self._ended.clear()
        self._ended_bytes = 0
