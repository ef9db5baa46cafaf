"""The configuration in PostgreSQL, in the tables that every replica shares.

A read is one statement of one REPEATABLE READ transaction. A save takes the row of ``config_revision`` first,
so that saves follow one another and nobody overwrites what he has not seen; the trigger on that row tells
whoever listens.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg
import msgspec
from msgspec.structs import replace

from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import GroupRow, Row, Tables, Unreadable
from queryflux.config.variants import base_name
from queryflux.model.errors import ConfigConflict, ConfigError
from queryflux.persistence.numbering import check_references
from queryflux.persistence.postgres import config_sql as sql
from queryflux.persistence.postgres.config_rows import MEMBERS, SECTIONS, read_tables
from queryflux.persistence.postgres.listening import Listening
from queryflux.runtime.clock import Clock
from queryflux.runtime.threads import in_thread

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pools

CHANNEL = "config_revision_changed"


class PostgresConfigStore(ConfigStore):
    """The configuration that a fleet shares."""

    def __init__(self, pools: "Pools", clock: Clock) -> None:
        self._pool = pools.admin
        self._listening = Listening(pools.listen, CHANNEL, clock)

    async def load(self) -> StoredConfig:
        async with (
            self._pool.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            epoch, sequence, text = await connection.fetchrow(sql.READ)
        return StoredConfig(await in_thread("configuration", read_tables, text), sequence, epoch)

    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        if after == before.tables:
            await self._check_current(before)
            return before
        async with self._pool.connection() as connection:
            with _what_it_cannot_hold():
                async with connection.transaction():
                    if await connection.fetchval(sql.LOCK) != before.sequence:
                        raise _conflict()
                    if (await connection.fetchrow(sql.REVISION))[0] != before.epoch:
                        raise _conflict()
                    check_references(after)
                    tables = await _write(connection, before.tables, after)
                    sequence = await connection.fetchval(sql.BUMP)
        return StoredConfig(tables, sequence, before.epoch)

    async def _check_current(self, before: StoredConfig) -> None:
        if await self.revision() != (before.epoch, before.sequence):
            raise _conflict()

    async def revision(self) -> tuple[str, int]:
        async with self._pool.connection() as connection:
            epoch, sequence = await connection.fetchrow(sql.REVISION)
        return epoch, sequence

    def changes(self) -> AsyncGenerator[None, None]:
        return self._listening.notices()


def _conflict() -> ConfigConflict:
    return ConfigConflict("the configuration has changed meanwhile", hint="read it again")


@contextmanager
def _what_it_cannot_hold() -> Iterator[None]:
    """Raises ConfigError for values that the database refuses."""
    try:
        yield
    except (asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError) as error:
        raise ConfigError("the database cannot hold a NUL character", hint="remove it") from error
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        # Details of the server show the row, with its secrets; the driver's own words show the value.
        said = error.message or "a value does not fit"
        raise ConfigError(f"the database cannot hold this configuration: {said}") from None


# Writing.


class Numbers(NamedTuple):
    """Ids by name, and the names that stand for another id than before."""

    ids: Mapping[str, int | None]
    moved: frozenset[str]


class Listed(NamedTuple):
    """What groups list."""

    clusters: Numbers
    scripts: Numbers


async def _write(connection: asyncpg.Connection, before: Tables, after: Tables) -> Tables:
    """Write what differs; ``after`` with the ids of new rows. Clusters and scripts come before the groups
    that list them, rules go before the groups that they lead to and come after."""
    rules = any(_rows(before, kind) != _rows(after, kind) for kind in ("rules", "groups"))
    if rules:
        await connection.execute(sql.DELETE_RULES)
    clusters, numbers = await _write_rows(connection, "clusters", before, after)
    scripts, script_numbers = await _write_rows(connection, "scripts", before, after)
    listed = Listed(numbers, script_numbers)
    groups, _ = await _write_rows(connection, "groups", before, after, listed)
    if rules:
        await connection.execute(sql.INSERT_RULES, _json(after.rules))
    if before.routing != after.routing or rules:
        await connection.execute(sql.ROUTING, after.routing.fallback, after.routing.active)
    if before.security != after.security:
        await connection.execute(sql.SECURITY, _json(after.security))
    await _write_values(connection, before.guardrails, after.guardrails, sql.DELETE_GUARDS, sql.PUT_GUARDS)
    await _write_values(connection, before.settings, after.settings, sql.DELETE_SETTINGS, sql.PUT_SETTINGS)
    return replace(after, clusters=clusters, groups=groups, scripts=scripts)


async def _write_rows(
    connection: asyncpg.Connection,
    kind: str,
    tables_before: Tables,
    tables_after: Tables,
    listed: Listed | None = None,
) -> tuple[tuple[Any, ...], Numbers]:
    """Delete, change and add; the rows with ids, in their order, and the ids. Groups need the ids of what
    they list, and change also where a name there has moved to another id."""
    before, after = _rows(tables_before, kind), _rows(tables_after, kind)
    old = {row.id: row for row in before}
    kept = {row.id: row for row in after if row.id is not None}
    gone = [row_id for row_id in old if row_id not in kept]
    changed = [row for row_id, row in kept.items() if old.get(row_id) != row or _lists_moved(row, listed)]
    renamed = [row.id for row in changed if row.id in old and old[row.id].name != row.name]
    fresh = [row for row in after if row.id is None]
    if gone:
        await connection.execute(sql.delete(kind), gone)
    if renamed:
        await connection.execute(sql.make_way(kind), renamed)
    if changed:
        found = await connection.fetch(sql.update(kind), _json([_built(row, listed) for row in changed]))
        if len(found) < len(changed):
            raise _conflict()
    ids: dict[str, int] = {}
    if fresh:
        made = await connection.fetch(sql.insert(kind), _json([_built(row, listed) for row in fresh]))
        ids = {name: row_id for row_id, name in made}
    rows = [row if row.id is not None else replace(row, id=ids[row.name]) for row in after]
    rows.sort(key=lambda row: row.id or 0)
    return tuple(row for row in rows if not isinstance(row, Unreadable)), _numbers(before, rows)


def _rows(tables: Tables, kind: str) -> tuple[Any, ...]:
    """Those that can be read, and those that cannot."""
    return (*getattr(tables, kind), *tables.entries_unreadable(SECTIONS[kind]))


def _numbers(before: Iterable[Row], after: Iterable[Row]) -> Numbers:
    old, ids = ({row.name: row.id for row in rows} for rows in (before, after))
    return Numbers(ids, frozenset(name for name, row_id in ids.items() if old.get(name) != row_id))


def _lists_moved(row: Row, listed: Listed | None) -> bool:
    if not isinstance(row, GroupRow) or listed is None:
        return False
    members = any(base_name(member) in listed.clusters.moved for member in row.members)
    return members or any(name in listed.scripts.moved for name in row.translation_scripts)


def _built(row: Row, listed: Listed | None) -> dict[str, Any]:
    """The row as the statements take it: what a group lists by id, members that are variants also by name."""
    built: dict[str, Any] = msgspec.to_builtins(row)
    if isinstance(row, GroupRow):
        assert listed is not None
        clusters = listed.clusters.ids
        built["translation_scripts"] = [listed.scripts.ids[name] for name in row.translation_scripts]
        built["members"] = [clusters[base_name(member)] for member in row.members]
        if any(member not in clusters for member in row.members):
            built["settings"] = {**row.settings, MEMBERS: list(row.members)}
            built["members"] = list(dict.fromkeys(built["members"]))
    return built


async def _write_values(
    connection: asyncpg.Connection, before: Mapping[str, Any], after: Mapping[str, Any], delete: str, put: str
) -> None:
    gone = [key for key in before if key not in after]
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    if gone:
        await connection.execute(delete, gone)
    if changed:
        await connection.execute(put, _json(changed))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
