"""Fix-up scripts: what becomes of SQL after it has been translated, or needed no translation.

A script's answer for a text is remembered until the scripts change: it may depend on nothing else.
"""

import dataclasses

from queryflux.model.errors import SqlSyntaxError
from queryflux.scripts.host import ScriptFailed, ScriptHost
from queryflux.sql.split import split
from queryflux.sql.textcache import TextCache
from queryflux.sql.translate import Translation, TranslationReason, TranslationStatus

CACHE_BYTES = 8 << 20
_FAILED = {TranslationReason.TRANSPILE_ERROR, TranslationReason.SQLGLOT_UNAVAILABLE}


class FixUps:
    """The scripts of one group, in order."""

    def __init__(self, host: ScriptHost, numbers: tuple[int, ...], remembered: TextCache[str]) -> None:
        """``remembered`` is shared by the groups of one host."""
        self.host = host
        self.numbers = numbers
        self._remembered = remembered

    def same_as(self, other: "FixUps") -> bool:
        """Whether it is the same scripts of the same process."""
        return self.host is other.host and self.numbers == other.numbers

    async def fixed(
        self,
        translation: Translation,
        text: str,
        source: str,
        target: str,
        *,
        strict: bool,
        query_id: str = "",
    ) -> Translation:
        """``translation`` of ``text`` with the scripts' changes. What could not be translated, or has no
        dialect, is left as it is; ``query_id`` is for the log. Raises SqlSyntaxError when a script fails and
        ``strict``; else ``text`` is forwarded."""
        if not source or translation.reason in _FAILED:
            return translation
        key = (self.numbers, translation.sql, source, target)
        sql = self._remembered.get(key)
        if sql is None:
            try:
                sql = await self._asked(translation.sql, source, target, query_id)
            except ScriptFailed as failure:
                return self._failed(failure, text, strict)
            self._remembered.put(key, sql, translation.sql, sql)
        if sql == translation.sql:
            return translation
        if translation.status is TranslationStatus.NO:
            return Translation(sql, TranslationStatus.YES)
        return dataclasses.replace(translation, sql=sql)

    async def _asked(self, sql: str, source: str, target: str, query_id: str) -> str:
        for number in self.numbers:
            try:
                sql = await self._one(number, sql, source, target)
            except ScriptFailed as failure:
                self.host.failures.tell(number, failure.brief, query_id)
                raise
        return sql

    async def _one(self, number: int, sql: str, source: str, target: str) -> str:
        value = await self.host.call(number, sql, source, target)
        try:
            return _statement(value, sql, target)
        except ValueError as error:
            place = self.host.texts[number].place
            raise ScriptFailed("raised", f"{place}: it gave {error}", brief=f"{place} gave {error}") from None

    @staticmethod
    def _failed(failure: ScriptFailed, text: str, strict: bool) -> Translation:
        if strict:
            raise SqlSyntaxError(
                f"The statement cannot be translated for its engine: a script failed ({failure.brief}).",
                hint="Ask the operator to mend the script, or to set translation.mode to bestEffort.",
            )
        return Translation(text, TranslationStatus.NO, TranslationReason.TRANSPILE_ERROR, str(failure))


def _statement(value: object, before: str, dialect: str) -> str:
    """What a script made of ``before``. Raises ValueError, saying what it is, when it is no single statement:
    an engine would blame the client for it."""
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__}, and not SQL")
    if value == before:
        return value
    found = split(value, dialect)
    if not found:
        raise ValueError("no statement")
    if len(found) == 1:
        return found[0]
    if len(split(before, dialect)) > 1:
        return value  # the body of a routine, where semicolons end nothing
    raise ValueError(f"{len(found)} statements, and not one")
