"""Bringing the database's tables up to date: forward only, one process at a time.

A migration is a file of ``migrations/``. It and its row in the ledger are one transaction under an advisory
lock, in which the ledger is read again, so that one that dies half-way leaves nothing, and processes that
start together apply each once. Files never change once they are released: the ledger keeps their checksums.

A database of a newer version is used, as long as each migration that this version does not know says that it
can be (``lowest compatible version``): that is how a fleet is upgraded process by process.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import asyncpg

from queryflux.model.errors import SchemaRefused
from queryflux.persistence.postgres.pools import Pools
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "migrations"
COMMAND = "queryflux migrate -c FILE"
RETRY_SECS = 0.5
PATIENCE_SECS = 600.0
"""How long we wait for another process that migrates, and for tables that are in use."""
NO_LIMIT_SECS = 86_400.0
"""For the driver, of a migration that rewrites a large table."""

# A table that is asked for stops whoever comes after: after so long we let them through and try again.
SETTINGS = """
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL lock_timeout = '5s'
"""
LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('queryflux:migrations:' || current_schema(), 0))"
LEDGER = """
CREATE TABLE queryflux_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    lowest_compatible integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
SCHEMA = "SELECT current_schema()"
HAS_LEDGER = "SELECT to_regclass('queryflux_migrations') IS NOT NULL"
FOREIGN = """
SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NOT NULL ORDER BY name
"""
APPLIED = (
    "SELECT version, name, checksum, lowest_compatible, applied_at FROM queryflux_migrations ORDER BY version"
)
RECORD = (
    "INSERT INTO queryflux_migrations (version, name, checksum, lowest_compatible) VALUES ($1, $2, $3, $4)"
)
NEW_EPOCH = """
WITH moved AS (UPDATE config_revision SET revision = revision + 1, updated_at = now())
UPDATE queryflux_meta SET epoch = gen_random_uuid(), epoch_since = now() RETURNING epoch
"""

_FILE = re.compile(r"V(?P<version>[1-9][0-9]*)__(?P<name>[a-z0-9_]+)\.sql")
_COMPATIBLE = re.compile(r"-- lowest compatible version: ([1-9][0-9]*)\n")
_TABLE = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (\w+)", re.MULTILINE)
_TRY_AGAIN = {"55P03", "40P01", "40001"}
_OF_THE_SERVER = ("08", "25", "53", "57", "58", "XX")


