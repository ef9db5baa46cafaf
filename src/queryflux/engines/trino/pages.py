"""What the coordinator's documents say ("QueryResults" of the client protocol), as far as somebody asks.

A page is looked into as little as possible. Where the next one is stands before the rows in every page that
Trino writes, so a search finds it; the last page has none, and is decoded, rows aside.
"""

import msgspec

from queryflux.engines.trino.errors import ErrorDocument
from queryflux.results.answer import EngineStats

_NEXT = b'"nextUri":"'
_DATA = b'"data":'


class StatsDocument(msgspec.Struct, rename="camel"):
    """``stats``, the figures that history records."""

    state: str = ""
    elapsed_time_millis: int | None = None
    cpu_time_millis: int | None = None
    processed_rows: int | None = None
    processed_bytes: int | None = None
    physical_input_bytes: int | None = None
    peak_memory_bytes: int | None = None
    spilled_bytes: int | None = None
    total_splits: int | None = None


class ColumnDocument(msgspec.Struct, rename="camel"):
    """One of ``columns``."""

    name: str
    type: str
    type_signature: msgspec.Raw = msgspec.Raw(b"")


class Page(msgspec.Struct, rename="camel"):
    """A page without its rows."""

    id: str
    stats: StatsDocument = msgspec.field(default_factory=StatsDocument)
    next_uri: str | None = None
    columns: list[ColumnDocument] | None = None
    error: ErrorDocument | None = None
    update_type: str | None = None
    update_count: int | None = None

    def figures(self) -> EngineStats:
        """What the coordinator says of its work."""
        told = self.stats
        return EngineStats(
            self.id,
            told.elapsed_time_millis,
            told.cpu_time_millis,
            told.processed_rows,
            told.processed_bytes,
            told.physical_input_bytes,
            told.peak_memory_bytes,
            told.spilled_bytes,
            told.total_splits,
        )

    def fill(self, stats: EngineStats) -> None:
        """Note the same in ``stats``."""
        told = self.figures()
        for name in told.__struct_fields__:
            setattr(stats, name, getattr(told, name))


class PageWithRows(Page):
    """A page with its rows, still as JSON."""

    data: msgspec.Raw = msgspec.Raw(b"")


decode_page = msgspec.json.Decoder(Page).decode
decode_page_with_rows = msgspec.json.Decoder(PageWithRows).decode


def next_uri_of(body: bytes) -> str | None:
    """Where the next page is, if that can be told without decoding; None means: decode it."""
    start = body.find(_NEXT)
    if start < 0:
        return None
    data = body.find(_DATA, 0, start)
    if data >= 0:
        return None
    start += len(_NEXT)
    end = body.find(b'"', start, start + 4096)
    if end < 0 or b"\\" in body[start:end]:
        return None
    return body[start:end].decode("latin-1")
