"""What an ended query leaves: labels stay few, texts stay short, and whoever looks sees it."""

import asyncio
import threading
from dataclasses import replace

import pytest

from queryflux.history.record import KEPT_LENGTH, QueryRecord
from queryflux.history.redaction import Redaction
from queryflux.model.errors import EngineError
from queryflux.pipeline.ending import KEEP_SECS, MOST_KEPT, MOST_TAGS
from tests.kit.pipelines import Bench, bench, statement
from tests.kit.scripted import ScriptedEngine, Step


async def test_tags_that_clients_invent_do_not_fill_the_metrics() -> None:
    table = bench(ScriptedEngine())
    for number in range(MOST_TAGS + 50):
        talk = table.talk(tags={"trace": str(number)})
        query = talk.submit(statement())
        await query.start()
        await query.close()
        await talk.close()
    family = [line for line in table.metrics.render().decode().splitlines() if "query_tags_total{" in line]
    assert len(family) == MOST_TAGS + 1
    assert (
        table.metric(
            "queryflux_query_tags_total", tag_key="(other)", tag_value="(other)", cluster_group="main"
        )
        == 50
    )


async def test_tags_of_the_deny_list_are_not_labels() -> None:
    table = bench(ScriptedEngine())
    assert table.pipeline.active is not None
    table.pipeline.active.untagged_metrics = frozenset({"secret"})
    query = table.talk(tags={"secret": "x", "team": "bi"}).submit(statement())
    await query.start()
    await query.close()
    text = table.metrics.render().decode()
    assert 'tag_key="team"' in text
    assert 'tag_key="secret"' not in text
    assert table.records[0].query_tags == {"secret": "x", "team": "bi"}


async def test_a_large_statement_is_kept_in_part() -> None:
    table = bench(ScriptedEngine())
    query = table.talk().submit(statement("SELECT '" + "x" * (KEPT_LENGTH * 2) + "'"))
    await query.start()
    await query.close()
    assert len(table.records[0].sql_text) == KEPT_LENGTH


async def ended(table: Bench, count: int = 1) -> None:
    """So many queries that ended in the lane."""
    talk = table.talk()
    for number in range(count):
        query = talk.submit(statement(f"SELECT {number}"))
        await query.start()
        await query.next()
        assert await query.next() is None


def counted(table: Bench) -> float:
    return table.metric(
        "queryflux_queries_total",
        engine_type="scripted",
        cluster_group="main",
        status="Success",
        protocol="PostgresWire",
    )


@pytest.mark.parametrize("look", [lambda table: len(table.history), lambda table: table.history.stored])
async def test_whoever_looks_at_history_sees_a_query_at_once(look: object) -> None:
    table = bench(ScriptedEngine())
    await ended(table, 3)
    assert len(table.pipeline.recorder.kept) == 3
    assert look(table) == 3  # type: ignore[operator]
    assert [record.sql_text for record in table.records] == ["SELECT 0", "SELECT 1", "SELECT 2"]


async def test_whoever_looks_at_metrics_or_log_sees_a_query_at_once() -> None:
    table = bench(ScriptedEngine())
    await ended(table, 2)
    assert counted(table) == 2
    await ended(table)
    assert len(table.log.lines) == 3
    assert counted(table) == 3
    assert len(table.records) == 3, "and each of them once"


async def test_with_nobody_looking_it_is_written_down_a_moment_later() -> None:
    table = bench(ScriptedEngine())
    await ended(table)
    assert len(table.pipeline.recorder.kept) == 1
    await table.clock.advance(KEEP_SECS)
    assert not table.pipeline.recorder.kept
    await ended(table)
    await table.clock.advance(KEEP_SECS)
    assert not table.pipeline.recorder.kept


async def test_it_is_written_down_when_the_next_query_waits_for_its_engine() -> None:
    table = bench(ScriptedEngine())
    await ended(table)
    query = table.talk().submit(statement())
    await query.start()
    assert len(table.pipeline.recorder.kept) == 1, "not before the engine has been asked"
    await table.clock.advance(0)
    assert not table.pipeline.recorder.kept
    await query.close()


