"""Open transactions. Each is a conversation, and runs one statement at a time.

gRPC does not tell us when a client goes away. Drivers say so by CloseSession (ADBC's does, also when its
program just ends). A transaction of one that did not is rolled back when it has long been unused, besides
what the pipeline does about idle ones.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from queryflux.frontends.flight_sql.handles import Handles, Limits
from queryflux.frontends.flight_sql.statements import DIALECT
from queryflux.frontends.flight_sql.stream import Opened
from queryflux.model.errors import InvalidRequest, NotSupported, TransactionFailed
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Capability, Conversation
from queryflux.results.answer import Answer, Done
from queryflux.runtime.clock import Clock, Timer
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.flight.messages import EndTransaction

log = logging.getLogger(__name__)

LIMITS = Limits(most=1_000, most_bytes=0, idle_secs=1800.0)
SWEEP_SECONDS = 30.0
TURN_SECONDS = 5.0


@dataclass(slots=True)
class Transaction:
    """``opened`` is the result being fetched in it, if any."""

    talk: Conversation
    opened: Opened | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def take_turn(self) -> None:
        """Wait for the statement before: it may just be ending, when its client has already gone on. Raises
        InvalidRequest when it is not."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self.turn.acquire()
        except TimeoutError:
            raise InvalidRequest(
                "a statement of this transaction is still running", hint="read or close its result first"
            ) from None

    async def leave(self) -> None:
        """The statement has ended."""
        self.opened = None
        self.turn.release()

    @asynccontextmanager
    async def in_turn(self) -> AsyncIterator[Conversation]:
        """``take_turn``, and give it back."""
        await self.take_turn()
        try:
            yield self.talk
        finally:
            await self.leave()


class Transactions:
    """The open transactions of a door."""

    def __init__(self, clock: Clock, process_tag: str, tasks: TaskGroup) -> None:
        self._clock = clock
        self._tasks = tasks
        self._open: Handles[Transaction] = Handles("transaction", LIMITS, clock, process_tag)
        self._sweep: Timer | None = None

    def __len__(self) -> int:
        return len(self._open)

    def find(self, handle: bytes, owner: VerifiedIdentity) -> Transaction:
        """An open transaction. Raises QueryFluxError."""
        return self._open.get(handle, owner)

    async def begin(self, talk: Conversation) -> bytes:
        """Begin one in a conversation, which is ours from now on. Raises QueryFluxError."""
        try:
            if not talk.can(Capability.TRANSACTIONS):
                raise NotSupported("the engine has no transactions", hint="use autocommit")
            await run(talk, Statement("BEGIN", DIALECT))
            handle = self._open.add(talk.identity, Transaction(talk))
        except BaseException:
            await talk.close()
            raise
        if self._sweep is None:
            self._sweep = self._clock.call_later(SWEEP_SECONDS, self._roll_back_unused)
        return handle

    async def end(self, handle: bytes, owner: VerifiedIdentity, action: int) -> None:
        """Commit or roll back. Raises TransactionFailed when a commit turned out to be a rollback, and
        InvalidRequest when a result is still being fetched; it is open as before then."""
        if action not in (EndTransaction.COMMIT, EndTransaction.ROLLBACK):
            raise InvalidRequest("a transaction ends with COMMIT or ROLLBACK")
        commit = action == EndTransaction.COMMIT
        transaction = self._open.get(handle, owner)
        if transaction.opened is not None and not commit:
            await transaction.opened.close()
        async with transaction.in_turn() as talk:
            self._open.take(handle, owner)
            try:
                answer = await run(talk, Statement("COMMIT" if commit else "ROLLBACK", DIALECT))
            finally:
                await talk.close()
        if commit and isinstance(answer, Done) and answer.tag == "ROLLBACK":
            raise TransactionFailed(
                "the transaction had failed and was rolled back", hint="begin again and repeat its statements"
            )

    async def abandoned(self, owner: VerifiedIdentity, peer: str) -> None:
        """Whoever said goodbye from this address has an open transaction there, or none: roll it back. With
        several, clients share the connection, and nobody knows whose it was: they are left to the idle
        limit."""
        here = [pair for pair in self._open.owned(owner) if pair[1].talk.session.peer == peer]
        if len(here) == 1:
            handle, transaction = here[0]
            self._open.take(handle, owner)
            await transaction.talk.close()

    def _roll_back_unused(self) -> None:
        for transaction in self._open.expired(busy=lambda open_: open_.turn.locked()):
            log.warning("rolling back a transaction of %s: unused too long", transaction.talk.identity.user)
            self._tasks.spawn("roll back", transaction.talk.close())
        again = len(self._open) > 0
        self._sweep = self._clock.call_later(SWEEP_SECONDS, self._roll_back_unused) if again else None

    async def close(self) -> None:
        """Roll back whatever is open."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for transaction in self._open.clear():
            await transaction.talk.close()


async def run(talk: Conversation, statement: Statement) -> Answer:
    """Run a statement to its end; its rows are not kept. Raises QueryFluxError."""
    query = talk.submit(statement)
    try:
        answer = await query.start()
        while await query.next() is not None:
            pass
    finally:
        await query.close()
    return answer
