"""The messages of Flight SQL, from the Arrow specification (format/FlightSql.proto and format/Flight.proto).

Commands, actions, results and tickets travel inside a google.protobuf.Any; the actions of Flight itself
(CancelFlightInfo) travel bare.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from queryflux.model.errors import NotSupported, ProtocolViolation
from queryflux.wire.flight.protobuf import Field, Kind, Message, decode, encode

_SQL = "arrow.flight.protocol.sql."
_STRING, _BYTES, _BOOL, _INT = Kind.STRING, Kind.BYTES, Kind.BOOL, Kind.INT


class EndTransaction(IntEnum):
    """How a transaction ends."""

    UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class CancelStatus(IntEnum):
    """What became of a cancel."""

    UNSPECIFIED = 0
    CANCELLED = 1
    CANCELLING = 2
    NOT_CANCELLABLE = 3


class CloseSessionStatus(IntEnum):
    """What became of a client's goodbye."""

    UNSPECIFIED = 0
    CLOSED = 1
    CLOSING = 2
    NOT_CLOSEABLE = 3


@dataclass(frozen=True)
class Any(Message):
    """google.protobuf.Any: a message with its name."""

    NAME: ClassVar[str] = "google.protobuf.Any"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("type_url", _STRING), 2: Field("value", _BYTES)}
    type_url: str = ""
    value: bytes = b""


# Commands: what a FlightDescriptor asks for.


@dataclass(frozen=True)
class CommandStatementQuery(Message):
    """Run SQL that answers rows."""

    NAME: ClassVar[str] = _SQL + "CommandStatementQuery"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("query", _STRING), 2: Field("transaction_id", _BYTES)}
    query: str = ""
    transaction_id: bytes = b""


@dataclass(frozen=True)
class CommandStatementUpdate(Message):
    """Run SQL that answers a count."""

    NAME: ClassVar[str] = _SQL + "CommandStatementUpdate"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("query", _STRING), 2: Field("transaction_id", _BYTES)}
    query: str = ""
    transaction_id: bytes = b""


@dataclass(frozen=True)
class CommandPreparedStatementQuery(Message):
    """Run a prepared statement that answers rows, or bind its parameters (DoPut)."""

    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementQuery"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("handle", _BYTES)}
    handle: bytes = b""


@dataclass(frozen=True)
class CommandPreparedStatementUpdate(Message):
    """Run a prepared statement that answers a count, once for each row of parameters."""

    NAME: ClassVar[str] = _SQL + "CommandPreparedStatementUpdate"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("handle", _BYTES)}
    handle: bytes = b""


@dataclass(frozen=True)
class CommandGetSqlInfo(Message):
    """What this server can do."""

    NAME: ClassVar[str] = _SQL + "CommandGetSqlInfo"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("info", _INT, repeated=True)}
    info: tuple[int, ...] = ()


@dataclass(frozen=True)
class CommandGetCatalogs(Message):
    """The catalogs."""

    NAME: ClassVar[str] = _SQL + "CommandGetCatalogs"


@dataclass(frozen=True)
class CommandGetDbSchemas(Message):
    """The schemas. ``pattern`` is a LIKE pattern; None and an absent ``catalog``: all."""

    NAME: ClassVar[str] = _SQL + "CommandGetDbSchemas"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("catalog", _STRING), 2: Field("schema_pattern", _STRING)}
    catalog: str | None = None
    schema_pattern: str | None = None


@dataclass(frozen=True)
class CommandGetTables(Message):
    """The tables, with their Arrow schemas when ``include_schema``."""

    NAME: ClassVar[str] = _SQL + "CommandGetTables"
    FIELDS: ClassVar[dict[int, Field]] = {
        1: Field("catalog", _STRING),
        2: Field("schema_pattern", _STRING),
        3: Field("table_pattern", _STRING),
        4: Field("table_types", _STRING, repeated=True),
        5: Field("include_schema", _BOOL),
    }
    catalog: str | None = None
    schema_pattern: str | None = None
    table_pattern: str | None = None
    table_types: tuple[str, ...] = ()
    include_schema: bool = False


