"""Batches are cut to what clients take, without copying."""

import pyarrow as pa

from queryflux.frontends.flight_sql.stream import pieces


def test_a_small_batch_stays_whole() -> None:
    batch = pa.record_batch([pa.array(range(10))], names=["x"])
    assert pieces(batch) == [batch]


def test_a_large_batch_is_cut_into_parts_that_fit() -> None:
    batch = pa.record_batch([pa.array(["x" * n for n in range(1000)])], names=["x"])
    parts = pieces(batch, 50_000)
    assert pa.Table.from_batches(parts).column(0).to_pylist() == batch.column(0).to_pylist()
    assert all(part.nbytes <= 50_000 for part in parts)
    assert len(parts) < 40


def test_a_row_that_is_too_large_goes_alone() -> None:
    batch = pa.record_batch([pa.array(["a", "x" * 1000, "b"])], names=["x"])
    assert [part.num_rows for part in pieces(batch, 100)] == [1, 1, 1]
