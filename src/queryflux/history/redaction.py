"""What records may say of a statement: queryHistory.redaction, applied in the process that ran the query.

Under ``maskLiterals`` a statement is its digest, other SQL has ``?`` for its values, and what was written for
people (errors, notes of translation, traces, tags) loses everything that may be a value. Under ``metadata``
there is no SQL, no text of an error and no trace. In both the hash of the exact text goes: who guesses the
values can tell from it that the guess is right.

To redact what is redacted already changes nothing, and a record redacted in steps is as strict as the
strictest of them.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from msgspec.structs import replace

from queryflux.history.memory import size_of
from queryflux.history.record import KEPT_LENGTH, QueryRecord
from queryflux.history.stored import StoredQuery

log = logging.getLogger(__name__)

AT_A_TIME = 32 << 10
"""So many bytes of records are worked on before the loop gets its turn: some 2 ms."""

LOOKED_AT = 8 << 10
"""Of a longer statement the log says no words of an error: to look for its values takes too long."""

Held = QueryRecord | StoredQuery
T = TypeVar("T", bound=Held)


class Redaction(StrEnum):
    """The policies, from the loosest to the strictest."""

    NONE = "none"
    MASK_LITERALS = "maskLiterals"
    METADATA = "metadata"


_STRICTNESS = {policy: rank for rank, policy in enumerate(Redaction)}

Mask = Callable[[str, str], str | None]
"""SQL of a dialect (as history spells it) without its values; None when it cannot be cut into tokens."""


def stricter(policy: Redaction, than: Redaction) -> bool:
    """Whether ``policy`` hides more."""
    return _STRICTNESS[policy] > _STRICTNESS[than]


def strictest(first: Redaction, *others: Redaction) -> Redaction:
    """The one that hides the most."""
    return max((first, *others), key=_STRICTNESS.__getitem__)


async def in_turns(records: Sequence[T], change: Callable[[T], StoredQuery]) -> list[StoredQuery]:
    """What ``change`` makes of each record, while others have their turn on the loop. One of which it makes
    nothing is logged and left out."""
    changed: list[StoredQuery] = []
    size = 0
    for record in records:
        try:
            changed.append(change(record))
        except Exception:
            log.exception("history: the record of query %s cannot be kept", record.proxy_query_id)
        size += size_of(record)
        if size >= AT_A_TIME:
            size = 0
            await asyncio.sleep(0)
    return changed


def redacted(record: StoredQuery, policy: Redaction, mask: Mask) -> StoredQuery:
    """The record as ``policy`` lets it be seen."""
    if policy is Redaction.NONE:
        return record
    return _without_sql(record) if policy is Redaction.METADATA else _masked(record, mask)


def told(record: Held, policy: Redaction, mask: Mask) -> str | None:
    """The text of a record's error as ``policy`` lets it be seen."""
    message = record.error_message
    if message is None or policy is Redaction.NONE:
        return message
    if policy is Redaction.METADATA:
        return None
    text = record.sql_text
    if text is not None and len(text) > LOOKED_AT:
        return "?"
    return _said(message, _values_in(text, None if text is None else mask(text, record.source_dialect)))


def _said(message: str | None, values: frozenset[str]) -> str | None:
    """A message without anything that may be a value, and without the words of ``values``."""
    if message is None or not values:
        return message and mask_message(message)
    return _PLAIN.sub(lambda word: "?" if word[0].casefold() in values else word[0], mask_message(message))


def _values_in(text: str | None, masked: str | None) -> frozenset[str]:
    """Words of SQL that are in its values alone: an engine may show a piece of these as it likes."""
    if text is None:
        return frozenset()
    return frozenset(_PLAIN.findall(text.casefold())).difference(_PLAIN.findall((masked or "").casefold()))


def _without_sql(record: StoredQuery) -> StoredQuery:
    return replace(
        record,
        sql_text=None,
        translated_sql=None,
        query_hash=None,
        query_parameterized_hash=None,
        translated_query_hash=None,
        digest_text=None,
        translated_digest_text=None,
        error_message=None,
        translation_message=None,
        routing_trace=None,
        query_tags=_masked_tags(record.query_tags),
    )


