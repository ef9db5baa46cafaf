"""Our codec against the protobuf library, for every message."""

from typing import Any as Anything

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from queryflux.model.errors import NotSupported, ProtocolViolation
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Field, Kind, Message, decode, encode

EVERY: list[type[Message]] = [
    kind
    for kind in vars(m).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
]

PROTO_TYPES = {
    Kind.STRING: descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    Kind.BYTES: descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    Kind.BOOL: descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    Kind.INT: descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}

VALUES: dict[Kind, st.SearchStrategy[Anything]] = {
    Kind.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    Kind.BYTES: st.binary(max_size=20),
    Kind.BOOL: st.booleans(),
    Kind.INT: st.integers(-(2**63), 2**63 - 1),
}


def library_class(kind: type[Message]) -> Anything:
    """The same message as the protobuf library knows it."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{kind.__name__}.proto", package="t", syntax="proto3")
    description = file.message_type.add(name=kind.__name__)
    for number, field in kind.FIELDS.items():
        label = descriptor_pb2.FieldDescriptorProto
        description.field.add(
            name=field.name,
            number=number,
            type=PROTO_TYPES[field.kind],
            label=label.LABEL_REPEATED if field.repeated else label.LABEL_OPTIONAL,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{kind.__name__}"))


LIBRARY = {kind: library_class(kind) for kind in EVERY}


def value_of(field: Field) -> st.SearchStrategy[Anything]:
    return st.lists(VALUES[field.kind], max_size=4) if field.repeated else VALUES[field.kind]


@given(st.data())
@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_the_library_reads_and_writes_the_same(kind: type[Message], data: st.DataObject) -> None:
    values = {field.name: data.draw(value_of(field)) for field in kind.FIELDS.values()}
    theirs = LIBRARY[kind](**values)
    read = decode(kind, theirs.SerializeToString())
    for field in kind.FIELDS.values():
        value = tuple(values[field.name]) if field.repeated else values[field.name]
        assert (getattr(read, field.name) or type(value)()) == value
    again = LIBRARY[kind]()
    again.ParseFromString(encode(read))
    assert again == theirs


def test_an_any_of_the_library() -> None:
    inner = m.CommandGetTables(catalog="c", table_types=("TABLE", "VIEW"), include_schema=True)
    theirs = any_pb2.Any(type_url="type.googleapis.com/" + inner.NAME, value=encode(inner))
    assert m.unpack(theirs.SerializeToString()) == inner
    assert m.pack(inner) == theirs.SerializeToString()


def test_unknown_fields_are_skipped() -> None:
    known = encode(m.CommandStatementQuery("SELECT 1", b"t"))
    unknown = b"\x98\x06\x07" + b"\xa2\x06\x03abc" + b"\xa9\x06" + b"8" * 8 + b"\xb5\x06" + b"4" * 4
    assert decode(m.CommandStatementQuery, unknown + known + unknown) == m.CommandStatementQuery(
        "SELECT 1", b"t"
    )


def test_an_empty_catalog_is_not_an_absent_one() -> None:
    for command in (m.CommandGetTables(catalog=""), m.CommandGetTables()):
        assert decode(m.CommandGetTables, encode(command)) == command


def test_numbers_packed_and_one_by_one() -> None:
    assert decode(m.CommandGetSqlInfo, b"\x0a\x03\x08\xac\x02").info == (8, 300)
    assert decode(m.CommandGetSqlInfo, b"\x08\x08\x08\xac\x02").info == (8, 300)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\x01\xff",
        b"\x08\x01",
        b"\x0b",
        b"\x0c",
        b"\x0f",
        b"\x02\x00",
        b"\xff" * 11,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0d\x01",
        b"\x09\x01",
    ],
)
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode(m.CommandStatementQuery, data)


def test_requests_that_are_not_ours() -> None:
    ingest = m.Any("type.googleapis.com/arrow.flight.protocol.sql.CommandStatementIngest", b"")
    with pytest.raises(NotSupported, match="CommandStatementIngest"):
        m.unpack(encode(ingest))
    for data in (b"", b"SELECT 1", encode(m.Any("type.googleapis.com/google.protobuf.Empty", b""))):
        with pytest.raises(ProtocolViolation):
            m.unpack(data)


def test_the_ticket_of_a_flight_info() -> None:
    endpoint = flight.FlightEndpoint(b"the ticket", ["grpc://localhost:1"])
    descriptor = flight.FlightDescriptor.for_command(b"x")
    info = flight.FlightInfo(pa.schema([]), descriptor, [endpoint], -1, -1)
    assert m.ticket_of(info.serialize()) == b"the ticket"
    with pytest.raises(ProtocolViolation):
        m.ticket_of(flight.FlightInfo(pa.schema([]), descriptor, [], -1, -1).serialize())
