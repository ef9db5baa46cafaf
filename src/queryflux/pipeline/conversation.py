"""A client's side of things between its statements: engine connections, and the transaction.

A transaction takes nothing at BEGIN. Its first statement is routed and admitted as usual; from then on group,
cluster, engine connection and slot stay with the conversation until COMMIT, ROLLBACK, the idle limit or the
client's end. COMMIT and ROLLBACK never wait for admission. An engine without transactions serves reads inside
one and refuses writes, because it could not undo them.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from queryflux.admission.slots import Slot
from queryflux.engines.port import (
    Capability,
    ConnectionSpec,
    EngineConnection,
    EngineRequest,
    TransactionStatus,
)
from queryflux.model.endings import EndReason
from queryflux.model.errors import InvalidRequest, NotSupported, QueryFluxError, TransactionFailed
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.face import Conversation, Query
from queryflux.pipeline.generation import Cluster, GroupPlan
from queryflux.pipeline.lane import Way, asked, ordinary
from queryflux.pipeline.local import Control, MetadataRun
from queryflux.pipeline.run import Run
from queryflux.pipeline.stages import refuse_write
from queryflux.results.answer import Done, Frames, Shape
from queryflux.routing.request import AskingRule, Hit
from queryflux.routing.trace import Trace
from queryflux.runtime.clock import Timer
from queryflux.sql.classify import classify
from queryflux.sql.kinds import StatementKind

if TYPE_CHECKING:
    from queryflux.pipeline.pipeline import QueryPipeline

log = logging.getLogger(__name__)

CONTROL = {StatementKind.BEGIN, StatementKind.COMMIT, StatementKind.ROLLBACK}


@dataclass(slots=True)
class Pinned:
    """What an open transaction holds. ``slot`` is here between statements and with the query during one."""

    group: str
    plan: GroupPlan
    target: Cluster
    trace: Trace | None
    connection: EngineConnection
    slot: Slot | None
    lost: str = ""
    """Why the engine no longer knows of it; the client still has to say ROLLBACK."""

    def take(self) -> Slot:
        """The slot, for the next statement."""
        assert self.slot is not None
        slot, self.slot = self.slot, None
        return slot

    def check(self) -> None:
        """Raises TransactionFailed when the transaction is lost."""
        if self.lost:
            raise TransactionFailed(f"the transaction {self.lost}", hint="send ROLLBACK, then begin again")


class Talk(Conversation):
    """One client's conversation."""

    # What most conversations never change stands here once: some are made for a single query.
    pinned: Pinned | None = None
    begun: Statement | None = None
    """BEGIN was said; no engine has heard of it yet."""
    implicit = False
    answers: Mapping[AskingRule, Hit | None] | None = None
    """What rules that have to be asked said of the last statement."""
    way: Way | None = None
    """What is known of the ordinary queries of this session (lane.py)."""
    _current: Run | None = None
    _idle: Timer | None = None
    _closed = False

    def __init__(self, pipeline: "QueryPipeline", identity: VerifiedIdentity, session: Session) -> None:
        self.pipeline = pipeline
        self.identity = identity
        self.session = session
        self._connections: dict[str, tuple[Cluster, EngineConnection]] = {}

    # Statements.

    @property
    def busy(self) -> bool:
        """A query of ours is under way."""
        return self._current is not None

    def ask(self, statement: Statement, answered: Callable[[], object]) -> Query | None:
        run = asked(self, statement, answered)
        if run is not None:
            self._current = run
            self.pipeline.running[run.id] = run
        return run

    def submit(self, statement: Statement) -> Query:
        run = ordinary(self, statement)
        if run is None:
            return self._submit(statement)
        self._current = run
        self.pipeline.running[run.id] = run
        return run

    def take_up(self, run: Run) -> None:
        """A query of another process is ours now."""
        self._current = run
        self.pipeline.running[run.id] = run

    def _submit(self, statement: Statement) -> Query:
        """By the stages."""
        kind = classify(statement.text, statement.dialect).kind
        if kind is not StatementKind.QUERY and (
            kind in CONTROL or (kind is StatementKind.SAVEPOINT and not self.can(Capability.SAVEPOINTS))
        ):
            return Control(self, statement, kind)
        local = MetadataRun.recognised(self, statement)
        if local is not None:
            return local
        pipeline = self.pipeline
        run = Run(self, statement, pipeline.ids.next())
        self._current = run
        if self._idle is not None:
            self._stop_idling()
        pipeline.running[run.id] = run
        run.advance()
        return run

    def ended(self, run: Run) -> None:
        """A query of ours has ended."""
        if self._current is run:
            self._current = None
            if self.pinned is not None:
                self._begin_idling()
        pipeline = self.pipeline
        pipeline.running.pop(run.id, None)
        if pipeline.lane is None:
            pipeline.settled()

    def keep(self, slot: Slot, run: Run) -> None:
        """Its transaction goes on: the slot stays with us until it ends. A statement that was refused on
        its way to the engine fails the transaction, as one that the engine refuses does."""
        if self._closed:
            slot.release()
        elif self.pinned is not None:
            self.pinned.slot = slot
            if run.connection is None:
                self.pinned.lost = "has failed: one of its statements did not reach the engine"
        else:
            assert run.plan is not None
            assert run.target is not None
            assert run.connection is not None
            self.pinned = Pinned(run.group, run.plan, run.target, run.trace, run.connection, slot)

    def transaction_gone(self, error: Exception | None) -> None:
        """The engine has no transaction any more, and its slot is back: lost with the connection, or ended
        by a statement that we did not take for its end."""
        if self.pinned is None:
            return
        if error is None:
            self.pinned = self.begun = None
        else:
            self.pinned.lost = f"was lost at the engine: {error}"

    def connection_to(self, target: Cluster) -> EngineConnection:
        """Our connection to a cluster; made when first needed, kept for the next statement."""
        if self.pinned is not None:
            return self.pinned.connection
        name = target.member.name
        held = self._connections.get(name)
        if held is not None:
            if held[0] is target:
                return held[1]
            self.forget(held[0])  # another engine has this name now
        connection = target.engine.connect(ConnectionSpec(self.identity, self.session))
        self._connections[name] = (target, connection)
        return connection

    def held_to(self, target: Cluster) -> EngineConnection | None:
        """That connection, outside a transaction, if it has been made."""
        held = self._connections.get(target.member.name)
        return held[1] if held is not None and held[0] is target else None

    def forget(self, target: Cluster) -> None:
        """The cluster could not be reached, or is leaving: begin afresh next time."""
        held = self._connections.get(target.member.name)
        if held is not None and held[0] is target:
            del self._connections[target.member.name]
            self.pipeline.tasks.spawn("close lost connection", held[1].close())

    def uses(self, target: Cluster) -> bool:
        """Whether our transaction is there."""
        return self.pinned is not None and self.pinned.target is target

    async def before_statement(self, run: Run, connection: EngineConnection) -> None:
        """The first statement after BEGIN: the engine hears of the transaction now."""
        begun = self.begun or (Statement("BEGIN", run.statement.dialect) if self.implicit else None)
        if begun is None or self.pinned is not None:
            return
        assert run.target is not None
        if Capability.TRANSACTIONS not in run.target.engine.capabilities:
            if self.begun is not None:
                refuse_write(run)
            return
        if connection.transaction is not TransactionStatus.IDLE:
            return
        await self._control(run.target, connection, begun)

    async def _control(
        self, target: Cluster | None, connection: EngineConnection, statement: Statement
    ) -> Done:
        """Say BEGIN, COMMIT or ROLLBACK to the engine. Raises what it answers."""
        assert target is not None
        native = statement.native if target.engine.native_protocol is self.session.protocol else None
        sql = statement.text if native is not None else plain(statement)
        answer = await connection.execute(EngineRequest("", sql, self.session, self.identity, native=native))
        if isinstance(answer, Frames):
            while await answer.next() is not None:
                pass
            await answer.close()
            if answer.failure is not None:
                raise answer.failure
        return answer if isinstance(answer, Done) else Done(sql.split()[0].upper())

    # Transactions.

    @property
    def transaction(self) -> TransactionStatus:
        if self.pinned is not None and not self.implicit:
            if self.pinned.lost:
                return TransactionStatus.FAILED
            return self.pinned.connection.transaction
        return TransactionStatus.IDLE if self.begun is None else TransactionStatus.OPEN

    @property
    def holds(self) -> bool:
        """A transaction is open that may still be committed."""
        return self.pinned is not None and not self.pinned.lost

    async def begin(self, statement: Statement) -> Done:
        """BEGIN: remembered until there is something to do in it."""
        if self.begun is None and (self.pinned is None or self.implicit):
            self.begun = statement
            self.implicit = False
        return Done("BEGIN")

    def savepoint(self, statement: Statement) -> Done:
        """SAVEPOINT, RELEASE or ROLLBACK TO on an engine that has none. Setting and releasing one is harmless
        (drivers do it around their look-ups); going back to one is refused, since nothing can be undone."""
        words = self.pipeline.classify(statement.text, statement.dialect).words
        if self.transaction is TransactionStatus.IDLE:
            raise InvalidRequest(f"{words[0]} can only be used in a transaction", hint="send BEGIN first")
        if words[0] == "ROLLBACK":
            raise NotSupported(
                "this cluster has no savepoints to go back to", hint="ROLLBACK the whole transaction"
            )
        return Done(words[0])

    async def finish(self, statement: Statement, tag: str) -> Done:
        """COMMIT or ROLLBACK. A failed transaction's COMMIT is a ROLLBACK, and says so."""
        self._stop_idling()
        pinned, self.pinned, self.begun = self.pinned, None, None
        if pinned is None:
            return Done(tag)
        failed = bool(pinned.lost) or pinned.connection.transaction is TransactionStatus.FAILED
        try:
            if not pinned.lost and pinned.connection.transaction is not TransactionStatus.IDLE:
                await self._control(pinned.target, pinned.connection, statement)
        except BaseException:
            await self._unpin(pinned)
            raise
        if pinned.connection.transaction is TransactionStatus.OPEN and _CHAIN.search(statement.text):
            self.pinned = pinned  # COMMIT AND CHAIN: the next one has begun
            self._begin_idling()
        else:
            await self._unpin(pinned)
        return Done("ROLLBACK" if failed else tag)

    async def _unpin(self, pinned: Pinned) -> None:
        if pinned.connection.transaction is not TransactionStatus.IDLE:
            self._connections.pop(pinned.target.member.name, None)
            await pinned.connection.close()
        if pinned.slot is not None:
            pinned.slot.release()
        self.pipeline.settled()

    async def begin_implicit(self) -> None:
        if self.transaction is TransactionStatus.IDLE:
            self.implicit = True

    async def sync(self, failed: bool = False) -> None:
        for _, connection in list(self._connections.values()):
            await connection.sync()
        if self.implicit:
            self.implicit = False
            word = "ROLLBACK" if failed else "COMMIT"
            if self.pinned is not None:
                lost = self.pinned.lost
                await self.finish(Statement(word, self.session.protocol.dialect), word)
                if lost and not failed:
                    raise TransactionFailed(f"the transaction {lost}", hint="send the statements again")

    def _begin_idling(self) -> None:
        """Between two statements of a transaction, whatever became of the one before."""
        pinned = self.pinned
        if pinned is None or pinned.slot is None or self._closed:
            return
        limit = pinned.plan.idle_in_transaction_secs
        if limit and self._idle is None:
            self._idle = self.pipeline.clock.call_later(limit, self._idled)

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _idled(self) -> None:
        self._idle = None
        if self.pinned is not None and self._current is None:
            limit = self.pinned.plan.idle_in_transaction_secs
            self.pinned.lost = f"was idle for longer than {limit:g} s and was rolled back"
            self.pipeline.tasks.spawn("roll back idle transaction", self._roll_back_idle(self.pinned))

    async def _roll_back_idle(self, pinned: Pinned) -> None:
        log.warning("rolling back a transaction of %s that was idle too long", self.identity.user)
        self._connections.pop(pinned.target.member.name, None)
        try:
            await pinned.connection.close()
        finally:
            if pinned.slot is not None:
                pinned.take().release()
            self.pipeline.settled()

    # The rest of the face.

    async def describe(self, statement: Statement) -> Shape:
        local = MetadataRun.recognised(self, statement)
        if local is not None:
            return await local.describe()
        return await self.pipeline.describe(self, statement)

    def likely(self) -> Cluster | None:
        """The cluster that the next statement would most likely go to."""
        if self.pinned is not None:
            return self.pinned.target
        return self.pipeline.likely(self)

    def can(self, capability: Capability) -> bool:
        likely = self.likely()
        return likely is not None and capability in likely.engine.capabilities

    def speaks(self) -> ClientProtocol | None:
        likely = self.likely()
        return likely.engine.native_protocol if likely is not None else None

    async def cancel(self, reason: EndReason = EndReason.CANCELLED) -> None:
        if self._current is not None:
            await self._current.cancel(reason)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_idling()
        try:
            if self._current is not None:
                await self._current.close()
            await self._close_connections()
        finally:
            pinned, self.pinned, self.begun = self.pinned, None, None
            if pinned is not None and pinned.slot is not None:
                pinned.slot.release()
            self.pipeline.left(self)

    def leave(self) -> bool:
        if self._closed:
            return True
        if self._current is not None or self.pinned is not None:
            return False
        while self._connections:
            name, held = self._connections.popitem()
            if not held[1].leave():
                self._connections[name] = held
                return False
        self._closed = True
        self.begun = None
        self.pipeline.left(self)
        return True

    async def _close_connections(self) -> None:
        while self._connections:
            _, (_, connection) = self._connections.popitem()
            try:
                await connection.close()
            except QueryFluxError as error:
                log.warning("closing a connection of %s: %s", self.identity.user, error)
            except Exception:
                log.exception("closing a connection of %s failed", self.identity.user)


_MODE = re.compile(
    r"\bisolation\s+level\s+(?:serializable|repeatable\s+read|read\s+committed|read\s+uncommitted)\b"
    r"|\bread\s+(?:only|write)\b",
    re.IGNORECASE,
)
_CHAIN = re.compile(r"\band\s+chain\b", re.IGNORECASE)


def plain(statement: Statement) -> str:
    """Transaction control as every engine with transactions knows it: the standard's modes are kept, what
    only the client's dialect has is not. Raises NotSupported for AND CHAIN, which would open another at
    once."""
    kind = classify(statement.text, statement.dialect).kind
    if kind is StatementKind.BEGIN:
        modes = ", ".join(" ".join(mode.split()).upper() for mode in _MODE.findall(statement.text))
        return f"START TRANSACTION {modes}" if modes else "BEGIN"
    if _CHAIN.search(statement.text):
        raise NotSupported("AND CHAIN is not supported on this cluster", hint="send BEGIN after COMMIT")
    return "COMMIT" if kind is StatementKind.COMMIT else "ROLLBACK"
