"""Migrations on real servers: each once, whole or not at all, one process at a time."""

import asyncio
import hashlib
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queryflux.model.errors import SchemaRefused, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.persistence.postgres import migrate
from queryflux.persistence.postgres.migrate import (
    Migration,
    bring_up_to_date,
    load_migrations,
    new_epoch,
    read_plan,
    require_up_to_date,
)
from queryflux.runtime.clock import SystemClock
from tests.kit.clock import ManualClock
from tests.kit.databases import DATABASES, Database, database, new_database

__all__ = ["database"]

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"


@pytest.fixture(params=DATABASES)
def empty(request: pytest.FixtureRequest) -> Iterator[Database]:
    with new_database(request.param, last=0) as made:
        yield made


def step(version: int, sql: str, compatible: int = 1) -> Migration:
    return Migration(version, f"step_{version}", compatible, sql)


def ledger(database: Database) -> list[int]:
    return [row[0] for row in database.rows("SELECT version FROM queryflux_migrations ORDER BY applied_at")]


async def test_an_empty_database_gets_everything_and_the_ledger_says_so(empty: Database) -> None:
    ours = load_migrations()
    async with empty.pools() as pools:
        assert await bring_up_to_date(pools, CLOCK) == list(ours)
        assert await bring_up_to_date(pools, CLOCK) == []
        found = await read_plan(pools)
    assert ledger(empty) == [one.version for one in ours]
    assert [(row.name, row.checksum, row.lowest_compatible) for row in found.applied] == [
        (one.name, hashlib.sha256(one.sql.encode()).hexdigest(), one.lowest_compatible) for one in ours
    ]
    assert (found.pending, found.newer) == ((), ())


async def test_processes_that_start_together_apply_each_migration_once(empty: Database) -> None:
    async def start() -> list[Migration]:
        async with empty.pools() as pools:
            return await bring_up_to_date(pools, CLOCK)

    done = await asyncio.gather(*(start() for _ in range(6)))
    versions = sorted(one.version for each in done for one in each)
    assert versions == [one.version for one in load_migrations()] == ledger(empty)


async def test_tables_that_another_process_makes_while_we_look_are_ours(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = migrate.FOREIGN.replace("FROM unnest", "FROM pg_advisory_xact_lock(7), unnest")
    monkeypatch.setattr(migrate, "FOREIGN", looking)
    async with empty.pools() as slow:
        with empty.server.admin(empty.name) as holder, holder.transaction():
            holder.execute("SELECT pg_advisory_xact_lock(7)")
            found = asyncio.ensure_future(read_plan(slow))
            async with asyncio.timeout(10):
                while not empty.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            monkeypatch.undo()
            async with empty.pools() as quick:
                await bring_up_to_date(quick, CLOCK)
            assert not found.done()
        assert (await found).pending == ()


async def test_each_migration_has_the_database_to_itself(empty: Database) -> None:
    """Read, sleep and write: two at a time would lose one."""
    steps = [step(1, "CREATE TABLE seen (n int); INSERT INTO seen VALUES (0)")]
    count = "UPDATE seen SET n = (SELECT n FROM seen, pg_sleep(0.05)) + 1"
    steps += [step(version, count) for version in range(2, 6)]
    async with empty.pools() as one, empty.pools() as other:
        await asyncio.gather(bring_up_to_date(one, CLOCK, steps), bring_up_to_date(other, CLOCK, steps))
    assert empty.rows("SELECT n FROM seen") == [(4,)]


async def test_a_migration_that_fails_half_way_leaves_nothing(empty: Database) -> None:
    steps = [
        step(1, "CREATE TABLE first_one (n int)"),
        step(
            2, "CREATE TABLE half (n int); INSERT INTO half VALUES (1 / 0); CREATE TABLE other_half (n int)"
        ),
    ]
    async with empty.pools() as pools:
        with pytest.raises(SchemaRefused, match=r"V2__step_2\.sql failed, .*division by zero"):
            await bring_up_to_date(pools, CLOCK, steps)
        assert empty.rows(TABLES) == [("first_one",), ("queryflux_migrations",)]
        assert ledger(empty) == [1]
        mended = [steps[0], step(2, "CREATE TABLE half (n int)")]
        assert await bring_up_to_date(pools, CLOCK, mended) == mended[1:]


async def test_a_process_that_dies_in_a_migration_leaves_nothing(empty: Database) -> None:
    steps = [step(1, "CREATE TABLE half (n int); SELECT pg_sleep(60)")]
    async with empty.pools() as pools:
        dying = asyncio.ensure_future(bring_up_to_date(pools, CLOCK, steps))
        killed: list[tuple[bool]] = []
        async with asyncio.timeout(10):
            while not killed:
                killed = empty.rows(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE query LIKE '%pg_sleep(60)' AND wait_event = 'PgSleep' AND pid <> pg_backend_pid()"
                )
                await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailable):
            await dying
        assert empty.rows(TABLES) == []
        assert await bring_up_to_date(pools, CLOCK, [step(1, "CREATE TABLE whole (n int)")])
    assert empty.rows(TABLES) == [("queryflux_migrations",), ("whole",)]


