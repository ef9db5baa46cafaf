"""What a door sees of the pipeline: a conversation per client, a query per statement.

    conversation = pipeline.converse(identity, session)
    query = conversation.submit(statement)          # routed, and admitted if there was room; never blocks
    answer = await query.start()                    # waits for room, translates, runs; raises from errors.py
    while (part := await query.next()) is not None: ...   # batches or frames, pulled
    await query.close()                             # in finally; a query not read to its end is cancelled

A door that need not wait says so: ``take`` gives a frame that is here already, ``finish`` ends a query whose
answer is complete, ``leave`` a conversation that holds nothing. Each may decline, and then the door goes on
with ``next`` and ``close``.

Every submitted query ends exactly once and leaves one record, whatever the door does or forgets to do after
``close``. A conversation runs one query at a time, except that a closed one no longer counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from queryflux.engines.port import Capability, TransactionStatus
from queryflux.model.endings import EndReason
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.shared import SharedRow
from queryflux.model.statement import Session, Statement
from queryflux.results.answer import Answer, Shape
from queryflux.sql.kinds import Classification, StatementKind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Capability",
    "Claim",
    "Classification",
    "Conversation",
    "Pipeline",
    "Query",
    "StatementKind",
    "TransactionStatus",
]


class Claim(ABC):
    """That this process answers for a query, among those that share a database."""

    @abstractmethod
    async def dispatch(self) -> None:
        """Before a query that waited goes to its engine. Raises QueryTakenOver when it is not ours."""

    @abstractmethod
    async def end(self) -> bool:
        """It has ended here. False: it was taken over, and nothing of it is our business."""


class Query(ABC):
    """One statement on its way."""

    id: str
    waiting: bool
    """True while it waits for room; a door that cannot block shows its client a queued state."""
    waited: bool
    """True if it had to wait, also when that is over."""
    engine_protocol: ClientProtocol | None
    """The protocol whose frames the chosen cluster's engine relays."""
    group: str
    cluster: str
    """Where it went; empty before it is known."""
    claim: Claim | None = None
    """Set by a door whose other processes may be asked about it."""
    on_room: Callable[[], object] | None = None
    """Called when a query that waits gets room, once; must not raise."""

    @abstractmethod
    async def start(self) -> Answer:
        """Wait for room, translate, run. Raises QueryFluxError; the query has then ended and is recorded."""

    @abstractmethod
    async def next(self) -> "pa.RecordBatch | object | None":
        """The next batch or frame of the answer; None ends the query. Raises QueryFluxError, as ``start``."""

    @property
    def stopped(self) -> bool:
        """Somebody has asked for its end."""
        return False

    def take(self) -> object | None:
        """The next frame if it is here already, without waiting. None says nothing: ``next`` then tells."""
        return None

    def finish(self) -> bool:
        """End it without waiting, as ``next`` would by giving None: True when it has ended so and is
        recorded. False: there may be more, or it was stopped; ``next`` then tells."""
        return False

    @abstractmethod
    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        """Stop it from any task; ``start`` and ``next`` then raise QueryEnded. Returns when the engine's work
        has stopped, the slot is back and the record is written."""

    async def forsake(self) -> None:
        """Another process goes on with it: end it here, leaving its engine's work and its record to that
        one."""
        await self.close()

    @abstractmethod
    async def close(self, reason: EndReason = EndReason.CLIENT_GONE) -> None:
        """End it with ``reason`` if it has not ended. May be called twice."""


class Conversation(ABC):
    """What one client says, in order: its session, its transaction, its query that runs."""

    identity: VerifiedIdentity
    session: Session
    """The surroundings of the next statement; a door assigns a new one when its client changes them."""

    @property
    @abstractmethod
    def transaction(self) -> TransactionStatus:
        """Where the client's transaction stands."""

    def ask(self, statement: Statement, answered: Callable[[], object]) -> Query | None:
        """``submit``, and the engine has got it too, where nothing has to be waited for. ``answered`` is
        called later, once, and must not raise: when the whole answer is in the statement's native form, and
        ``finish`` ends the query; or as soon as only ``start`` can go on. None: nothing was done."""
        return None

    @abstractmethod
    def submit(self, statement: Statement) -> Query:
        """Begin with a statement. BEGIN, COMMIT and ROLLBACK go this way too and answer ``Done``; they never
        wait for admission and leave no record. Errors come from ``Query.start``, never from here."""

    @abstractmethod
    async def describe(self, statement: Statement) -> Shape:
        """Parameter types and columns of a statement; leaves a record only when the client may not run it.
        Raises QueryFluxError."""

    @abstractmethod
    async def begin_implicit(self) -> None:
        """The statements that follow belong together (several in one PostgreSQL simple query): on an engine
        with transactions they run in one, which ``sync`` ends. Does nothing inside a transaction."""

    @abstractmethod
    async def sync(self, failed: bool = False) -> None:
        """End of a batch: commits what ``begin_implicit`` or pipelined native statements opened, or rolls it
        back when one of them failed. Raises what the commit raises."""

    @abstractmethod
    def can(self, capability: Capability) -> bool:
        """Whether the engine that the next statement would most likely go to has a capability."""

    @abstractmethod
    def speaks(self) -> ClientProtocol | None:
        """The protocol whose frames the engine relays that the next statement would most likely go to."""

    @abstractmethod
    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        """Cancel the query that runs now, if any."""

    @abstractmethod
    async def close(self) -> None:
        """The client has gone: cancel, roll back, give everything back. May be called twice."""

    def leave(self) -> bool:
        """``close`` where nothing runs and nothing is held, without waiting: True when it is closed now.
        False: ``close`` it."""
        return False


class Pipeline(ABC):
    """The way in."""

    max_statement_bytes: int

    @abstractmethod
    def check_ready(self) -> None:
        """Raises NotConfigured before the first configuration is active, ShuttingDown once drain began."""

    @abstractmethod
    def converse(self, identity: VerifiedIdentity, session: Session) -> Conversation:
        """A conversation for a client that has authenticated."""

    @abstractmethod
    def take_over(
        self, identity: VerifiedIdentity, row: SharedRow, native: object | None, had: int
    ) -> tuple[Conversation, Query]:
        """A query that another process has begun, or let wait, and that is ours now. ``native`` is its
        statement in the door's own form. Of one that runs, whose pages the engine keeps, the client has had
        ``had``. What is wrong comes from ``Query.start``."""

    @abstractmethod
    def classify(self, text: str, dialect: str) -> Classification:
        """The kind of a statement, by its first words; cached by text."""

    @abstractmethod
    def split(self, text: str, dialect: str) -> list[str]:
        """The statements of a text, at semicolons outside strings, identifiers, comments and dollar quotes;
        without empty ones, and each as it was written."""