def _masked(record: StoredQuery, mask: Mask) -> StoredQuery:
    own = _is_whole(record.sql_text, record.source_dialect, mask)
    theirs = None if record.translated_sql is None else mask(record.translated_sql, record.target_dialect)
    values = _values_in(record.sql_text, record.digest_text if own else None)
    values |= _values_in(record.translated_sql, theirs)
    return replace(
        record,
        sql_text=record.digest_text if own else None,
        translated_sql=theirs,
        query_hash=None,
        query_parameterized_hash=record.query_parameterized_hash if own else None,
        digest_text=record.digest_text if own else None,
        translated_query_hash=record.translated_query_hash if theirs is not None else None,
        translated_digest_text=record.translated_digest_text if theirs is not None else None,
        error_message=_said(record.error_message, values),
        translation_message=_said(record.translation_message, values),
        routing_trace=_masked_trace(record.routing_trace),
        query_tags=_masked_tags(record.query_tags),
    )


def _is_whole(text: str | None, dialect: str, mask: Mask) -> bool:
    """Whether every quote in a text is closed. One that was cut has a digest all the same, and where a quote
    is open nobody knows whether what seems to stand between two strings is not one."""
    return text is not None and (len(text) < KEPT_LENGTH or mask(text, dialect) is not None)


_NAMES = frozenset({"type", "result", "group", "final_group"})
"""Keys of a trace whose values the configuration names."""


def _masked_trace(value: Any) -> Any:
    if isinstance(value, str):
        return mask_message(value)
    if isinstance(value, Mapping):
        return {key: item if key in _NAMES else _masked_trace(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked_trace(item) for item in value]
    return value


def _masked_tags(tags: Mapping[str, str | None] | None) -> Mapping[str, str | None] | None:
    if tags is None:
        return None
    return {mask_message(key): None if value is None else mask_message(value) for key, value in tags.items()}


_EXCERPT = re.compile(r"\bLINE \d+:")
"""Where an engine shows a piece of the statement, which may begin and end inside of a string."""
_WORD = re.compile(r"[\w.:@$+-]++")
_PLAIN = re.compile(r"\w++")
_DIGIT = re.compile(r"\d")
_QUOTE = re.compile("['\"`‘’“”«»]")
_OPEN, _CLOSE = re.compile(r"\("), re.compile(r"\)")
_HEAD = re.compile(r"[A-Za-z ]*\b[Ee]rror|line \?|Query failed \(\?\)|[A-Z_]+")
"""What an engine puts before its message, with a colon."""
_COLON = re.compile(r":\s")


def mask_message(text: str) -> str:
    """A sentence written for people, with ``?`` for whatever in it may be a value: what stands between its
    first and its last quote, or between parentheses (``Key (id)=(7)``), every number and word with a digit,
    and what follows a colon, unless a kind of error or a place stands before that. Takes time linear in the
    text."""
    excerpt = _EXCERPT.search(text)
    if excerpt is not None:
        text = text[: excerpt.start()].rstrip()
    text = _between(text, _QUOTE, _QUOTE, "?")
    text = _between(text, _OPEN, _CLOSE, "(?)")
    return _without_values(_WORD.sub(_without_digits, text))


def _without_digits(word: re.Match[str]) -> str:
    text = word[0]
    return "?" + text[len(text.rstrip(".:@$+-")) :] if _DIGIT.search(text) else text


def _between(text: str, opener: re.Pattern[str], closer: re.Pattern[str], mark: str) -> str:
    """The text with ``mark`` for everything from the first opener to the last closer; to the end of the text
    when they do not come in pairs."""
    starts = [found.start() for found in opener.finditer(text)]
    if not starts:
        return text
    ends = [found.start() for found in closer.finditer(text)]
    paired = len(starts) % 2 == 0 if opener is closer else len(starts) == len(ends)
    if not paired or ends[-1] <= starts[0] or ends[-1] < starts[-1]:
        return text[: starts[0]] + mark
    return text[: starts[0]] + mark + text[ends[-1] + 1 :]


def _without_values(text: str) -> str:
    begin = 0
    for colon in _COLON.finditer(text):
        if _HEAD.fullmatch(text, begin, colon.start()) is None:
            return text[: colon.end()] + "?"
        begin = colon.end()
    return text
