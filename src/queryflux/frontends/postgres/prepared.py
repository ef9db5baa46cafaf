"""Prepared statements and portals: what Parse and Bind leave behind (manual, "Extended Query")."""

from dataclasses import dataclass, field

from queryflux.frontends.postgres.commands import Command, Reply
from queryflux.frontends.postgres.rowstream import RowStream
from queryflux.pipeline.face import Classification, Query
from queryflux.wire.postgres.messages import Bind, Column, described_oids
from queryflux.wire.postgres.native import ExtendedQuery


@dataclass(slots=True)
class Described:
    """The shape of a statement. One of ``native`` (the server's own RowDescription or NoData message) and
    ``columns`` (None: no result set) is what Describe tells."""

    oids: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    native: bytes | None = None


@dataclass(slots=True)
class Prepared:
    """One prepared statement. ``classification`` is None for the plainest of queries and writes; ``empty``
    for a text without a statement."""

    sql: str
    oids: tuple[int, ...]
    classification: Classification | None
    command: Command | None = None
    empty: bool = False
    described: Described | None = None

    def parameter_oids(self) -> tuple[int, ...]:
        """The types of its parameters, as far as the client or Describe has told."""
        if self.described is None:
            return self.oids
        known = self.described.oids
        return tuple(
            given or (known[index] if index < len(known) else 0)
            for index, given in enumerate(self.oids + known[len(self.oids) :])
        )


@dataclass(slots=True)
class Portal:
    """One portal. ``query`` and ``native`` are there once it has been executed; ``rows`` when its answer
    comes in batches; ``reply`` when the door has answered it. ``frames`` are those a suspended relay was
    made to give up early."""

    statement: Prepared
    bound: Bind
    query: Query | None = None
    native: ExtendedQuery | None = None
    rows: RowStream | None = None
    reply: Reply | None = None
    replied: int = 0
    frames: list[bytes] | None = None
    held: bytes = b""
    finished: bool = False
    given: int = field(default=0)

    @property
    def running(self) -> bool:
        """Begun, and not at its end."""
        return self.query is not None and not self.finished


def split_description(native: bytes) -> tuple[tuple[int, ...], bytes]:
    """The server's ParameterDescription followed by RowDescription or NoData: the parameter types, and the
    second message."""
    end = 1 + int.from_bytes(native[1:5])
    return described_oids(native[:end]), native[end:]
