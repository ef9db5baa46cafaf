"""The configuration in SQLite: a row of JSON for each cluster, group and script, and one for the rest."""

import sqlite3
import uuid
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import msgspec

from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import ClusterRow, GroupRow, Row, ScriptRow, Tables, Unreadable
from queryflux.model.errors import ConfigConflict, ConfigError
from queryflux.persistence.notices import Notices
from queryflux.persistence.numbering import check_references, numbered
from queryflux.persistence.sqlite.database import SqliteDatabase

STEPS = (
    (
        """
        CREATE TABLE config_rows (
            kind TEXT NOT NULL,
            id INTEGER NOT NULL,
            name TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (kind, id),
            UNIQUE (kind, name)
        )
        """,
        """
        CREATE TABLE config_revision (
            epoch TEXT NOT NULL,
            revision INTEGER NOT NULL,
            next_id INTEGER NOT NULL,
            rest TEXT NOT NULL
        )
        """,
    ),
)
"""``rest`` is what of a configuration has no rows of its own."""

_KINDS: dict[str, type[Row]] = {"cluster": ClusterRow, "group": GroupRow, "script": ScriptRow}
_SECTIONS = {"cluster": "clusters", "group": "clusterGroups", "script": "scripts"}
_FIELDS = {"cluster": "clusters", "group": "groups", "script": "scripts"}


class SqliteConfigStore(ConfigStore):
    """The configuration of one process, in its file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._notices = Notices()

    async def open(self) -> None:
        """Bring the file's tables up to date. Raises ConfigError, StoreUnavailable."""
        await self._database.upgrade("config", STEPS)
        await self._database.write(_begin)

    async def load(self) -> StoredConfig:
        rows, (epoch, sequence, _, rest) = await self._database.read(
            lambda connection: (_rows(connection), _head(connection))
        )
        return StoredConfig(_tables(rows, rest), sequence, epoch)

    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        stored = await self._database.write(lambda connection: _save(connection, before, after))
        if stored is not before:
            self._notices.ring()
        return stored

    async def revision(self) -> tuple[str, int]:
        epoch, sequence, _, _ = await self._database.read(_head)
        return epoch, sequence

    def changes(self) -> AsyncGenerator[None, None]:
        return self._notices.listen()


def _begin(connection: sqlite3.Connection) -> None:
    """The single row of a new file."""
    if connection.execute("SELECT count(*) FROM config_revision").fetchone()[0] == 0:
        head = (str(uuid.uuid4()), 0, 1, _rest(Tables()))
        connection.execute("INSERT INTO config_revision VALUES (?, ?, ?, ?)", head)


def _head(connection: sqlite3.Connection) -> tuple[str, int, int, str]:
    row = connection.execute("SELECT epoch, revision, next_id, rest FROM config_revision").fetchone()
    return row[0], row[1], row[2], row[3]


def _rows(connection: sqlite3.Connection) -> list[tuple[str, int, str, str]]:
    return connection.execute("SELECT kind, id, name, body FROM config_rows ORDER BY kind, id").fetchall()


def _tables(rows: Iterable[tuple[str, int, str, str]], rest: str) -> Tables:
    found: dict[str, list[Row]] = {kind: [] for kind in _KINDS}
    unreadable: list[Unreadable] = []
    for kind, row_id, name, body in rows:
        if kind not in _KINDS:
            raise ConfigError(
                f"config_rows: there is a {kind} {name!r}, and this version knows no such thing"
            )
        try:
            row = msgspec.json.decode(body, type=_KINDS[kind])
        except msgspec.DecodeError as error:
            it = Unreadable(
                id=row_id, name=name, section=_SECTIONS[kind], table="config_rows", reason=str(error)
            )
            unreadable.append(it)
            continue
        found[kind].append(msgspec.structs.replace(row, id=row_id, name=name))
    try:
        tables = msgspec.json.decode(rest, type=Tables)
    except msgspec.DecodeError as error:
        raise ConfigError(f"config_revision: rest cannot be read: {error}") from error
    fields: dict[str, Any] = {_FIELDS[kind]: tuple(items) for kind, items in found.items()}
    return msgspec.structs.replace(tables, **fields, unreadable=tuple(unreadable))


def _rest(tables: Tables) -> str:
    rest = msgspec.structs.replace(tables, clusters=(), groups=(), scripts=(), unreadable=())
    return msgspec.json.encode(rest).decode()


def _save(connection: sqlite3.Connection, before: StoredConfig, after: Tables) -> StoredConfig:
    epoch, sequence, next_id, _ = _head(connection)
    if (before.epoch, before.sequence) != (epoch, sequence):
        raise ConfigConflict("the configuration has changed meanwhile", hint="read it again")
    if after == before.tables:
        return before
    check_references(after)
    tables, next_id = numbered(after, next_id)
    for kind, name in _FIELDS.items():
        old, new = (
            (*getattr(it, name), *it.entries_unreadable(_SECTIONS[kind])) for it in (before.tables, tables)
        )
        _write_rows(connection, kind, old, new)
    connection.execute(
        "UPDATE config_revision SET revision = ?, next_id = ?, rest = ?",
        (sequence + 1, next_id, _rest(tables)),
    )
    return StoredConfig(tables, sequence + 1, epoch)


def _write_rows(
    connection: sqlite3.Connection, kind: str, before: Iterable[Row], after: Iterable[Row]
) -> None:
    """What differs goes and comes back, so that two rows may exchange their names."""
    old = {row.id: row for row in before}
    new = {row.id: row for row in after}
    gone = [(kind, row_id) for row_id, row in old.items() if new.get(row_id) != row]
    come = [row for row_id, row in new.items() if old.get(row_id) != row]
    connection.executemany("DELETE FROM config_rows WHERE kind = ? AND id = ?", gone)
    connection.executemany(
        "INSERT INTO config_rows VALUES (?, ?, ?, ?)",
        [(kind, row.id, row.name, msgspec.json.encode(row).decode()) for row in come],
    )