@dataclass(frozen=True)
class Migration:
    """One file. A process that knows versions up to ``lowest_compatible`` can use a database that has it."""

    version: int
    name: str
    lowest_compatible: int
    sql: str

    @property
    def file(self) -> str:
        """The file's name."""
        return f"V{self.version}__{self.name}.sql"

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """One row of the ledger."""

    version: int
    name: str
    checksum: str
    lowest_compatible: int
    applied_at: datetime

    @property
    def file(self) -> str:
        """The name of the file that it was."""
        return f"V{self.version}__{self.name}.sql"


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a database stands: what it has, what it lacks, and what it has that we do not know."""

    applied: tuple[Applied, ...]
    pending: tuple[Migration, ...]
    newer: tuple[Applied, ...]


def load_migrations(folder: Path = FOLDER) -> tuple[Migration, ...]:
    """The migrations of this version, in order. Raises ValueError for a file that is none, and for two of one
    version."""
    found: dict[int, Migration] = {}
    for path in folder.iterdir():
        text = path.read_bytes().decode().replace("\r\n", "\n")
        name, compatible = _FILE.fullmatch(path.name), _COMPATIBLE.match(text)
        if name is None or compatible is None:
            raise ValueError(
                f"{path.name} is no migration: its name, or its first line, is not as it should be"
            )
        version = int(name["version"])
        if version in found:
            raise ValueError(f"{path.name} and {found[version].file} have one version")
        found[version] = Migration(version, name["name"], int(compatible[1]), text)
    return tuple(found[version] for version in sorted(found))


def plan(migrations: Sequence[Migration], applied: Sequence[Applied], foreign: Sequence[str] = ()) -> Plan:
    """What is to be done. ``foreign``: tables of ours in a database without a ledger. Raises SchemaRefused
    when the database is not one that this version can use."""
    if foreign:
        raise SchemaRefused(
            f"the database has tables named as ours and no record of migrations: {', '.join(foreign)}",
            hint="use an empty database or schema: tables that something else made are not taken over "
            "(docs/persistence.md)",
        )
    known = {migration.version: migration for migration in migrations}
    newest = max(known)
    for row in applied:
        if row.version in known and known[row.version].checksum != row.checksum:
            raise SchemaRefused(
                f"{known[row.version].file} is not the migration that was applied to the database on "
                f"{row.applied_at:%Y-%m-%d %H:%M} UTC: one of the two was edited",
                hint="run the version of QueryFlux that the database was migrated with, or a later release",
            )
    newer = tuple(row for row in applied if row.version > newest)
    for row in newer:
        if row.lowest_compatible > newest:
            raise SchemaRefused(
                f"the database has {row.file}, which a QueryFlux that knows only V{newest} cannot use",
                hint="upgrade this process",
            )
    have = {row.version for row in applied}
    pending = tuple(migration for migration in migrations if migration.version not in have)
    if pending and applied and pending[0].version < applied[-1].version:
        raise SchemaRefused(
            f"{pending[0].file} was never applied to the database, and {applied[-1].file} was",
            hint="migrations go forward only: this database comes from another line of versions",
        )
    return Plan(tuple(applied), pending, newer)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a database says of itself. ``foreign``: tables of ours without a record of migrations."""

    applied: tuple[Applied, ...]
    foreign: tuple[str, ...] = ()

    def listed(self, migrations: Sequence[Migration]) -> list[str]:
        """A line for each migration that the database has, or that ``migrations`` have and it has not."""
        known = {migration.version: migration for migration in migrations}
        have = {row.version for row in self.applied}
        lines = {row.version: _line(row, known) for row in self.applied}
        lines |= {it.version: f"{it.file}  pending" for it in migrations if it.version not in have}
        return [lines[version] for version in sorted(lines)]


def _line(row: Applied, known: Mapping[int, Migration]) -> str:
    text = f"{row.file}  applied {row.applied_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if row.version not in known:
        newer = row.version > max(known)
        return f"{text}  by {'a newer' if newer else 'another'} version"
    return text if known[row.version].checksum == row.checksum else f"{text}  not as in this version"


async def read_ledger(pools: Pools) -> Ledger:
    """What the database says, whether this version can use it or not; changes nothing. Raises SchemaRefused
    where there is no place for tables, StoreUnavailable."""
    async with pools.admin.connection() as connection:
        return await _ledger(connection, load_migrations())


async def read_plan(pools: Pools, migrations: Sequence[Migration] | None = None) -> Plan:
    """Where the database stands; changes nothing. Raises SchemaRefused, StoreUnavailable."""
    async with pools.admin.connection() as connection:
        return await _read(connection, migrations or load_migrations())


async def require_up_to_date(pools: Pools) -> None:
    """For a process that may not migrate. Raises SchemaRefused with the command to run, StoreUnavailable."""
    found = await read_plan(pools)
    _warn_of_newer(found)
    if found.pending:
        files = ", ".join(migration.file for migration in found.pending)
        raise SchemaRefused(f"the database's tables are not up to date: {files}", hint=f"run {COMMAND}")


