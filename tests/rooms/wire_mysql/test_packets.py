"""The framing: whole, byte by byte, with trailing bytes, over the limit, out of order."""

from collections.abc import Callable

import pytest

from queryflux.model.errors import ProtocolViolation, StatementTooLarge
from queryflux.wire.mysql.packets import PacketCodec
from tests.rooms.wire_mysql.reading import packets

FULL = 0xFFFFFF


def packet(payload: bytes, sequence: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((sequence,)) + payload


def whole(codec: PacketCodec, data: bytes) -> list[bytes]:
    codec.feed(data)
    return drained(codec)


def byte_by_byte(codec: PacketCodec, data: bytes) -> list[bytes]:
    found: list[bytes] = []
    for index in range(len(data)):
        codec.feed(data[index : index + 1])
        found += drained(codec)
    return found


def drained(codec: PacketCodec) -> list[bytes]:
    found = []
    while (payload := codec.receive()) is not None:
        found.append(payload)
    return found


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
@pytest.mark.parametrize("payload", [b"", b"a", b"\x03select 1", b"x" * 1000])
def test_a_payload_arrives(feed: Callable[[PacketCodec, bytes], list[bytes]], payload: bytes) -> None:
    codec = PacketCodec(2000)
    assert feed(codec, packet(payload, 0)) == [payload]
    assert codec.sequence == 1
    assert not codec.pending


def test_trailing_bytes_wait_for_the_rest() -> None:
    codec = PacketCodec(2000)
    assert whole(codec, packet(b"one", 0) + packet(b"two", 1)[:5]) == [b"one"]
    assert codec.pending
    assert whole(codec, packet(b"two", 1)[5:]) == [b"two"]


def test_a_long_payload_is_joined() -> None:
    codec = PacketCodec(64 << 20)
    parts = [b"a" * FULL, b"b" * FULL, b""]
    for sequence, part in enumerate(parts):
        assert codec.receive() is None
        codec.feed(packet(part, sequence))
    assert codec.receive() == b"".join(parts)
    assert not codec.pending


@pytest.mark.parametrize("feed", [whole, byte_by_byte])
def test_what_is_over_the_limit_is_passed_over_and_the_exchange_goes_on(
    feed: Callable[[PacketCodec, bytes], list[bytes]],
) -> None:
    codec = PacketCodec(10)
    with pytest.raises(StatementTooLarge, match="larger than 10 bytes"):
        feed(codec, packet(b"x" * 11, 0))
    assert codec.sequence == 1
    codec.sequence = 0
    assert feed(codec, packet(b"x" * 10, 0)) == [b"x" * 10]


def test_a_joined_payload_over_the_limit_is_refused_at_its_end_and_not_kept() -> None:
    codec = PacketCodec(FULL + 5)
    codec.feed(packet(b"a" * FULL, 0))
    assert codec.receive() is None
    codec.feed(packet(b"b" * 6, 1))
    with pytest.raises(StatementTooLarge):
        codec.receive()
    assert not codec.pending
    codec.feed(packet(b"next", 2))
    assert codec.receive() == b"next"


def test_a_full_packet_over_the_limit_is_passed_over_with_what_follows_it() -> None:
    codec = PacketCodec(100)
    codec.feed(packet(b"a" * FULL, 0))
    assert codec.receive() is None
    codec.feed(packet(b"b" * FULL, 1))
    assert codec.receive() is None
    codec.feed(packet(b"", 2))
    with pytest.raises(StatementTooLarge):
        codec.receive()


def test_a_packet_out_of_order() -> None:
    codec = PacketCodec(100)
    codec.feed(packet(b"a", 1))
    with pytest.raises(ProtocolViolation, match="packet 1 came where 0 was due"):
        codec.receive()


@pytest.mark.parametrize("length", [0, 1, FULL - 1, FULL, FULL + 1, 2 * FULL])
def test_packing_numbers_and_splits(length: int) -> None:
    codec = PacketCodec(0)
    codec.sequence = 255
    packed = codec.pack(b"s" * length, b"t")
    assert list(packets(packed, 255)) == [b"s" * length, b"t"]
    assert codec.sequence == (255 + length // FULL + 2) & 0xFF