async def test_an_edited_migration_is_refused_before_anything_is_done(database: Database) -> None:
    database.rows("UPDATE queryflux_migrations SET checksum = 'x' WHERE version = 7")
    later = (*load_migrations(), step(900, "CREATE TABLE never (n int)"))
    async with database.pools() as pools:
        with pytest.raises(SchemaRefused, match=r"V7__tags_and_agents\.sql"):
            await bring_up_to_date(pools, CLOCK, later)
        with pytest.raises(SchemaRefused, match=r"V7__tags_and_agents\.sql"):
            await require_up_to_date(pools)
    assert ("never",) not in database.rows(TABLES)


async def test_a_newer_database_is_used_with_a_warning_or_refused(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    newest = load_migrations()[-1].version
    row = migrate.RECORD.replace("$1, $2, $3, $4", "%s, 'later', 'x', %s")
    database.rows(row, 901, newest)
    async with database.pools() as pools:
        with caplog.at_level(logging.WARNING):
            assert await bring_up_to_date(pools, CLOCK) == []
            await require_up_to_date(pools)
        assert [record.message.count("V901__later.sql") for record in caplog.records] == [1, 1]
        database.rows(row, 902, newest + 1)
        for call in (bring_up_to_date(pools, CLOCK), require_up_to_date(pools)):
            with pytest.raises(SchemaRefused, match=r"V902__later\.sql"):
                await call


async def test_a_process_that_may_not_migrate_says_what_to_run(empty: Database) -> None:
    async with empty.pools() as pools:
        with pytest.raises(SchemaRefused, match=r"V1__.*V2__") as caught:
            await require_up_to_date(pools)
        assert caught.value.hint == "run queryflux migrate -c FILE"
        assert empty.rows(TABLES) == []


async def test_tables_that_something_else_made_are_left_alone(empty: Database) -> None:
    empty.rows("CREATE TABLE cluster_configs (id int)")
    async with empty.pools() as pools:
        with pytest.raises(SchemaRefused, match="cluster_configs"):
            await bring_up_to_date(pools, CLOCK)
    assert empty.rows(TABLES) == [("cluster_configs",)]


async def test_another_schema_of_the_same_database_is_a_database_of_its_own(database: Database) -> None:
    database.rows("CREATE SCHEMA elsewhere")
    async with database.pools(url=Secret(f"{database.dsn}&search_path=elsewhere")) as pools:
        assert await bring_up_to_date(pools, CLOCK) == list(load_migrations())
        await new_epoch(pools)
    epochs = database.rows(
        "SELECT epoch FROM queryflux_meta UNION SELECT epoch FROM elsewhere.queryflux_meta"
    )
    assert len(epochs) == 2


async def test_a_schema_that_is_missing_is_told(empty: Database) -> None:
    async with empty.pools(url=Secret(f"{empty.dsn}&search_path=nowhere")) as pools:
        for call in (bring_up_to_date(pools, ManualClock()), require_up_to_date(pools)):
            with pytest.raises(SchemaRefused, match="has no schema for the tables") as caught:
                async with asyncio.timeout(10):
                    await call
            assert "search_path" in caught.value.hint


async def test_a_table_in_use_is_waited_for_without_holding_up_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "SETTINGS", migrate.SETTINGS.replace("5s", "50ms"))
    later = (*load_migrations(), step(900, "ALTER TABLE proxy_settings ADD COLUMN later int"))
    clock = ManualClock()
    with database.server.admin(database.name) as reader:
        async with database.pools() as pools:
            with reader.transaction():
                reader.execute("SELECT count(*) FROM proxy_settings")
                migrating = asyncio.ensure_future(bring_up_to_date(pools, clock, later))
                for _ in range(2):
                    async with asyncio.timeout(10):
                        while not clock.pending:  # noqa: ASYNC110 - the server's wait has no event
                            await asyncio.sleep(0.01)
                    assert await asyncio.to_thread(database.rows, "SELECT count(*) FROM proxy_settings")
                    await clock.advance(migrate.RETRY_SECS)
            async with asyncio.timeout(10):
                while not migrating.done():
                    await clock.advance(migrate.RETRY_SECS)
                    await asyncio.sleep(0.01)
            assert [one.version for one in migrating.result()] == [900]