@dataclass(frozen=True)
class CommandGetTableTypes(Message):
    """The kinds of table."""

    NAME: ClassVar[str] = _SQL + "CommandGetTableTypes"


@dataclass(frozen=True)
class CommandGetPrimaryKeys(Message):
    """The primary key of a table."""

    NAME: ClassVar[str] = _SQL + "CommandGetPrimaryKeys"


@dataclass(frozen=True)
class CommandGetExportedKeys(Message):
    """The foreign keys that refer to a table."""

    NAME: ClassVar[str] = _SQL + "CommandGetExportedKeys"


@dataclass(frozen=True)
class CommandGetImportedKeys(Message):
    """The foreign keys of a table."""

    NAME: ClassVar[str] = _SQL + "CommandGetImportedKeys"


@dataclass(frozen=True)
class CommandGetCrossReference(Message):
    """The foreign keys between two tables."""

    NAME: ClassVar[str] = _SQL + "CommandGetCrossReference"


@dataclass(frozen=True)
class TicketStatementQuery(Message):
    """Our tickets: a handle."""

    NAME: ClassVar[str] = _SQL + "TicketStatementQuery"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("handle", _BYTES)}
    handle: bytes = b""


# What DoPut answers.


@dataclass(frozen=True)
class DoPutUpdateResult(Message):
    """How many rows were changed; -1: unknown."""

    NAME: ClassVar[str] = _SQL + "DoPutUpdateResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("record_count", _INT)}
    record_count: int = 0


@dataclass(frozen=True)
class DoPutPreparedStatementResult(Message):
    """The handle to use from now on."""

    NAME: ClassVar[str] = _SQL + "DoPutPreparedStatementResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("handle", _BYTES)}
    handle: bytes = b""


# Actions.


@dataclass(frozen=True)
class ActionCreatePreparedStatementRequest(Message):
    """Prepare a statement."""

    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementRequest"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("query", _STRING), 2: Field("transaction_id", _BYTES)}
    query: str = ""
    transaction_id: bytes = b""


@dataclass(frozen=True)
class ActionCreatePreparedStatementResult(Message):
    """Its handle, and the IPC forms of the schemas of its result and parameters; empty: unknown."""

    NAME: ClassVar[str] = _SQL + "ActionCreatePreparedStatementResult"
    FIELDS: ClassVar[dict[int, Field]] = {
        1: Field("handle", _BYTES),
        2: Field("dataset_schema", _BYTES),
        3: Field("parameter_schema", _BYTES),
    }
    handle: bytes = b""
    dataset_schema: bytes = b""
    parameter_schema: bytes = b""


@dataclass(frozen=True)
class ActionClosePreparedStatementRequest(Message):
    """Forget a prepared statement."""

    NAME: ClassVar[str] = _SQL + "ActionClosePreparedStatementRequest"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("handle", _BYTES)}
    handle: bytes = b""


@dataclass(frozen=True)
class ActionBeginTransactionRequest(Message):
    """Begin a transaction."""

    NAME: ClassVar[str] = _SQL + "ActionBeginTransactionRequest"


@dataclass(frozen=True)
class ActionBeginTransactionResult(Message):
    """Its id."""

    NAME: ClassVar[str] = _SQL + "ActionBeginTransactionResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("transaction_id", _BYTES)}
    transaction_id: bytes = b""


@dataclass(frozen=True)
class ActionEndTransactionRequest(Message):
    """End a transaction; ``action`` is an EndTransaction."""

    NAME: ClassVar[str] = _SQL + "ActionEndTransactionRequest"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("transaction_id", _BYTES), 2: Field("action", _INT)}
    transaction_id: bytes = b""
    action: int = 0


@dataclass(frozen=True)
class CancelFlightInfoRequest(Message):
    """Flight's own cancel: ``info`` is a FlightInfo."""

    NAME: ClassVar[str] = "arrow.flight.protocol.CancelFlightInfoRequest"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("info", _BYTES)}
    info: bytes = b""


