"""Any bytes are a Flight SQL message or a ProtocolViolation; nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from queryflux.model.errors import NotSupported, ProtocolViolation
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message, decode, encode

EVERY: list[type[Message]] = [*m.REQUESTS.values(), m.Any, m.CancelFlightInfoRequest, m.FlightInfo]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for kind in EVERY:
        try:
            decode(kind, data)
        except ProtocolViolation:
            continue
    for read in (m.unpack, m.ticket_of):
        try:
            read(data)
        except (ProtocolViolation, NotSupported):
            continue


@given(st.sampled_from(sorted(m.REQUESTS)), st.binary(max_size=100))
def test_any_bytes_in_an_envelope(name: str, data: bytes) -> None:
    try:
        message = m.unpack(encode(m.Any("type.googleapis.com/" + name, data)))
    except ProtocolViolation:
        return
    assert decode(type(message), encode(message)) == message


@given(st.binary(max_size=100), st.binary(max_size=20))
def test_trailing_bytes_change_nothing_that_was_read(handle: bytes, more: bytes) -> None:
    whole = encode(m.TicketStatementQuery(handle))
    for cut in range(len(whole)):
        try:
            decode(m.TicketStatementQuery, whole[:cut])
        except ProtocolViolation:
            continue
    try:
        decode(m.TicketStatementQuery, whole + more)
    except ProtocolViolation:
        return
