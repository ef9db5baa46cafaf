"""COPY data as PostgreSQL writes it."""

import csv
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.wire.postgres.copy_out import CopyEncoder, CopyFormat


def written(table: pa.Table, **options: Any) -> tuple[bytes, list[bytes]]:
    """What comes before the rows, and the lines."""
    encoder = CopyEncoder(table.schema, CopyFormat(**options), "UTC")
    data = b"".join(bytes(encoder.encode(batch)) for batch in table.to_batches() if batch.num_rows)
    return encoder.description, lines_of(data)


def lines_of(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        assert data[at : at + 1] == b"d"
        end = at + 1 + int.from_bytes(data[at + 1 : at + 5])
        found.append(data[at + 5 : end])
        at = end
    return found


CSV = {"csv": True, "delimiter": ",", "null": ""}
ODD = ["a", None, "", "\\", "a\tb\nc\rd\be\ff\vg", "\\N", "x,y;z|", '"q"', "\\.", "ü" * 100]


def test_text() -> None:
    start, lines = written(pa.table({"n": pa.array([1, None], pa.int32()), "t": ["a\t\\", "ü"]}))
    assert start == b"H\0\0\0\x0b\0\0\x02\0\0\0\0"
    assert lines == [b"1\ta\\t\\\\\n", b"\\N\t\xc3\xbc\n"]
    _, lines = written(pa.table({"t": ODD[:5]}), header=True, delimiter="|", null="x")
    assert lines == [b"a\n", b"x\n", b"\n", b"\\\\\n", b"a\\tb\\nc\\rd\\be\\ff\\vg\n"]


def test_csv_quotes_what_it_must() -> None:
    _, lines = written(pa.table({"a": ["a", None, "", "x,y", 'q"', "\n"], "b": [1] * 6}), **CSV)
    assert lines == [b"a,1\n", b",1\n", b'"",1\n', b'"x,y",1\n', b'"q""",1\n', b'"\n",1\n']
    _, lines = written(pa.table({"a": ["\\.", "x"]}), **CSV)
    assert lines == [b'"\\."\n', b"x\n"]
    _, lines = written(
        pa.table({"a": ["x", None], "b": ['\\"', "y"]}), **CSV, force_quote=("*",), escape="\\"
    )
    assert lines == [b'"x","\\\\\\""\n', b',"y"\n']


@pytest.mark.parametrize("csv_format", [False, True])
def test_the_header_is_written_as_values_are(csv_format: bool) -> None:
    table = pa.table({"a\t,b": [1], "c": [2]})
    start, _ = written(table, **(CSV if csv_format else {}), header=True)
    assert lines_of(start[12:]) == [b'"a\t,b",c\n' if csv_format else b"a\\t,b\tc\n"]


def test_nothing_and_no_columns() -> None:
    assert written(pa.table({"a": pa.array([], pa.int32())}))[1] == []
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert lines_of(bytes(CopyEncoder(batch.schema, CopyFormat(), "UTC").encode(batch))) == [b"\n", b"\n"]


texts = st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")), min_size=1)


@given(texts)
def test_csv_can_be_read_again(values: list[str]) -> None:
    _, lines = written(pa.table({"a": values, "b": values[::-1]}), **CSV)
    read = list(csv.reader(io.StringIO(b"".join(lines).decode(), newline=""), strict=True))
    assert read == [list(pair) for pair in zip(values, values[::-1], strict=True)]


@given(texts)
def test_text_can_be_read_again(values: list[str]) -> None:
    _, lines = written(pa.table({"a": values, "b": values[::-1]}))
    letters = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}

    def plain(field: str) -> str:
        first, *rest = field.split("\\\\")
        parts = [part.split("\\") for part in (first, *rest)]
        return "\\".join(head + "".join(letters[t[0]] + t[1:] for t in tail) for head, *tail in parts)

    read = [[plain(field) for field in line.decode()[:-1].split("\t")] for line in lines]
    assert read == [list(pair) for pair in zip(values, values[::-1], strict=True)]
