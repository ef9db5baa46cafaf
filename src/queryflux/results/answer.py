"""Three shapes of an answer, all pull-based: nothing is read from the engine until somebody asks for more.

pyarrow is imported for types alone: a process that only relays frames never loads it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import Struct

from queryflux.model.protocol import ClientProtocol

if TYPE_CHECKING:
    import pyarrow as pa


class EngineStats(Struct):
    """What the engine says of its own work; every figure is optional."""

    backend_query_id: str | None = None
    elapsed_ms: int | None = None
    cpu_ms: int | None = None
    processed_rows: int | None = None
    processed_bytes: int | None = None
    physical_input_bytes: int | None = None
    peak_memory_bytes: int | None = None
    spilled_bytes: int | None = None
    total_splits: int | None = None


class Batches(ABC):
    """A stream of Arrow record batches. ``schema`` is known before the first batch."""

    batches: ClassVar[Literal[True]] = True
    schema: "pa.Schema"
    stats: EngineStats

    @abstractmethod
    async def next(self) -> "pa.RecordBatch | None":
        """The next batch, or None at the end. Raises EngineError, EngineConnectionLost, QueryEnded."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the engine's work on it, if any is left, and free what it holds. May be called twice."""


class Frames(ABC):
    """The engine's own messages, relayed as they are to a client of the same protocol.

    What one frame is, is between the engine and the door of that protocol (bytes, or a page object).
    An error that the engine reports is among the frames, and also noted in ``failure`` for the record.
    """

    batches: ClassVar[Literal[False]] = False
    protocol: ClientProtocol
    stats: EngineStats
    rows: int | None = None
    failure: Exception | None = None
    complete = False
    """Every frame was handed out and nothing is left at the engine: ``next`` would give None at once, and
    ``close`` has nothing to do. A stopped answer is never complete."""

    @abstractmethod
    async def next(self) -> object | None:
        """The next frame, or None at the end. Raises EngineConnectionLost, QueryEnded."""

    def take(self) -> object | None:
        """The next frame if it is here already; None says nothing: ``next`` then tells."""
        return None

    def detach(self) -> bool:
        """Let go of it without a word to the engine, which keeps it for whoever goes on with it. False: it
        does not, and what is left is stopped by ``close``."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Stop the engine's work on it, if any is left, and free what it holds. May be called twice."""


@dataclass(slots=True)
class Done:
    """No result set: ``tag`` is the kind of statement (``INSERT``, ``CREATE TABLE``, ``BEGIN``), ``rows`` the
    number of affected rows where there is one."""

    batches: ClassVar[None] = None
    tag: str
    rows: int | None = None
    stats: EngineStats = field(default_factory=EngineStats)
    headers: dict[str, str] = field(default_factory=dict)


Answer = Batches | Frames | Done


@dataclass(frozen=True, slots=True)
class Shape:
    """What a statement would take and give: parameter types in PostgreSQL spelling, and the columns.

    ``schema`` is None for a statement without a result set. ``native`` holds the same in the client's own
    protocol, when the engine speaks it; the other fields may then be empty.
    """

    parameter_types: tuple[str, ...]
    schema: "pa.Schema | None"
    native: object | None = None
