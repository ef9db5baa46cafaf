"""What a client asks, and in which surroundings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from queryflux.model.protocol import ClientProtocol

EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Session:
    """The surroundings of a statement: what routing, engines and history may know of the client.

    ``catalog`` and ``database`` are the client's defaults (Trino: catalog and schema; PostgreSQL: database
    and none; MySQL: none and schema). ``tags`` map a key to a value or None. ``extra`` holds the protocol's
    own string pairs: HTTP headers in lower case, start-up parameters, session variables. ``peer`` is
    ``host:port``.
    """

    protocol: ClientProtocol
    catalog: str | None = None
    database: str | None = None
    tags: Mapping[str, str | None] = field(default_factory=lambda: EMPTY)
    extra: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One bound value: a plain Python value (None, bool, int, float, Decimal, str, bytes, date, time,
    datetime, timedelta, UUID, list) and, where the client named one, its type in PostgreSQL spelling."""

    value: Any
    type_name: str = ""


@runtime_checkable
class CarriesSql(Protocol):
    """A door's form of a statement that has the SQL inside."""

    def say(self, sql: str) -> None:
        """Have this SQL instead."""


class Statement(Struct, frozen=True):
    """One statement. ``native`` is the door's own form of it, understood by an engine of the same protocol.

    ``dialect`` is the sqlglot name of the dialect it is written in; empty: forwarded untranslated.
    """

    text: str
    dialect: str
    parameters: tuple[Parameter, ...] = ()
    native: object | None = None
