"""Prepared statements and portals: what Parse and Bind leave behind (manual, "Extended Query")."""

from dataclasses import dataclass

from queryflux.frontends.postgres.budget import Budget
from queryflux.frontends.postgres.commands import Command, Reply
from queryflux.frontends.postgres.rowstream import RowStream
from queryflux.pipeline.face import Classification, Query
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.messages import NO_DATA, Bind, Column, row_description
from queryflux.wire.postgres.native import ExtendedQuery
from queryflux.wire.postgres.relayed import described_oids

MAX_STATEMENTS = 4_096
OVERHEAD = 1_024
"""Bytes that a statement or portal takes besides what the client has sent, about."""


@dataclass(slots=True)
class Described:
    """The shape of a statement. One of ``native`` (the server's own RowDescription or NoData message) and
    ``columns`` (None: no result set) is what Describe tells."""

    oids: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    native: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes it takes, about."""
        return len(self.native or b"") + 256 * len(self.columns or ()) + 8 * len(self.oids)

    @property
    def told(self) -> bytes:
        """The RowDescription that a client gets; empty when there is no result set."""
        if self.native is not None:
            return b"" if self.native == NO_DATA else self.native
        columns = self.columns
        return b"" if columns is None else row_description(columns, (0,) * len(columns))


@dataclass(slots=True)
class Prepared:
    """One prepared statement. ``classification`` is None for the plainest of queries and writes; ``empty``
    for a text without a statement. ``told`` is the RowDescription that the client goes by. ``taken`` is its
    share of the client's budget."""

    sql: str
    oids: tuple[int, ...]
    classification: Classification | None
    command: Command | None = None
    empty: bool = False
    described: Described | None = None
    told: bytes = b""
    taken: int = 0

    def parameter_oids(self) -> tuple[int, ...]:
        """The types of its parameters, as far as the client or Describe has told."""
        if self.described is None:
            return self.oids
        known = self.described.oids
        return tuple(
            given or (known[index] if index < len(known) else 0)
            for index, given in enumerate(self.oids + known[len(self.oids) :])
        )


class Statements:
    """The prepared statements of one client, by name; the unnamed one is replaced by each Parse."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.known: dict[str, Prepared] = {}
        """By name; the unnamed one takes nothing of the budget, and may be taken out here."""

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def named(self, name: str) -> Prepared:
        """Raises PostgresError 26000 for an unknown name."""
        try:
            return self.known[name]
        except KeyError:
            shown = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise PostgresError(f"{shown} does not exist", "26000") from None

    def check(self, name: str) -> None:
        """Raises PostgresError for a name in use, or when there are too many."""
        if name in self.known:
            raise PostgresError(f'prepared statement "{name}" already exists', "42P05")
        if len(self.known) >= MAX_STATEMENTS:
            raise PostgresError(f"more than {MAX_STATEMENTS} prepared statements in one session", "53400")

    def add(self, name: str, statement: Prepared, size: int) -> None:
        """Keep a statement whose message had ``size`` bytes. Raises PostgresError 53200."""
        if name:
            self._budget.take(size + OVERHEAD)
            statement.taken = size + OVERHEAD
        self.known[name] = statement

    def describe(self, statement: Prepared, described: Described) -> None:
        """Remember the shape of a statement, if there is room for it."""
        if statement.taken:
            if not self._budget.fits(described.size):
                return
            self._budget.take(described.size)
            statement.taken += described.size
        statement.described = described
        statement.told = described.told

    def tell(self, statement: Prepared, description: bytes) -> None:
        """The client of a named statement was sent this RowDescription with its rows, and may go by it from
        now on. Remembered if there is room."""
        if not statement.taken or statement.told == description:
            return
        more = len(description) - len(statement.told)
        if more > 0 and not self._budget.fits(more):
            return
        if more > 0:
            self._budget.take(more)
            statement.taken += more
        statement.told = description

    def discard(self, name: str) -> bool:
        """Forget a statement. Whether there was one."""
        statement = self.known.pop(name, None)
        if statement is None:
            return False
        if statement.taken:
            self._budget.give_back(statement.taken)
            statement.taken = 0
        return True

    def clear(self) -> None:
        """Forget them all."""
        for name in list(self.known):
            self.discard(name)


@dataclass(slots=True)
class Portal:
    """One portal. ``query`` and ``native`` are there once it has been executed; ``rows`` when its answer
    comes in batches; ``reply`` when the door has answered it. ``held`` are the messages, from ``held_at`` on,
    that a suspended relay was made to give up early. ``taken`` is its share of the client's budget."""

    statement: Prepared
    bound: Bind
    query: Query | None = None
    native: ExtendedQuery | None = None
    rows: RowStream | None = None
    reply: Reply | None = None
    replied: int = 0
    held: bytes | None = None
    held_at: int = 0
    told: bool = False
    finished: bool = False
    taken: int = 0

    @property
    def running(self) -> bool:
        """Begun, and not at its end."""
        return self.query is not None and not self.finished


def split_description(native: bytes) -> tuple[tuple[int, ...], bytes]:
    """The server's ParameterDescription followed by RowDescription or NoData: the parameter types, and the
    second message."""
    end = 1 + int.from_bytes(native[1:5])
    return described_oids(native[:end]), native[end:]