async def test_waiting_for_another_process_has_an_end(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    later = (*load_migrations(), step(900, "SELECT 1"))
    clock = ManualClock()
    with database.server.admin(database.name) as other, other.transaction():
        assert other.execute(migrate.LOCK.encode()).fetchone() == (True,)
        async with database.pools() as pools:
            waiting = asyncio.ensure_future(bring_up_to_date(pools, clock, later))
            async with asyncio.timeout(20):
                while not waiting.done():
                    if clock.pending:
                        await clock.advance(migrate.PATIENCE_SECS / 3)
                    await asyncio.sleep(0.01)
            with pytest.raises(SchemaRefused, match="within 600 s: another process migrates"):
                await waiting
    assert [record.message for record in caplog.records] == ["migrations wait: another process migrates"]


async def test_a_user_who_may_not_make_tables_is_told_what_to_grant(empty: Database) -> None:
    empty.rows("DO $$ BEGIN CREATE ROLE qf_limited; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    empty.rows("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    async with empty.pools(url=Secret(f"{empty.dsn}&role=qf_limited")) as pools:
        with pytest.raises(SchemaRefused, match="may not make or change tables") as caught:
            await bring_up_to_date(pools, CLOCK)
        assert "GRANT CREATE" in caught.value.hint


async def test_a_user_with_the_documented_rights_can_do_everything(empty: Database) -> None:
    """The statements of docs/persistence.md: an owner who migrates, and a user who only reads and writes."""
    page = (ROOT / "docs" / "persistence.md").read_text()
    grants = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)[0]
    assert "GRANT" in grants
    for role in ("queryflux_owner", "queryflux"):
        empty.rows(f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    empty.rows(
        re.sub(r"CREATE ROLE.*?;|CREATE DATABASE.*?;", "", grants).replace(
            "DATABASE queryflux", f"DATABASE {empty.name}"
        )
    )
    async with empty.pools(url=Secret(f"{empty.dsn}&role=queryflux_owner")) as pools:
        await bring_up_to_date(pools, CLOCK)
    async with empty.pools(url=Secret(f"{empty.dsn}&role=queryflux")) as pools:
        await require_up_to_date(pools)
        await bring_up_to_date(pools, CLOCK)
        async with pools.admin.connection() as connection:
            await connection.execute("UPDATE config_revision SET revision = revision + 1")
            await connection.execute("INSERT INTO cluster_configs (name, engine_key) VALUES ('c', 'trino')")
            assert await connection.fetchval("SELECT queryflux_capacity_try_acquire('c', 'i', 'q', 1)")
            await connection.execute("DELETE FROM cluster_capacity_leases")


async def test_a_new_epoch_makes_itself_known(database: Database) -> None:
    state = "SELECT epoch::text, revision FROM queryflux_meta, config_revision"
    [(before, revision)] = database.rows(state)
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with database.pools() as pools, pools.listen() as listener:
        await listener.add_listener("config_revision_changed", lambda *notice: heard.put_nowait(notice[-1]))
        made = await new_epoch(pools)
        async with asyncio.timeout(5):
            assert await heard.get() == str(revision + 1)
    assert made != before
    assert database.rows(state) == [(made, revision + 1)]


async def test_no_epoch_is_made_in_a_database_without_tables(empty: Database) -> None:
    async with empty.pools() as pools:
        with pytest.raises(SchemaRefused, match="not up to date"):
            await new_epoch(pools)


def test_databases_that_were_made_apart_have_epochs_of_their_own(empty: Database) -> None:
    with new_database(DATABASES[-1], last=10_000) as other:
        empty.migrate()
        epoch = "SELECT epoch FROM queryflux_meta"
        assert empty.rows(epoch) != other.rows(epoch)


def queryflux(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "queryflux.cli", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def config(empty: Database, tmp_path: Path) -> Path:
    path = tmp_path / "qf.yaml"
    path.write_text(f"queryflux: {{persistence: {{type: postgres, url: '{empty.dsn}'}}}}\n")
    return path


def test_the_command(empty: Database, config: Path) -> None:
    newest = load_migrations()[-1]
    told = queryflux("migrate", "-c", str(config), "--status")
    assert told.returncode == 1
    assert f"{newest.file}  pending" in told.stdout
    told = queryflux("migrate", "-c", str(config), "--dry-run")
    assert (told.returncode, told.stdout.count("would be applied")) == (0, newest.version)
    assert empty.rows(TABLES) == []
    told = queryflux("migrate", "-c", str(config))
    assert (told.returncode, told.stdout.count("applied")) == (0, newest.version), told.stderr
    told = queryflux("migrate", "-c", str(config))
    assert (told.returncode, told.stdout) == (0, f"the database is up to date: V{newest.version}\n")
    told = queryflux("migrate", "-c", str(config), "--status")
    assert told.returncode == 0
    assert re.search(rf"{newest.file}  applied \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC", told.stdout)
    told = queryflux("migrate", "-c", str(config), "--new-epoch")
    assert told.returncode == 0
    assert str(empty.rows("SELECT epoch FROM queryflux_meta")[0][0]) in told.stdout


def test_the_status_of_a_database_that_is_refused_is_listed_all_the_same(
    empty: Database, config: Path
) -> None:
    empty.migrate()
    row = migrate.RECORD.replace("$1, $2, $3, $4", "%s, 'later', 'x', %s")
    empty.rows(row, 901, 900)
    empty.rows("UPDATE queryflux_migrations SET checksum = 'x' WHERE version = 7")
    told = queryflux("migrate", "-c", str(config), "--status")
    assert told.returncode == 1
    assert re.search(r"^V6__query_digests.sql  applied [-:0-9 ]+ UTC$", told.stdout, re.M)
    assert re.search(r"^V7__tags_and_agents.sql  applied .* UTC  not as in this version$", told.stdout, re.M)
    assert re.search(r"^V901__later.sql  applied .* UTC  by a newer version$", told.stdout, re.M)
    assert "V7__tags_and_agents.sql is not the migration that was applied" in told.stderr
    empty.rows("DELETE FROM queryflux_migrations WHERE version = 7")
    told = queryflux("migrate", "-c", str(config), "--status")
    assert told.returncode == 1
    assert "V7__tags_and_agents.sql  pending" in told.stdout
    assert "which a QueryFlux that knows only" in told.stderr


@pytest.mark.parametrize(
    ("persistence", "message"),
    [
        ("{type: inMemory}", "keeps nothing in a database"),
        ("{type: sqlite, path: q.db}", "keeps nothing in a database"),
        ("{type: postgres, url: 'postgresql://u:hidden-word@127.0.0.1:1/d'}", "cannot be reached"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, persistence: str, message: str) -> None:
    path = tmp_path / "qf.yaml"
    path.write_text(f"queryflux: {{persistence: {persistence}}}\n")
    told = queryflux("migrate", "-c", str(path))
    assert told.returncode == 1
    assert message in told.stderr
    assert "Traceback" not in told.stderr
    assert "hidden-word" not in told.stderr


@pytest.mark.parametrize("command", ["migrate", "serve"])
def test_a_wrong_password_and_a_missing_database_are_said_once_with_what_to_do(
    command: str, tmp_path: Path
) -> None:
    with new_database("postgres15", last=0) as made:
        host, port = made.server.host, made.server.port
        urls = {
            f"postgres://scram:hidden-word@{host}:{port}/{made.name}": (
                "password authentication failed",
                "check the user",
            ),
            f"postgres://trusted@{host}:{port}/nowhere": (
                'database "nowhere" does not exist',
                "make the database",
            ),
        }
        for url, (said, hint) in urls.items():
            config = tmp_path / "config.yaml"
            config.write_text(
                f"queryflux: {{persistence: {{type: postgres, url: '{url}?sslmode=disable'}}}}\n"
            )
            told = queryflux(command, "-c", str(config))
            assert told.returncode == 1
            assert told.stderr.count(said) == 1, told.stderr
            assert f"  {hint}" in told.stderr
            assert "cannot connect" not in told.stderr
            assert "hidden-word" not in told.stderr


def test_a_process_that_may_not_migrate_does_not_start_before_somebody_has(
    empty: Database, tmp_path: Path
) -> None:
    path = tmp_path / "qf.yaml"
    path.write_text(
        "queryflux:\n"
        "  adminApi: {host: 127.0.0.1, port: 0}\n"
        f"  persistence: {{type: postgres, url: '{empty.dsn}', autoMigrate: false}}\n"
    )
    told = queryflux("serve", "-c", str(path))
    assert told.returncode == 1
    assert "not up to date: V1__" in told.stderr
    assert "run queryflux migrate -c FILE" in told.stderr
    assert empty.rows(TABLES) == []
