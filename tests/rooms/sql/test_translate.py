"""Translation: only when needed, remembered within bytes, and by the policy when it fails."""

import asyncio
import os
import select
import signal
import subprocess
import sys

import pytest

from queryflux.model.errors import NotSupported, SqlSyntaxError
from queryflux.sql.helper import COMMAND, HelperFailed, TranspileHelper
from queryflux.sql.nesting import is_deeper
from queryflux.sql.translate import (
    INLINE_CHARS,
    LONG_CHARS,
    TranslationMode,
    TranslationReason,
    TranslationStatus,
    Translator,
    needs_translation,
)

BIG = "select * from t where a in (" + ", ".join(map(str, range(4000))) + ")"


def strict() -> Translator:
    return Translator(TranslationMode.STRICT)


@pytest.mark.parametrize(
    ("source", "target", "needed"),
    [
        ("postgres", "postgres", False),
        ("", "duckdb", False),
        ("postgres", "", False),
        ("mysql", "starrocks", False),
        ("trino", "athena", False),
        ("postgres", "duckdb", True),
    ],
)
def test_when_it_is_needed(source: str, target: str, needed: bool) -> None:
    assert needs_translation(source, target) is needed


async def test_the_same_dialect_is_left_alone() -> None:
    text = "selekt nonsense"
    done = await strict().translate(text, "trino", "trino")
    assert (done.sql, done.status, done.reason) == (text, TranslationStatus.NO, TranslationReason.NOT_NEEDED)


async def test_statuses() -> None:
    translator = Translator()
    plain = await translator.translate("select 1 as x", "postgres", "duckdb")
    assert (plain.status, plain.reason) == (TranslationStatus.YES, None)
    with_table = await translator.translate("select a from t", "postgres", "duckdb")
    assert (with_table.status, with_table.reason) == (TranslationStatus.FALLBACK, TranslationReason.NO_SCHEMA)


@pytest.mark.parametrize(
    ("text", "dialect", "position"),
    [
        ("select a from\n t where x = = 3 and", "postgres", len("select a from\n t where x = ")),
        ("select 'abc", "postgres", 7),
        ("select a b c d", "trino", 11),
        ("explain select a b c d", "trino", 19),
        ("select ?, a b c d", "trino", 14),
        ("select $1,$2,a b c d", "postgres", 17),
    ],
)
async def test_what_does_not_parse(text: str, dialect: str, position: int) -> None:
    done = await Translator().translate(text, dialect, "duckdb")
    assert (done.sql, done.status, done.reason) == (
        text,
        TranslationStatus.NO,
        TranslationReason.TRANSPILE_ERROR,
    )
    assert done.position == position
    with pytest.raises(SqlSyntaxError) as raised:
        await strict().translate(text, dialect, "duckdb")
    assert raised.value.position == position
    assert "\x1b" not in raised.value.message


async def test_one_statement_only_and_no_opaque_commands() -> None:
    for text in ("select 1; select 2", "", "-- nothing", "show tables", "vacuum full t"):
        done = await Translator().translate(text, "postgres", "duckdb")
        assert (done.sql, done.reason) == (text, TranslationReason.TRANSPILE_ERROR)


@pytest.mark.parametrize(
    "text",
    [
        "install httpfs",
        "/* x */ load httpfs",
        "attach 'a.db' as a",
        "pragma database_size",
        "copy t to 'f.csv'",
        "export database 'd'",
        "declare c cursor for select 1",
        "fetch 10 from c",
        "listen x",
        "lock table t",
    ],
)
async def test_what_belongs_to_an_engine_or_session_is_forwarded(text: str) -> None:
    for translator in (Translator(), strict()):
        done = await translator.translate(text, "postgres", "duckdb")
        assert (done.sql, done.reason) == (text, TranslationReason.NOT_NEEDED)


async def test_an_expression_is_no_statement() -> None:
    for text in ("frobnicate it", "x + 1", "lower('a')", "moo"):
        done = await Translator().translate(text, "postgres", "duckdb")
        assert (done.sql, done.reason) == (text, TranslationReason.TRANSPILE_ERROR)


async def test_what_the_target_lacks_is_refused_in_strict_mode_only() -> None:
    text = "select a from t for update"
    assert (await Translator().translate(text, "postgres", "duckdb")).sql == "SELECT a FROM t"
    with pytest.raises(NotSupported):
        await strict().translate(text, "postgres", "duckdb")


async def test_deep_nesting_is_an_error_like_any_other() -> None:
    text = "select " + "(" * 5000 + "1" + ")" * 5000
    assert (await Translator().translate(text, "postgres", "duckdb")).sql == text


async def test_a_translation_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator()
    first = await translator.translate("select now() as n", "postgres", "duckdb")

    def fail(*_: object) -> None:
        raise AssertionError("translated again")

    monkeypatch.setattr("queryflux.sql.transpile.transpile", fail)
    assert await translator.translate("select now() as n", "postgres", "duckdb") == first