async def bring_up_to_date(
    pools: Pools, clock: Clock, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """Apply what is pending, ``migrations`` being all of this version unless given; gives what this call
    applied. Raises SchemaRefused, also for a migration that fails; StoreUnavailable."""
    migrations = migrations or load_migrations()
    found = await read_plan(pools, migrations)
    _warn_of_newer(found)
    done: list[Migration] = []
    since = clock.monotonic()
    said = ""
    while found.pending:
        try:
            migration = await _apply_next(pools, migrations)
        except _Busy as busy:
            if clock.monotonic() - since > PATIENCE_SECS:
                raise SchemaRefused(
                    f"the database could not be migrated within {PATIENCE_SECS:g} s: {busy}",
                    hint="see pg_stat_activity for who holds locks",
                ) from busy.__cause__
            if said != str(busy):
                said = str(busy)
                log.info("migrations wait: %s", said)
            await clock.sleep(RETRY_SECS)
            continue
        if migration is None:
            break
        log.info("applied %s", migration.file)
        done.append(migration)
        since = clock.monotonic()
    return done


async def new_epoch(pools: Pools) -> str:
    """Give the database a new epoch, as after a restore: numbers of configuration from before say nothing any
    more. Raises SchemaRefused, StoreUnavailable."""
    await require_up_to_date(pools)
    async with pools.admin.connection() as connection:
        return str(await connection.fetchval(NEW_EPOCH))


class _Busy(Exception):
    """Somebody else is at it; says what we wait for."""


async def _read(connection: "asyncpg.Connection", migrations: Sequence[Migration]) -> Plan:
    found = await _ledger(connection, migrations)
    return plan(migrations, found.applied, found.foreign)


async def _ledger(connection: "asyncpg.Connection", migrations: Sequence[Migration]) -> Ledger:
    if await connection.fetchval(SCHEMA) is None:
        raise SchemaRefused(
            "the database has no schema for the tables, or its user may not use it",
            hint="the search_path of the URL or of the user has to name one that exists: CREATE SCHEMA, "
            "GRANT USAGE ON SCHEMA",
        )
    if not await connection.fetchval(HAS_LEDGER):
        tables = [name for migration in migrations for name in _TABLE.findall(migration.sql)]
        foreign = [row[0] for row in await connection.fetch(FOREIGN, tables)]
        # Another process may have made them a moment ago, and the ledger with them.
        if not await connection.fetchval(HAS_LEDGER):
            return Ledger((), tuple(foreign))
    return Ledger(tuple(Applied(*row) for row in await connection.fetch(APPLIED)))


async def _apply_next(pools: Pools, migrations: Sequence[Migration]) -> Migration | None:
    """The first that is pending, applied; None when none is any more. Raises as bring_up_to_date, and
    _Busy."""
    async with (
        pools.admin.connection() as connection,
        connection.transaction(isolation="read_committed"),
    ):
        await connection.execute(SETTINGS)
        if not await connection.fetchval(LOCK):
            raise _Busy("another process migrates")
        pending = (await _read(connection, migrations)).pending
        if not pending:
            return None
        migration = pending[0]
        try:
            if not await connection.fetchval(HAS_LEDGER):
                await connection.execute(LEDGER)
            await connection.execute(migration.sql, timeout=NO_LIMIT_SECS)
            row = (migration.version, migration.name, migration.checksum, migration.lowest_compatible)
            await connection.execute(RECORD, *row)
        except asyncpg.PostgresError as error:
            _explain(migration, error)
            raise
        return migration


def _explain(migration: Migration, error: "asyncpg.PostgresError") -> None:
    """Raises what the failure of a migration means; returns for an error that says that the server is
    away."""
    if error.sqlstate in _TRY_AGAIN:
        raise _Busy(f"{migration.file} needs tables that are in use") from error
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        raise SchemaRefused(
            f"{migration.file}: the database user may not make or change tables ({error})",
            hint="GRANT CREATE ON SCHEMA, or make it the owner of the tables; see docs/persistence.md",
        ) from error
    if (error.sqlstate or "").startswith(_OF_THE_SERVER):
        return
    raise SchemaRefused(f"{migration.file} failed, and nothing of it was applied: {error}") from error


def _warn_of_newer(found: Plan) -> None:
    if found.newer:
        files = ", ".join(row.file for row in found.newer)
        log.warning(
            "the database was migrated by a newer version of QueryFlux, which is compatible: %s", files
        )