async def test_what_is_kept_is_bounded() -> None:
    table = bench(ScriptedEngine())
    most = 0
    for _ in range(MOST_KEPT * 3):
        await ended(table)
        most = max(most, len(table.pipeline.recorder.kept))
    assert most < MOST_KEPT


async def test_the_end_of_the_process_writes_everything_down() -> None:
    table = bench(ScriptedEngine())
    await ended(table)
    await table.pipeline.close()
    assert not table.pipeline.recorder.kept


async def test_the_end_of_the_process_says_what_ran_and_what_waited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(gate=asyncio.Event())), member_limit=1)
    asked = []
    for _ in range(3):
        asked.append(asyncio.ensure_future(table.talk().submit(statement()).start()))
        await asyncio.sleep(0.02)
    await table.pipeline.close()
    await asyncio.gather(*asked, return_exceptions=True)
    said = [record.getMessage() for record in caplog.records if "ending queries" in record.message]
    assert said == ["ending queries: 1 that run, 2 that wait"]


async def test_an_ending_out_of_the_ordinary_is_written_after_those_before_it() -> None:
    engine = ScriptedEngine()
    table = bench(engine)
    await ended(table)
    engine.script = lambda request: Step(error=ValueError("bug"))
    query = table.talk().submit(statement("SELECT 'later'"))
    with pytest.raises(Exception, match="internal error"):
        await query.start()
    assert [record.sql_text for record in table.records] == ["SELECT 0", "SELECT 'later'"]


async def test_a_record_exists_only_when_the_slot_is_back() -> None:
    table = bench(ScriptedEngine(), limit=1)
    taken: list[int] = []
    add = table.history.add

    def watched(record: QueryRecord) -> None:
        taken.append(table.members["scripted"].running)
        add(record)

    table.history.add = watched  # type: ignore[method-assign]
    await ended(table, 2)
    assert len(table.records) == 2
    assert taken == [0, 0]


async def test_who_looks_while_another_thread_writes_down_waits_for_it() -> None:
    table = bench(ScriptedEngine())
    await ended(table)
    adding, go = threading.Event(), threading.Event()
    add = table.history.add

    def slow(record: QueryRecord) -> None:
        adding.set()
        go.wait()
        add(record)

    table.history.add = slow  # type: ignore[method-assign]
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(len(table.history))) for _ in range(2)]
    threads[0].start()
    adding.wait()
    threads[1].start()
    threads[1].join(0.05)
    assert seen == []
    go.set()
    for thread in threads:
        thread.join()
    assert seen == [1, 1]
    assert counted(table) == 1


async def test_the_log_says_of_an_error_what_history_may_say(monkeypatch: pytest.MonkeyPatch) -> None:
    table = bench(ScriptedEngine(script=lambda request: Step(error=EngineError("no 'secret'"))))
    monkeypatch.setattr(table.history, "told", lambda message: message and "no ?")
    query = table.talk().submit(statement())
    with pytest.raises(EngineError):
        await query.start()
    await query.close()
    (said,) = table.log.lines
    assert (said.error, said.message) == ("ENGINE_ERROR", "no ?")


async def test_a_query_that_ended_before_another_policy_is_written_down_under_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = bench(ScriptedEngine())
    seen: list[tuple[Redaction, int]] = []
    monkeypatch.setattr(
        table.history, "keep_to", lambda policy: seen.append((policy, len(table.pipeline.recorder.kept)))
    )
    await ended(table)
    assert len(table.pipeline.recorder.kept) == 1
    assert table.pipeline.active is not None
    table.pipeline.activate(replace(table.pipeline.active, redaction=Redaction.METADATA))
    assert seen == [(Redaction.METADATA, 0)]
    assert len(table.records) == 1
