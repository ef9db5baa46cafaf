"""What a fix-up script gives is one statement, or the script has failed and not the client."""

from collections.abc import AsyncIterator

import pytest

from queryflux.config.scripts import Script
from queryflux.model.errors import SqlSyntaxError
from queryflux.pipeline.fixups import FixUps
from queryflux.runtime.clock import SystemClock
from queryflux.scripts.host import ScriptHost
from queryflux.scripts.limits import Text
from queryflux.sql.textcache import TextCache
from queryflux.sql.translate import Translation, TranslationReason, TranslationStatus

PLACE = "translation.pythonScripts[0]"
ANSWERS = "def transform(sql, src, dst): return {'many': 'SELECT 1; SELECT 2', 'none': '-- no', 'empty': ''}"
BODY = f"{ANSWERS}.get(sql, sql.replace('old', 'new'))"


@pytest.fixture
async def fix_ups() -> AsyncIterator[FixUps]:
    host = ScriptHost([Text(PLACE, Script("translation_fixup", BODY))], SystemClock())
    await host.start()
    yield FixUps(host, (0,), TextCache(1 << 20))
    await host.close()


def translated(sql: str) -> Translation:
    return Translation(sql, TranslationStatus.YES)


@pytest.mark.parametrize(
    ("sql", "what"),
    [("many", "2 statements, and not one"), ("none", "no statement"), ("empty", "no statement")],
)
async def test_what_is_no_single_statement_is_a_script_that_failed(
    fix_ups: FixUps, sql: str, what: str
) -> None:
    forwarded = await fix_ups.fixed(translated(sql), "as it came", "mysql", "duckdb", strict=False)
    assert (forwarded.sql, forwarded.reason) == ("as it came", TranslationReason.TRANSPILE_ERROR)
    with pytest.raises(SqlSyntaxError) as caught:
        await fix_ups.fixed(translated(sql), "as it came", "mysql", "duckdb", strict=True)
    assert f"{PLACE} gave {what}" in caught.value.message


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        ("SELECT 'a; b' FROM old;", "SELECT 'a; b' FROM new"),
        ("CREATE FUNCTION old() RETURNS int BEGIN SET x = 1; RETURN x; END", None),
        ("SELECT 1;", "SELECT 1;"),
    ],
)
async def test_semicolons_that_end_nothing_are_no_fault(fix_ups: FixUps, sql: str, given: str | None) -> None:
    fixed = await fix_ups.fixed(translated(sql), sql, "trino", "trino", strict=True)
    assert fixed.sql == (given or sql.replace("old", "new"))
