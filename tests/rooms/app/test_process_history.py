"""The history of a process: newest in memory, all of them in a store, and what readers see of both."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from queryflux.app.history import ProcessHistory, digests_of, preview_of, snapshots_of
from queryflux.config.process import HistoryConfig, ProcessConfig
from queryflux.history.batches import Outcome
from queryflux.history.port import HistoryFilter
from queryflux.history.record import KEPT_LENGTH
from queryflux.history.redaction import Redaction
from queryflux.history.stored import Digests, StoredQuery
from queryflux.history.upkeep import alone
from queryflux.model.errors import StoreUnavailable
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import START, ManualClock, settle
from tests.kit.history_stores import open_durable
from tests.kit.records import record

EVERYTHING = HistoryFilter()


def a_history(clock: ManualClock, **process: object) -> ProcessHistory:
    config = ProcessConfig(history=HistoryConfig(max_records=2), **process)  # type: ignore[arg-type]
    history = ProcessHistory(config, "qf-a", clock, PrometheusMetrics())
    history.keep_to(Redaction.NONE)
    return history


async def seen(history: ProcessHistory) -> list[str]:
    return [row.proxy_query_id for row in await history.reader.query(EVERYTHING, 100)]


async def test_without_a_store_readers_see_the_newest() -> None:
    history = a_history(ManualClock())
    for number in range(3):
        history.add(record(number, source_dialect="mysql", sql_text=f'select "{number}"'))
    assert await seen(history) == ["q2", "q1"]
    row = await history.reader.get("q2")
    assert row is not None
    assert (row.digest_text, row.source_dialect, row.instance_id) == ("select ?", "MySql", "qf-a")
    await history.close()


async def test_with_a_store_readers_see_all_of_them_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    late = [record(5)]
    async with open_durable("sqlite", tmp_path) as kept:
        store = kept.store
        history = a_history(clock)
        history.before_reading(lambda: history.add(late.pop()) if late else None)
        history.keep_in(store, alone, lambda: None)
        for number in range(5):
            history.add(record(number))
        assert await seen(history) == ["q5", "q4", "q3", "q2", "q1", "q0"]
        assert [kept.proxy_query_id for kept in history.memory.newest()] == ["q5", "q4"]
        history.add(record(6))
        await history.close(5)
        assert await store.get("q6") is not None
        assert clock.pending == 0


async def test_old_records_go_when_the_configuration_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_durable("sqlite", tmp_path) as kept:
        store = kept.store
        history = a_history(clock, query_history_retention_days=1)
        history.keep_in(store, alone, lambda: None)
        history.add(record(0))
        history.add(record(1, created_at=START + 10 * 86_400))
        assert len(await seen(history)) == 2
        async with asyncio.timeout(20):
            while await store.get("q0") is not None:
                await clock.advance(3600)
        assert await seen(history) == ["q1"]
        await history.close(5)


@pytest.mark.parametrize(
    ("text", "translated", "wanted"),
    [
        ("select 'a'", None, ("select ?", None)),
        ("select 'a", None, (None, None)),
        ("select 'a'", "SELECT 'a'", ("select ?", "select ?")),
        ("select " + "'a', " * KEPT_LENGTH, None, ("select ...", None)),
    ],
)
def test_digests_of_a_record(
    text: str, translated: str | None, wanted: tuple[str | None, str | None]
) -> None:
    given = record(1, sql_text=text[:KEPT_LENGTH], translated_sql=translated, source_dialect="trino")
    digests: Digests = digests_of(given)
    assert (digests.digest_text, digests.translated_digest_text) == wanted
    assert (digests.query_parameterized_hash is None) == (wanted[0] is None)
    assert digests.query_hash is not None


def test_there_are_no_snapshots_before_there_is_a_configuration() -> None:
    assert snapshots_of(None, {}, START) == []


# What records may say.

SECRET = {
    "source_dialect": "trino",
    "sql_text": "SELECT 'secret'",
    "error_message": "no column 'secret'",
    "trace": lambda: {"routers": [{"detail": "'secret'"}]},
}


async def shown(history: ProcessHistory) -> list[str | None]:
    return [row.sql_text for row in await history.reader.query(EVERYTHING, 100)]


async def test_before_a_configuration_says_so_nothing_is_told() -> None:
    history = ProcessHistory(ProcessConfig(), "qf-a", ManualClock(), PrometheusMetrics())
    history.add(record(1, **SECRET))
    assert await shown(history) == [None]
    assert history.told(record(1, error_message="secret")) is None


@pytest.mark.parametrize(("policy", "text"), [("maskLiterals", "select ?"), ("metadata", None)])
async def test_records_are_redacted_before_they_are_kept_anywhere(
    tmp_path: Path, policy: str, text: str | None
) -> None:
    async with open_durable("sqlite", tmp_path) as kept:
        history = a_history(ManualClock())
        history.keep_to(Redaction(policy))
        history.keep_in(kept.store, alone, lambda: None)
        history.add(record(1, **SECRET))
        assert len(history.memory) == 0
        assert await shown(history) == [text]
        assert history.told(record(1, error_message="no 'secret'")) == (None if text is None else "no ?")
        await history.close(5)
        assert kept.rows("SELECT sql_text, query_hash FROM query_records") == [(text, None)]
        digests = kept.rows("SELECT digest_text FROM query_digest_stats")
        assert digests == ([] if text is None else [("select ?",)])
        everything = str(kept.rows("SELECT * FROM query_records")) + str(digests)
        assert "secret" not in everything.lower()


async def test_what_is_in_memory_is_redacted_when_the_policy_tightens_and_stays_so() -> None:
    history = a_history(ManualClock())
    history.add(record(1, **SECRET))
    assert await shown(history) == ["SELECT 'secret'"]
    history.keep_to(Redaction.MASK_LITERALS)
    history.add(record(2, **SECRET))
    assert "SELECT 'secret'" not in await shown(history)
    await settle()
    assert await shown(history) == ["select ?", "select ?"]
    assert await seen_by(history, search="secret") == []
    history.keep_to(Redaction.NONE)
    history.add(record(3, **SECRET))
    assert await shown(history) == ["SELECT 'secret'", "select ?", "select ?"]
    history.keep_to(Redaction.METADATA)
    await settle()
    assert await shown(history) == [None, None]
    await history.close()


async def seen_by(history: ProcessHistory, **wanted: str) -> list[str]:
    return [row.proxy_query_id for row in await history.reader.query(HistoryFilter(**wanted), 100)]


async def test_what_waits_is_redacted_when_the_policy_tightens_however_it_changes_then() -> None:
    sent: list[StoredQuery] = []
    away = True

    async def send(records: Sequence[StoredQuery]) -> Outcome:
        if away:
            raise StoreUnavailable("away")
        sent.extend(records)
        return Outcome(len(records), 0, 0)

    clock = ManualClock()
    history = a_history(clock)
    history.send_to(send)
    for number in range(300):
        history.add(record(number, **SECRET))
    await settle()
    history.keep_to(Redaction.MASK_LITERALS)
    history.keep_to(Redaction.NONE)
    history.add(record(300, **SECRET))
    history.keep_to(Redaction.METADATA)
    history.keep_to(Redaction.MASK_LITERALS)
    await settle(100)
    history.add(record(301, **SECRET))
    away = False
    await clock.advance(60)
    assert [one.proxy_query_id for one in sent] == [f"q{number}" for number in range(302)]
    assert [one.sql_text for one in sent] == [None] * 301 + ["select ?"]
    assert history.buffer is not None
    assert history.buffer.delivery == (302, 0, 0, 0, "")
    await history.close()


async def test_a_worker_keeps_nothing_in_memory_and_a_record_without_a_form_is_counted() -> None:
    sent: list[str] = []

    async def send(records: Sequence[StoredQuery]) -> Outcome:
        sent.extend(one.proxy_query_id for one in records)
        return Outcome(len(records), 0, 0)

    def no_trace() -> object:
        raise RuntimeError("no trace")

    history = a_history(ManualClock(), role="worker")
    history.send_to(send)
    history.keep_to(Redaction.MASK_LITERALS)
    history.add(record(1, trace=no_trace))
    history.add(record(2))
    history.keep_to(Redaction.NONE)
    history.add(record(3))
    await history.close(5)
    assert sent == ["q2", "q3"]
    assert await seen(history) == []
    assert history.buffer is not None
    assert history.buffer.delivery == (2, 0, 1, 0, "")


def test_a_running_statement_is_shown_as_the_policy_says() -> None:
    text = "SELECT 'secret' FROM t"
    assert preview_of(text, "trino", 8, Redaction.NONE) == "SELECT '"
    assert preview_of(text, "trino", 100, Redaction.MASK_LITERALS) == "SELECT ? FROM t"
    assert preview_of("it's secret", "trino", 100, Redaction.MASK_LITERALS) == ""
    assert preview_of("'" + "x" * KEPT_LENGTH, "trino", 100, Redaction.MASK_LITERALS) == ""
    assert preview_of(text, "trino", 100, Redaction.METADATA) == ""
