"""DataRow messages read back, slowly and plainly: what the encoders are checked against."""

import struct
from collections.abc import Sequence

import pyarrow as pa

from queryflux.wire.postgres.rows import RowEncoder


def read_rows(data: bytes) -> list[list[bytes | None]]:
    """The values of every DataRow in ``data``; anything malformed fails an assertion."""
    rows, at = [], 0
    while at < len(data):
        kind, length, columns = struct.unpack_from("!cIH", data, at)
        assert kind == b"D"
        end, at = at + 1 + length, at + 7
        row: list[bytes | None] = []
        for _ in range(columns):
            (size,) = struct.unpack_from("!i", data, at)
            at += 4
            row.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        assert at == end
        rows.append(row)
    return rows


def encode(
    columns: Sequence[pa.Array], formats: Sequence[int] = (), zone: str = "UTC"
) -> list[list[bytes | None]]:
    """Columns through the encoder and back."""
    batch = pa.record_batch(list(columns), names=[f"c{index}" for index in range(len(columns))])
    return read_rows(bytes(RowEncoder(batch.schema, formats, zone).encode(batch)))


def texts(array: pa.Array, zone: str = "UTC") -> list[str | None]:
    """One column in text format."""
    return [None if row[0] is None else row[0].decode() for row in encode([array], (), zone)]


def binaries(array: pa.Array) -> list[bytes | None]:
    """One column in binary format."""
    return [row[0] for row in encode([array], (1,))]