@dataclass(frozen=True)
class CancelFlightInfoResult(Message):
    """``status`` is a CancelStatus."""

    NAME: ClassVar[str] = "arrow.flight.protocol.CancelFlightInfoResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("status", _INT)}
    status: int = 0


@dataclass(frozen=True)
class CloseSessionResult(Message):
    """``status`` is a CloseSessionStatus; the request has no fields."""

    NAME: ClassVar[str] = "arrow.flight.protocol.CloseSessionResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("status", _INT)}
    status: int = 0


@dataclass(frozen=True)
class ActionCancelQueryRequest(Message):
    """The older spelling of the same, inside an Any."""

    NAME: ClassVar[str] = _SQL + "ActionCancelQueryRequest"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("info", _BYTES)}
    info: bytes = b""


@dataclass(frozen=True)
class ActionCancelQueryResult(Message):
    """``result`` is a CancelStatus."""

    NAME: ClassVar[str] = _SQL + "ActionCancelQueryResult"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("result", _INT)}
    result: int = 0


# As much of Flight's own messages as a cancel needs to find the ticket.


@dataclass(frozen=True)
class FlightInfo(Message):
    """Where a result is."""

    NAME: ClassVar[str] = "arrow.flight.protocol.FlightInfo"
    FIELDS: ClassVar[dict[int, Field]] = {3: Field("endpoints", _BYTES, repeated=True)}
    endpoints: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class FlightEndpoint(Message):
    """One part of a result."""

    NAME: ClassVar[str] = "arrow.flight.protocol.FlightEndpoint"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("ticket", _BYTES)}
    ticket: bytes = b""


@dataclass(frozen=True)
class Ticket(Message):
    """What DoGet takes."""

    NAME: ClassVar[str] = "arrow.flight.protocol.Ticket"
    FIELDS: ClassVar[dict[int, Field]] = {1: Field("ticket", _BYTES)}
    ticket: bytes = b""


REQUESTS: dict[str, type[Message]] = {
    kind.NAME: kind
    for kind in (
        CommandStatementQuery,
        CommandStatementUpdate,
        CommandPreparedStatementQuery,
        CommandPreparedStatementUpdate,
        CommandGetSqlInfo,
        CommandGetCatalogs,
        CommandGetDbSchemas,
        CommandGetTables,
        CommandGetTableTypes,
        CommandGetPrimaryKeys,
        CommandGetExportedKeys,
        CommandGetImportedKeys,
        CommandGetCrossReference,
        TicketStatementQuery,
        ActionCreatePreparedStatementRequest,
        ActionClosePreparedStatementRequest,
        ActionBeginTransactionRequest,
        ActionEndTransactionRequest,
        ActionCancelQueryRequest,
    )
}


def unpack(data: bytes) -> Message:
    """The message inside an Any. Raises ProtocolViolation; NotSupported for one that we do not know."""
    envelope = decode(Any, data)
    name = envelope.type_url.rpartition("/")[2]
    kind = REQUESTS.get(name)
    if kind is not None:
        return decode(kind, envelope.value)
    if name.startswith(_SQL):
        raise NotSupported(f"Flight SQL: {name.removeprefix(_SQL)[:64]} is not supported")
    raise ProtocolViolation("Flight SQL: the request is no Flight SQL message")


def pack(message: Message) -> bytes:
    """An Any with the message in it."""
    return encode(Any("type.googleapis.com/" + message.NAME, encode(message)))


def ticket_of(info: bytes) -> bytes:
    """The ticket of the first endpoint of a serialised FlightInfo. Raises ProtocolViolation."""
    endpoints = decode(FlightInfo, info).endpoints
    if not endpoints:
        raise ProtocolViolation("Flight: the FlightInfo has no endpoint")
    return decode(Ticket, decode(FlightEndpoint, endpoints[0]).ticket).ticket
