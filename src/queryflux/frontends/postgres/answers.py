"""Answers of the pipeline, and of the door itself, as messages."""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from queryflux.frontends.postgres.client import Client
from queryflux.frontends.postgres.commands import Reply
from queryflux.frontends.postgres.outbox import Outbox
from queryflux.frontends.postgres.rowstream import RowStream
from queryflux.pipeline.face import Query
from queryflux.results.answer import Batches, Frames
from queryflux.runtime.threads import LaneThread
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import BINARY_FORMAT, Back
from queryflux.wire.postgres.relayed import shift_positions

if TYPE_CHECKING:
    from queryflux.wire.postgres.rows import Schema


async def open_rows(
    client: Client, query: Query, answer: Batches, formats: Sequence[int], told: bytes = b""
) -> RowStream:
    """A stream over the answer's batches, as the columns that the client was ``told`` if it was. Raises
    PostgresError for a format that a column does not have, or when the columns are others."""
    await load_encoders()
    from queryflux.wire.postgres.rows import RowEncoder

    return RowStream(query, RowEncoder(answer.schema, formats, client.settings.time_zone, told))


async def open_copy(client: Client, query: Query, answer: Batches, options: dict[str, Any]) -> RowStream:
    """The same for COPY TO STDOUT; ``options`` are those of CopyFormat."""
    await load_encoders()
    from queryflux.wire.postgres.copy_out import CopyEncoder, CopyFormat

    encoder = CopyEncoder(answer.schema, CopyFormat(**options), client.settings.time_zone)
    return RowStream(query, encoder)


def copy_done(rows: int) -> bytes:
    """What follows the last row of COPY TO STDOUT."""
    return messages.message(Back.COPY_DONE, b"") + messages.command_complete(f"COPY {rows}")


async def columns_of(schema: "Schema") -> tuple[messages.Column, ...]:
    """What RowDescription says of an Arrow schema."""
    await load_encoders()
    from queryflux.wire.postgres.columns import columns

    return columns(schema)


async def load_encoders() -> None:
    """Load the encoders, and Arrow with them, when the first rows come; in a thread: it takes a while."""
    global _loaded
    if _loaded:
        return
    lane = LaneThread("load encoders")
    try:
        await lane.run(_load)
    finally:
        await lane.join()
    _loaded = True


_loaded = False


def _load() -> None:
    from queryflux.wire.postgres.rows import warm

    warm()


async def relay(
    query: Query,
    answer: Frames,
    outbox: Outbox,
    offset: int = 0,
    tell: Callable[[bytes], None] | None = None,
) -> bool:
    """Pass the server's messages on, to the end. Whether the statement succeeded. ``offset`` is where it
    begins in the text the client sent, for the position of an error; ``tell`` gets the first frame."""
    while (frame := await query.next()) is not None:
        if tell is not None:
            tell(cast(bytes, frame))
            tell = None
        if offset and answer.failure is not None:
            frame = shift_positions(cast(bytes, frame), offset)
        outbox.add(cast(bytes, frame))
        outbox.soon()
        if outbox.full:
            await outbox.room()
    return answer.failure is None


def write_reply_rows(
    outbox: Outbox,
    rows: Sequence[tuple[str | int | None, ...]],
    formats: Sequence[int],
) -> None:
    """Rows from the door itself: a handful."""
    for row in rows:
        parts = [struct.pack("!H", len(row))]
        for value, code in zip(row, formats, strict=True):
            raw = _raw(value, code)
            parts.append(struct.pack("!i", -1) if raw is None else struct.pack("!i", len(raw)) + raw)
        outbox.add(messages.message(Back.DATA_ROW, b"".join(parts)))


def _raw(value: str | int | None, code: int) -> bytes | None:
    """Integers are oid or int4; text looks the same in both formats."""
    if value is None:
        return None
    if isinstance(value, int) and code == BINARY_FORMAT:
        return struct.pack("!I", value)
    return str(value).encode()


def write_reply(outbox: Outbox, reply: Reply) -> None:
    """The door's own answer to a simple query."""
    formats = (0,) * len(reply.columns)
    if reply.columns:
        outbox.add(messages.row_description(reply.columns, formats))
        write_reply_rows(outbox, reply.rows, formats)
    outbox.add(messages.command_complete(reply.tag))


def suspended(frame: bytes) -> bool:
    """Whether the last message of a frame is PortalSuspended. The last five bytes of a row may look like it,
    so that the messages are walked once they do."""
    if not frame.endswith(messages.PORTAL_SUSPENDED):
        return False
    at, last, size = 0, len(frame) - len(messages.PORTAL_SUSPENDED), len(frame)
    while at < last:
        at += 1 + int.from_bytes(frame[at + 1 : at + 5])
    return at == last and size - at == len(messages.PORTAL_SUSPENDED)


def cut_rows(frames: bytes, limit: int, start: int = 0) -> int:
    """Where the messages end that hold the first ``limit`` rows from ``start`` on: the offset after them."""
    at, rows = start, 0
    while at < len(frames) and rows < limit:
        rows += frames[at] == Back.DATA_ROW
        at += 1 + int.from_bytes(frames[at + 1 : at + 5])
    return at
