"""What every store of worker rows holds."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from queryflux.fleet.registry import Heartbeat, Phase, RowState, WorkerRow
from queryflux.persistence import memory_registry
from queryflux.persistence.postgres import registry as postgres_registry
from tests.kit.databases import DATABASES
from tests.kit.registry_stores import KINDS, Opened, open_registry
from tests.rooms.fleet.test_registry import FULL

WORKER = Heartbeat(instance_id="w-1", worker_name="w", version="1", number=1)


@pytest.fixture(params=KINDS)
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Opened]:
    async with open_registry(request.param) as opened:
        yield opened


async def only(opened: Opened) -> WorkerRow:
    (row,) = await opened.store.rows()
    return row


async def test_a_report_comes_back_as_it_was_sent(opened: Opened) -> None:
    await opened.store.register(FULL)
    row = await only(opened)
    assert row.report == FULL
    assert 0 <= row.seen_secs <= 5
    assert row.registered_secs == pytest.approx(row.seen_secs, abs=1)


async def test_a_heartbeat_brings_the_row_up_to_date(opened: Opened) -> None:
    await opened.store.register(WORKER)
    await opened.wait(100)
    report = replace(FULL, instance_id="w-1", number=2)
    assert await opened.store.heartbeat(report)
    row = await only(opened)
    assert row.report == report
    assert row.seen_secs < 5
    assert row.registered_secs == pytest.approx(100, abs=5)


async def test_a_heartbeat_of_an_instance_without_a_row_makes_none(opened: Opened) -> None:
    assert not await opened.store.heartbeat(WORKER)
    assert await opened.store.rows() == []


async def test_a_report_that_comes_late_changes_nothing(opened: Opened) -> None:
    await opened.store.register(WORKER)
    last = replace(WORKER, number=5, phase=Phase.STOPPED.value)
    assert await opened.store.heartbeat(last)
    await opened.wait(10)
    assert await opened.store.heartbeat(replace(WORKER, number=4))
    assert await opened.store.heartbeat(replace(WORKER, number=5))
    row = await only(opened)
    assert (row.report, row.state) == (last, RowState.OFFLINE)
    assert row.seen_secs == pytest.approx(10, abs=5)


async def test_an_instance_that_registers_again_begins_anew(opened: Opened) -> None:
    await opened.store.register(replace(WORKER, number=9, phase=Phase.STOPPED.value))
    await opened.wait(100)
    await opened.store.register(WORKER)  # its id is in its file, and it has started again
    row = await only(opened)
    assert (row.report, row.state) == (WORKER, RowState.ONLINE)
    assert row.registered_secs < 5
    assert await opened.store.heartbeat(replace(WORKER, number=2))
    assert (await only(opened)).report.number == 2


async def test_one_start_is_found_among_all(opened: Opened) -> None:
    assert await opened.store.row("w-1") is None
    await opened.store.register(WORKER)
    await opened.store.register(replace(FULL, instance_id="w-2"))
    await opened.wait(10)
    for instance in ("w-1", "w-2"):
        row = await opened.store.row(instance)
        assert row is not None
        assert (row.report.instance_id, row.state) == (instance, RowState.ONLINE)
        assert row.seen_secs == pytest.approx(10, abs=5)


async def test_rows_come_by_name_and_the_latest_start_first(opened: Opened) -> None:
    for instance, name in (("1", "b"), ("2", "a"), ("3", "b"), ("4", "B"), ("5", "é")):
        await opened.store.register(Heartbeat(instance_id=instance, worker_name=name))
        await opened.wait(1)
    assert [row.report.instance_id for row in await opened.store.rows()] == ["4", "2", "3", "1", "5"]


async def test_rows_that_are_silent_for_so_long_are_removed(opened: Opened) -> None:
    await opened.store.register(WORKER)
    await opened.wait(50)
    await opened.store.register(replace(WORKER, instance_id="w-2"))
    await opened.wait(50)
    assert await opened.store.remove(101) == 0
    assert await opened.store.remove(99) == 1
    assert (await only(opened)).report.instance_id == "w-2"
    assert not await opened.store.heartbeat(replace(WORKER, number=2))


async def test_of_a_worker_that_dies_as_often_as_it_starts_the_latest_starts_are_kept(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in (memory_registry, postgres_registry):
        monkeypatch.setattr(store, "MOST_STARTS", 3)
    for number in range(6):
        await opened.store.register(replace(WORKER, instance_id=f"w-{number}"))
        await opened.store.register(replace(WORKER, instance_id=f"v-{number}", worker_name=f"v{number}"))
        await opened.wait(1)
    await opened.store.register(replace(WORKER, instance_id="slow", heartbeat_interval_secs=1e11))
    assert len(await opened.store.rows()) == 13, "none of them is silent yet"
    await opened.wait(40)
    await opened.store.register(replace(WORKER, instance_id="w-6"))
    names = [row.report.instance_id for row in await opened.store.rows()]
    assert sorted(names) == sorted(
        ["v-0", "v-1", "v-2", "v-3", "v-4", "v-5", "w-6", "slow", "w-5", "w-4", "w-3"]
    )


async def test_silence_is_counted_by_the_clock_of_the_store(opened: Opened) -> None:
    await opened.store.register(WORKER)
    await opened.wait(29)
    assert (await only(opened)).state is RowState.ONLINE
    await opened.wait(2)
    assert (await only(opened)).state is RowState.OFFLINE


# In a database anybody may have written.


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize("status", ["{}", "[]", '{"sync": 1}', '{"phase": "?", "more": {}}'])
async def test_rows_of_other_versions_are_shown(kind: str, status: str) -> None:
    async with open_registry(kind) as opened:
        assert opened.database is not None
        opened.database.rows(
            "INSERT INTO worker_registry "
            "(instance_id, worker_name, active_revision, heartbeat_interval_secs, status) "
            f"VALUES ('i', 'w', 'ff', 60, '{status}')"
        )
        row = await only(opened)
        assert (row.report.worker_name, row.report.active_revision, row.silence_secs) == ("w", "ff", 180)
        assert bool(row.report.warnings) is (status in {"[]", '{"sync": 1}'})


@pytest.mark.parametrize("kind", DATABASES)
async def test_the_columns_say_what_the_report_says(kind: str) -> None:
    async with open_registry(kind) as opened:
        assert opened.database is not None
        await opened.store.register(WORKER)
        await opened.store.heartbeat(replace(FULL, instance_id="w-1", number=2))
        assert opened.database.rows(
            "SELECT worker_name, advertise_address, version, active_revision, heartbeat_interval_secs, "
            "status ->> 'configSource' FROM worker_registry"
        ) == [("a", "10.0.0.1:8080", "1.2", "00ff00ff00ff00ff", 5.0, "peer")]
