"""A statement in the dialect of the engine that will run it.

sqlglot is loaded when the first statement needs it. Statements up to ``INLINE_CHARS`` are translated at once
(a few milliseconds); larger and deeper ones in a helper process with a deadline, because a long list of
literals keeps sqlglot busy for seconds and the event loop has to go on. Those over ``LONG_CHARS`` have a
helper of their own, and so have deep ones, so that nothing ordinary waits behind them.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from queryflux.model.errors import NotSupported, SqlSyntaxError
from queryflux.sql.helper import HelperFailed, TranspileHelper
from queryflux.sql.lexer import blank_end
from queryflux.sql.nesting import is_deeper
from queryflux.sql.textcache import TextCache

if TYPE_CHECKING:
    from queryflux.sql.transpile import Outcome

INLINE_CHARS = 2 << 10
INLINE_DEPTH = 10
"""Of brackets: see ``nesting``."""
LONG_CHARS = 64 << 10
DEFAULT_DEADLINE_SECS = 5.0
_FAMILIES = (
    frozenset({"mysql", "starrocks", "doris", "singlestore"}),
    frozenset({"trino", "presto", "athena"}),
)
_WARM_UP = "SELECT a, count(*) / 2 FROM t WHERE b > 1 AND c LIKE 'x%' GROUP BY a ORDER BY a LIMIT 5"
# What belongs to one engine or to the session: the parser keeps the words, or takes them for an expression.
_FORWARDED_WORDS = """
INSTALL FORCE LOAD PRAGMA ATTACH DETACH COPY EXPORT IMPORT CHECKPOINT DECLARE FETCH MOVE CLOSE
LISTEN UNLISTEN NOTIFY LOCK UNLOCK PREPARE EXECUTE DEALLOCATE
"""
_FORWARDED = frozenset(_FORWARDED_WORDS.split())
_FIRST_WORD = re.compile(r"[A-Za-z]+")
_warmed: set[tuple[str, str]] = set()


def _helper_for(text: str, source: str) -> str:
    """Which helper process translates it; empty: this one does."""
    if len(text) > LONG_CHARS:
        return "long"
    if is_deeper(text, source, INLINE_DEPTH):
        return "deep"
    return "large" if len(text) > INLINE_CHARS else ""


class TranslationMode(StrEnum):
    """What becomes of a statement that cannot be translated (``translation.mode``)."""

    BEST_EFFORT = "bestEffort"
    STRICT = "strict"


class TranslationStatus(StrEnum):
    """What history records: translated with all that helps, not at all, or without table schemas."""

    YES = "yes"
    NO = "no"
    FALLBACK = "fallback"


class TranslationReason(StrEnum):
    """Why a statement was not translated, or only by dialect."""

    NOT_NEEDED = "not_needed"
    TRANSPILE_ERROR = "transpile_error"
    NO_SCHEMA = "no_schema"
    SQLGLOT_UNAVAILABLE = "sqlglot_unavailable"


@dataclass(frozen=True, slots=True)
class Translation:
    """``sql`` is what the engine gets. ``message`` and ``position`` (0-based, in the text that came in)
    describe a transpile error that was let through."""

    sql: str
    status: TranslationStatus
    reason: TranslationReason | None = None
    message: str = ""
    position: int | None = None


class Translator:
    """Translates statements and remembers what it translated, within ``cache_bytes``."""

    def __init__(
        self,
        mode: TranslationMode = TranslationMode.BEST_EFFORT,
        *,
        cache_bytes: int = 16 << 20,
        deadline: float = DEFAULT_DEADLINE_SECS,
        helper: Callable[[], TranspileHelper] = TranspileHelper,
    ) -> None:
        """``deadline`` in seconds is for statements that go to the helper process: so long they may wait for
        their turn, and so long they may take."""
        self.mode = mode
        self._deadline = deadline
        self._cache: TextCache[Outcome] = TextCache(cache_bytes)
        self._new_helper = helper
        self._helpers: dict[str, TranspileHelper] = {}

    async def translate(self, text: str, source: str, target: str) -> Translation:
        """One executable statement from dialect to dialect. What is not translated is forwarded as it is.
        Raises SqlSyntaxError or NotSupported (strict only)."""
        if not needs_translation(source, target) or _is_forwarded(text, source):
            return Translation(text, TranslationStatus.NO, TranslationReason.NOT_NEEDED)
        key = (text, source, target)
        outcome = self._cache.get(key)
        if outcome is None:
            try:
                outcome = await self._outcome(text, source, target)
            except HelperFailed as failure:
                return self._failed(text, str(failure), None, TranslationReason.TRANSPILE_ERROR)
            except ImportError:
                message = "sqlglot, which translates between dialects, is not installed"
                return self._failed(text, message, None, TranslationReason.SQLGLOT_UNAVAILABLE)
            self._cache.put(key, outcome, text, outcome.sql or "", outcome.message)
        return self._judge(text, outcome)

    async def _outcome(self, text: str, source: str, target: str) -> "Outcome":
        strict = self.mode is TranslationMode.STRICT
        kind = _helper_for(text, source)
        if kind:
            helper = self._helpers.get(kind)
            if helper is None:
                helper = self._helpers[kind] = self._new_helper()
            return await helper.transpile(text, source, target, strict, self._deadline)
        from queryflux.sql.transpile import transpile

        return transpile(text, source, target, strict)

    def _judge(self, text: str, outcome: "Outcome") -> Translation:
        if outcome.sql is None:
            if self.mode is TranslationMode.STRICT and outcome.unsupported:
                raise NotSupported(
                    f"The engine's dialect has no such construct: {outcome.message}",
                    hint="Write it another way, or set translation.mode to bestEffort.",
                )
            return self._failed(text, outcome.message, outcome.position, TranslationReason.TRANSPILE_ERROR)
        if outcome.has_tables:
            return Translation(outcome.sql, TranslationStatus.FALLBACK, TranslationReason.NO_SCHEMA)
        return Translation(outcome.sql, TranslationStatus.YES)

    def _failed(
        self, text: str, message: str, position: int | None, reason: TranslationReason
    ) -> Translation:
        if self.mode is TranslationMode.STRICT:
            raise SqlSyntaxError(
                f"The statement cannot be translated for its engine: {message}.",
                hint="Correct the statement, or set translation.mode to bestEffort to forward it as it is.",
                position=position,
            )
        return Translation(text, TranslationStatus.NO, reason, message, position)

    def warm(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Load sqlglot and the dialects of the (source, target) pairs that differ, which takes 100 ms or so
        the first time in a process and nothing after that, or when none differ. Raises nothing."""
        for pair in pairs:
            if pair in _warmed or not needs_translation(*pair):
                continue
            try:
                from queryflux.sql.transpile import transpile
            except ImportError:
                return  # each statement will say so
            transpile(_WARM_UP, *pair, strict=False)
            _warmed.add(pair)

    async def close(self) -> None:
        """Stop the helper processes, if there are any."""
        for helper in self._helpers.values():
            await helper.close()


def _is_forwarded(text: str, dialect: str) -> bool:
    word = _FIRST_WORD.match(text) or _FIRST_WORD.match(text, blank_end(text, dialect))
    return word is not None and word.group().upper() in _FORWARDED


def needs_translation(source: str, target: str) -> bool:
    """Whether the two are known dialects of different families."""
    if not source or not target or source == target:
        return False
    return not any(source in family and target in family for family in _FAMILIES)
