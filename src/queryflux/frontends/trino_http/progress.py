"""How far a statement is, in the figures that every page has."""

from queryflux.pipeline.face import Query
from queryflux.results.answer import Answer
from queryflux.runtime.clock import Clock
from queryflux.wire.trino.documents import Stats


class Progress:
    """``created_at`` is in seconds since the epoch."""

    __slots__ = ("_clock", "_created", "_query", "_started", "created_at")

    def __init__(self, query: Query, clock: Clock) -> None:
        self._query = query
        self._clock = clock
        self._created = clock.monotonic()
        self._started: float | None = None
        self.created_at = clock.now()

    def goes_on_from(self, created_at: float) -> None:
        """Another process has begun it, then."""
        self.created_at = created_at
        self._created -= max(self._clock.now() - created_at, 0.0)

    def start(self) -> None:
        """Its engine has answered."""
        self._started = self._clock.monotonic()

    @property
    def waited_secs(self) -> float | None:
        """How long it waited for room, if it did."""
        if not self._query.waited:
            return None
        begun = self._started if self._started is not None else self._clock.monotonic()
        return begun - self._created

    def stats(self, state: str, answer: Answer | None, rows: int) -> Stats:
        """The figures as of now: the engine's own, where it tells any; ``rows`` were handed out here."""
        now = self._clock.monotonic()
        begun = self._started if self._started is not None else now
        engine = answer.stats if answer is not None else None
        stats = Stats(
            state,
            elapsed=int((now - self._created) * 1000),
            queued=int(((now if state == "QUEUED" else begun) - self._created) * 1000)
            if self._query.waited
            else 0,
            processed_rows=rows,
        )
        if engine is not None:
            stats.cpu = engine.cpu_ms or 0
            stats.processed_rows = engine.processed_rows or rows
            stats.processed_bytes = engine.processed_bytes or 0
            stats.input_bytes = engine.physical_input_bytes or 0
            stats.peak_memory = engine.peak_memory_bytes or 0
            stats.spilled = engine.spilled_bytes or 0
            stats.splits = engine.total_splits or 0
        return stats
