"""MySQL's transactions, as far as they differ from the pipeline's.

With ``autocommit=0`` the first statement that may write begins one (reads before it see what is committed,
and hold no slot); BEGIN ends one that is open; COMMIT and ROLLBACK without one are no errors.

A statement that fails leaves MySQL's transaction as it was, but ends that of many engines. What had only been
read is then no loss: the transaction is rolled back, begun again if the client had begun it, and goes on.
What had been written is lost, and the error says so, as InnoDB's deadlock does; the next statement begins
anew. A client that has set a savepoint goes back to that itself.
"""

import logging
import re

from queryflux.frontends.mysql.session import ClientSession
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Capability, Conversation, StatementKind, TransactionStatus
from queryflux.results.answer import Done
from queryflux.wire.mysql.errors import UNKNOWN, ServerError

log = logging.getLogger(__name__)

DIALECT = ClientProtocol.MYSQL_WIRE.dialect
READ_ONLY_TRANSACTION = 1792

_READS = frozenset(
    {
        StatementKind.QUERY,
        StatementKind.SHOW,
        StatementKind.DESCRIBE,
        StatementKind.EXPLAIN,
        StatementKind.USE,
    }
)
_WRITES = frozenset({StatementKind.WRITE, StatementKind.DDL})
_LOCKING = re.compile(r"\bfor\s+(?:update|share)\b|\block\s+in\s+share\s+mode\b", re.IGNORECASE)


class Transactions:
    """The transactions of one conversation."""

    def __init__(self, session: ClientSession, conversation: Conversation) -> None:
        self._session = session
        self._conversation = conversation
        self._begun = ""
        """The client's own BEGIN; empty for a transaction that autocommit=0 began."""
        self._worked = False
        """Something would be lost with it."""
        self._savepoint = False

    @property
    def idle(self) -> bool:
        """None is open."""
        return self._conversation.transaction is TransactionStatus.IDLE

    async def control(self, kind: StatementKind, text: str) -> None:
        """BEGIN, COMMIT or ROLLBACK of the client. Raises QueryFluxError."""
        if kind is StatementKind.BEGIN:
            if not self.idle:
                await self._finish("COMMIT")
            await self._send(text)
            self._begun = text
        elif not self.idle:
            await self._finish(text)

    async def commit(self) -> None:
        """As if the client had said COMMIT. Raises QueryFluxError."""
        if not self.idle:
            await self._finish("COMMIT")

    async def before(self, text: str, kind: StatementKind) -> None:
        """Begin one where autocommit is off and the statement needs it. Raises QueryFluxError, also for a
        transaction that was lost since the last statement."""
        variables = self._session.variables
        if variables.read_only and kind in _WRITES:
            raise ServerError(
                READ_ONLY_TRANSACTION,
                "Cannot execute statement in a READ ONLY transaction.",
                hint="SET SESSION TRANSACTION READ WRITE",
            )
        if self.idle:
            self._forget()
        elif await self._lost():
            raise _rolled_back("the transaction was lost while it was idle, or with its engine")
        if variables.autocommit or not self.idle:
            return
        if self._matters(text, kind) and self._conversation.can(Capability.TRANSACTIONS):
            await self._send("BEGIN")

    def after(self, text: str, kind: StatementKind) -> None:
        """A statement has succeeded."""
        if kind is StatementKind.SAVEPOINT:
            self._savepoint = self._conversation.can(Capability.SAVEPOINTS)
        elif self._matters(text, kind):
            self._worked = True

    async def failed(self, error: QueryFluxError) -> QueryFluxError:
        """A statement has failed: the error that the client is told."""
        if not await self._lost():
            return error
        if isinstance(error, EngineError) and error.kind is EngineErrorKind.SERIALIZATION:
            return error  # 1213 says it
        return _rolled_back(error.message, error.hint)

    def _matters(self, text: str, kind: StatementKind) -> bool:
        reads = kind in _READS and not self._session.variables.reads_are_transactional
        return not reads or _LOCKING.search(text) is not None

    async def _lost(self) -> bool:
        """Get over an engine's failed transaction; whether anything was lost with it."""
        if self._conversation.transaction is not TransactionStatus.FAILED or self._savepoint:
            return False
        begun, worked = self._begun, self._worked
        try:
            await self._finish("ROLLBACK")
        except QueryFluxError as error:
            log.info("rolling back a failed transaction of %s: %s", self._session.identity.user, error)
        if begun and not worked:
            await self._send(begun)
            self._begun = begun
        return worked

    async def _finish(self, text: str) -> None:
        """Raises also when a COMMIT turned out to be a ROLLBACK that something was lost with."""
        worked = self._worked
        self._forget()
        tag = await self._send(text)
        if worked and tag == "ROLLBACK" and text.lstrip()[:8].upper() != "ROLLBACK":
            raise _rolled_back("nothing was committed: the transaction had failed")

    async def _send(self, text: str) -> str:
        query = self._conversation.submit(Statement(text, DIALECT))
        try:
            answer = await query.start()
        finally:
            await query.close(EndReason.FAILED)
        return answer.tag if isinstance(answer, Done) else ""

    def _forget(self) -> None:
        self._begun, self._worked, self._savepoint = "", False, False


def _rolled_back(message: str, hint: str = "") -> ServerError:
    said = f"{message} ({hint})" if hint else message
    return ServerError(
        UNKNOWN,
        f"{said.rstrip('.')}. The transaction was rolled back, with everything written in it",
        hint="this engine ends a transaction at an error: send its statements again",
        sqlstate="40000",
    )
