"""Prepared statements of one connection: texts by number, and what was sent ahead for them."""

from dataclasses import dataclass, field

from queryflux.model.errors import StatementTooLarge
from queryflux.model.statement import Parameter
from queryflux.wire.mysql.commands import LongData
from queryflux.wire.mysql.errors import (
    TOO_MANY_STATEMENTS,
    UNKNOWN_STATEMENT,
    ServerError,
)
from queryflux.wire.mysql.parameters import BoundType, read_execution, statement_of

MOST_STATEMENTS = 4096
MOST_PARAMETERS = 65535
MOST_TEXT = 64 << 20
"""Bytes of all texts that one connection may keep."""


@dataclass(slots=True)
class Prepared:
    """One of them. ``long_data`` is what came ahead of an execution, ``broken`` why it cannot be used."""

    number: int
    text: str
    parameters: int
    types: tuple[BoundType, ...] = ()
    long_data: dict[int, bytearray] = field(default_factory=dict)
    broken: StatementTooLarge | ServerError | None = None


class PreparedStatements:
    """Those of one connection. ``limit`` bounds a statement's text and the long data for it, in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._statements: dict[int, Prepared] = {}
        self._last = 0
        self._kept = 0

    def __len__(self) -> int:
        return len(self._statements)

    def prepare(self, text: str, parameters: int) -> Prepared:
        """Keep a text. Raises ServerError when there are too many, or it has too many parameters."""
        size = len(text)
        if len(self._statements) >= MOST_STATEMENTS or self._kept + size > MOST_TEXT:
            raise ServerError(
                TOO_MANY_STATEMENTS,
                f"Can't create more than {MOST_STATEMENTS} statements of {MOST_TEXT} characters in all",
                hint="close those that are not used any more",
            )
        if parameters > MOST_PARAMETERS:
            raise ServerError(1390, "Prepared statement contains too many placeholders")
        self._last += 1
        self._kept += size
        statement = Prepared(self._last, text, parameters)
        self._statements[self._last] = statement
        return statement

    def find(self, number: int, command: str) -> Prepared:
        """The statement of that number. Raises ServerError 1243."""
        statement = self._statements.get(number)
        if statement is None:
            raise ServerError(
                UNKNOWN_STATEMENT, f"Unknown prepared statement handler ({number}) given to {command}"
            )
        return statement

    def execution(self, payload: bytes) -> tuple[Prepared, tuple[Parameter, ...]]:
        """What COM_STMT_EXECUTE runs. What was sent ahead is used up, also by an error. Raises ServerError,
        ProtocolViolation, InvalidRequest, StatementTooLarge."""
        statement = self.find(statement_of(payload), "mysqld_stmt_execute")
        long_data, broken = statement.long_data, statement.broken
        statement.long_data, statement.broken = {}, None
        if broken is not None:
            raise broken
        ahead = {index: bytes(data) for index, data in long_data.items()}
        execution = read_execution(payload, statement.parameters, statement.types, ahead)
        statement.types = execution.types
        return statement, execution.parameters

    def append(self, piece: LongData) -> None:
        """Keep a piece of long data. Nothing is answered to it, so what is wrong is told by the execution."""
        statement = self._statements.get(piece.statement)
        if statement is None or statement.broken is not None:
            return
        if piece.parameter >= statement.parameters:
            statement.long_data.clear()
            statement.broken = ServerError(1210, "Incorrect arguments to mysqld_stmt_send_long_data")
            return
        if sum(map(len, statement.long_data.values())) + len(piece.data) > self._limit:
            statement.long_data.clear()
            statement.broken = StatementTooLarge(
                f"the parameters of the statement are larger than {self._limit} bytes",
                hint="send less, or raise maxStatementBytes",
            )
            return
        statement.long_data.setdefault(piece.parameter, bytearray()).extend(piece.data)

    def reset(self, number: int) -> None:
        """Forget long data. Raises ServerError 1243."""
        statement = self.find(number, "mysqld_stmt_reset")
        statement.long_data, statement.broken = {}, None

    def close(self, number: int) -> None:
        """Forget a statement; harmless when there is none of that number."""
        statement = self._statements.pop(number, None)
        if statement is not None:
            self._kept -= len(statement.text)

    def clear(self) -> None:
        """Forget all of them."""
        self._statements.clear()
        self._kept = 0
