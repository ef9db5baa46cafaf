"""What one client has said about itself and set, and what expressions about it give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queryflux.frontends.mysql.expressions import Expression, UserVariable, evaluate
from queryflux.frontends.mysql.local import Assignment, Default
from queryflux.frontends.mysql.variables import SessionVariables
from queryflux.frontends.tags import parse_tags
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.settings import Value
from queryflux.model.statement import Session
from queryflux.wire.mysql.constants import SERVER_VERSION
from queryflux.wire.mysql.errors import NOT_SUPPORTED, MySqlError, ServerError

_TAGS = "query_tags"
_INSERT_IDS = frozenset({"last_insert_id", "identity"})


@dataclass(slots=True)
class ClientSession:
    """The state of one session; a change of user or a reset begins another."""

    connection_id: int
    identity: VerifiedIdentity
    database: str
    peer: str
    attributes: Mapping[str, str]
    variables: SessionVariables
    tags: dict[str, str | None] = field(default_factory=dict)
    row_count: int = -1
    found_rows: int = 0
    error: MySqlError | None = None
    """The error of the last statement, for SHOW WARNINGS."""

    def __post_init__(self) -> None:
        self.tags = parse_tags(self.attributes.get(_TAGS, ""))

    def surroundings(self) -> Session:
        """What the pipeline may know."""
        return Session(
            protocol=ClientProtocol.MYSQL_WIRE,
            database=self.database or None,
            tags=dict(self.tags),
            extra={**self.attributes, **self.variables.extra()},
            peer=self.peer,
        )

    def reset(self) -> None:
        """Back to how it was after login, the database aside (COM_RESET_CONNECTION)."""
        self.variables.clear()
        self.tags = parse_tags(self.attributes.get(_TAGS, ""))
        self.row_count, self.found_rows, self.error = -1, 0, None

    def assign(self, assignments: Sequence[Assignment]) -> None:
        """SET: all of it, or none if one of the values is refused. Raises ServerError."""
        values = [
            None if isinstance(item.value, Default) else evaluate(item.value, self) for item in assignments
        ]
        before = self.variables.saved()
        try:
            for item, value in zip(assignments, values, strict=True):
                self._assign(item, value)
            self.variables.check_size()
        except BaseException:
            self.variables.restore(before)
            raise
        self.tags = parse_tags(str(self.variables.get(_TAGS) or self.attributes.get(_TAGS, "")))

    def _assign(self, item: Assignment, value: str | int | None) -> None:
        if isinstance(item.target, UserVariable):
            self.variables.set_user(item.target.name, value)
        elif item.target.name.lower() in _INSERT_IDS:
            raise ServerError(
                NOT_SUPPORTED, f"{item.target.name} cannot be set here: ids of rows are the engine's business"
            )
        elif isinstance(item.value, Default):
            self.variables.reset(item.target.name)
        else:
            self.variables.set(item.target.name, value)

    def literal(self, expression: Expression) -> str:
        """A variable written as SQL."""
        value = evaluate(expression, self)
        if value is None:
            return "NULL"
        if isinstance(value, int):
            return str(value)
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"

    def select(self, expressions: Sequence[Expression]) -> list[str | int | None]:
        """The values of expressions."""
        return [evaluate(expression, self) for expression in expressions]

    # Surroundings of expressions.

    def system_variable(self, name: str, globally: bool) -> Value:
        """``@@name``. Raises ServerError."""
        if name in ("warning_count", "error_count"):
            return int(self.error is not None)
        if name in _INSERT_IDS:
            raise _no_insert_id(f"@@{name}")
        return self.variables.get(name, globally=globally)

    def user_variable(self, name: str) -> str | int | None:
        """``@name``."""
        return self.variables.user.get(name)

    def function(self, name: str) -> str | int | None:
        """A function about the connection. Raises ServerError for one that has no answer."""
        host = self.peer.rpartition(":")[0] or "localhost"
        if name in ("DATABASE", "SCHEMA"):
            return self.database or None
        if name == "CURRENT_USER":
            return f"{self.identity.user}@%"
        if name in ("USER", "SESSION_USER", "SYSTEM_USER"):
            return f"{self.identity.user}@{host}"
        if name == "LAST_INSERT_ID":
            raise _no_insert_id("LAST_INSERT_ID()")
        numbers = {
            "CONNECTION_ID": self.connection_id,
            "ROW_COUNT": self.row_count,
            "FOUND_ROWS": self.found_rows,
        }
        return SERVER_VERSION if name == "VERSION" else numbers[name]


def _no_insert_id(name: str) -> ServerError:
    """A zero would be believed: no engine tells which id it gave to a row."""
    return ServerError(
        NOT_SUPPORTED,
        f"{name} is not known here: the engine does not tell which id it gave to a row",
        hint="INSERT ... RETURNING id gives it where the engine has that",
    )