async def test_large_statements_go_to_the_helper() -> None:
    assert len(BIG) > INLINE_CHARS
    translator = Translator(deadline=60)
    try:
        done = await translator.translate(BIG, "postgres", "trino")
        assert done.status is TranslationStatus.FALLBACK
        assert done.sql.startswith("SELECT * FROM t WHERE a IN (0, 1")
        helper = translator._helpers["large"]
        assert helper._process is not None
        await translator.translate(BIG, "postgres", "duckdb")
        assert helper._process.returncode is None
    finally:
        await translator.close()
    await translator.close()


async def test_what_is_nested_deeply_keeps_the_loop_no_longer_than_the_helper() -> None:
    nested = f"select {'f(array[' * 40}1{'])' * 40}"
    translator = Translator(deadline=0.5)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    neighbour = asyncio.create_task(others())
    try:
        done = await translator.translate(nested, "postgres", "duckdb")
    finally:
        neighbour.cancel()
        await translator.close()
    assert (done.sql, done.reason) == (nested, TranslationReason.TRANSPILE_ERROR)
    assert turns > 5


@pytest.mark.parametrize("dialect", ["", "postgres", "mysql", "trino", "duckdb"])
def test_how_deep_a_statement_is(dialect: str) -> None:
    assert not is_deeper("select f(a[1], {'x': (2)}), (3)", dialect, 3)
    assert is_deeper("select f(a[1], {'x': (2)}), (3)", dialect, 2)
    assert not is_deeper("select (1), (2), (3), '(((((' -- ((((", dialect, 1)
    assert is_deeper(f"select '{')' * 80}', {'f(array[' * 20}", dialect, 30)
    assert is_deeper("f(')]', array[" * 20, dialect, 30)


async def test_very_long_statements_have_a_helper_of_their_own() -> None:
    translator = Translator(deadline=60)
    try:
        done = await translator.translate(f"select '{'x' * LONG_CHARS}' as x", "postgres", "trino")
        assert done.status is TranslationStatus.YES
        assert set(translator._helpers) == {"long"}
    finally:
        await translator.close()


def test_warming_up_twice_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("mysql", "trino"), ("trino", "trino"), ("", "duckdb")]
    Translator().warm(pairs)
    monkeypatch.setattr("queryflux.sql.transpile.transpile", None)
    Translator().warm(pairs)


async def test_a_deadline_forwards_or_refuses_and_a_new_helper_follows() -> None:
    helper = TranspileHelper()
    hasty = Translator(deadline=0.0001, helper=lambda: helper)
    done = await hasty.translate(BIG, "postgres", "trino")
    assert (done.sql, done.reason) == (BIG, TranslationReason.TRANSPILE_ERROR)
    with pytest.raises(SqlSyntaxError):
        await Translator(TranslationMode.STRICT, deadline=0.0001, helper=lambda: helper).translate(
            BIG, "postgres", "trino"
        )
    assert (await helper.transpile("select 1", "postgres", "trino", False, 60)).sql
    await helper.close()


async def test_a_crash_is_survived() -> None:
    helper = TranspileHelper()
    assert (await helper.transpile("select 1", "postgres", "trino", False, 60)).sql
    assert helper._process is not None
    helper._process.kill()
    with pytest.raises(HelperFailed):
        await helper.transpile("select 1", "postgres", "trino", False, 60)
    assert (await helper.transpile("select 1", "postgres", "trino", False, 60)).sql
    await helper.close()


async def test_a_cancelled_wait_does_not_mix_up_answers() -> None:
    helper = TranspileHelper()
    waiting = asyncio.create_task(helper.transpile(BIG, "postgres", "trino", False, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    outcome = await helper.transpile("select 2 as x", "postgres", "trino", False, 60)
    assert outcome.sql == "SELECT 2 AS x"
    await helper.close()


async def test_the_helper_ends_though_nobody_is_left_to_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.sql.helper.GRACE_SECS", 0.3)
    huge = BIG.replace("3999", ", ".join(map(str, range(300_000))))
    helper = TranspileHelper()
    asking = asyncio.create_task(helper.transpile(huge, "postgres", "trino", False, 2))
    async with asyncio.timeout(10):
        while (process := helper._process) is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    monkeypatch.setattr(helper, "_kill", _nothing)
    with pytest.raises(HelperFailed):
        await asking
    async with asyncio.timeout(20):
        assert await process.wait() == -signal.SIGALRM


async def _nothing() -> None:
    pass


def test_the_helper_closes_what_its_parent_leaves_open() -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen([sys.executable, *COMMAND], stdin=-1, stdout=-1, pass_fds=(write_end,))
    os.close(write_end)
    try:
        assert select.select([read_end], [], [], 20)[0]
        assert os.read(read_end, 1) == b""  # it lives, and has closed its copy
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
        os.close(read_end)
