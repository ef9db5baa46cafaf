"""Reads what the server writes, independently of the code under test."""

from collections.abc import Iterator


def packets(data: bytes, sequence: int) -> Iterator[bytes]:
    """Payloads of ``data``, whose packets are numbered from ``sequence``; nothing may be left over."""
    offset = 0
    payload = b""
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 3], "little")
        assert data[offset + 3] == sequence & 0xFF
        sequence += 1
        payload += data[offset + 4 : offset + 4 + length]
        offset += 4 + length
        if length < 0xFFFFFF:
            yield payload
            payload = b""
    assert offset == len(data)
    assert not payload


def lenenc(data: bytes, offset: int) -> tuple[bytes | None, int]:
    """A length-encoded string, or None for NULL, and where it ends."""
    first = data[offset]
    if first == 0xFB:
        return None, offset + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    length = int.from_bytes(data[offset + 1 : offset + 1 + width], "little") if width else first
    start = offset + 1 + width
    assert start + length <= len(data)
    return data[start : start + length], start + length


def text_cells(payload: bytes) -> list[bytes | None]:
    """The cells of a text protocol row."""
    cells: list[bytes | None] = []
    offset = 0
    while offset < len(payload):
        cell, offset = lenenc(payload, offset)
        cells.append(cell)
    return cells
