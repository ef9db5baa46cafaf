"""One SQLite file: a connection in a thread of its own, in WAL mode, and a schema that only moves forward.

Each part of persistence that keeps something here brings its own list of steps; the file remembers how many
of them it has taken. A file that has taken more than this version knows is refused.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.runtime.threads import LaneThread

T = TypeVar("T")

BUSY_SECS = 5.0
"""How long to wait for somebody who reads or copies the file."""


class SqliteDatabase:
    """A file, open. Other processes may read it; a second QueryFlux is refused."""

    def __init__(self, path: str) -> None:
        """Opens nothing."""
        self.path = path
        self._thread: LaneThread | None = None
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None

    async def open(self) -> None:
        """Open or make the file. Raises ConfigError when it cannot be used."""
        self._lock = self._claim()
        self._thread = LaneThread("sqlite")
        try:
            await self._thread.run(self._connect)
        except (sqlite3.Error, OSError) as error:
            await self.close()
            raise ConfigError(
                f"cannot use {self.path} as a database: {getattr(error, 'strerror', None) or error}",
                hint="queryflux.persistence.path names a file that this process may write",
            ) from error

    def _claim(self) -> int:
        """A lock beside the file, held until close; the same one for every symbolic link to the file."""
        try:
            lock = os.open(
                f"{os.path.realpath(self.path)}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.path} as a database: {error.strerror}",
                hint="queryflux.persistence.path names a file that this process may write",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigError(
                f"another process serves from {self.path}",
                hint="give each process a file of its own, or share a PostgreSQL database",
            ) from error
        return lock

    def _connect(self) -> None:
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)  # it will hold secrets
        os.close(descriptor)
        connection = sqlite3.connect(self.path, timeout=BUSY_SECS, isolation_level=None)
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS queryflux_schema (part TEXT PRIMARY KEY, steps INTEGER NOT NULL)"
        )

    async def upgrade(self, part: str, steps: Sequence[Sequence[str]]) -> None:
        """Take the steps (lists of statements) of a part that were not taken yet, each in a transaction.
        Raises ConfigError when the file is of a later version."""
        await self.write(lambda connection: _upgrade(connection, part, steps, self.path))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in the file's thread, in a transaction of one moment. Raises StoreUnavailable."""
        return await self._run(work, "BEGIN")

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The same, all or nothing. Raises StoreUnavailable."""
        return await self._run(work, "BEGIN IMMEDIATE")

    async def _run(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        if self._thread is None:
            raise StoreUnavailable(f"{self.path} is not open")
        try:
            return await self._thread.run(self._transaction, work, begin)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    def _transaction(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        connection = self._connection
        assert connection is not None
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    async def close(self) -> None:
        """Close the file. May be called twice."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            await thread.run(self._disconnect)
            await thread.join()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _upgrade(connection: sqlite3.Connection, part: str, steps: Sequence[Sequence[str]], path: str) -> None:
    row = connection.execute("SELECT steps FROM queryflux_schema WHERE part = ?", (part,)).fetchone()
    taken = row[0] if row else 0
    if taken > len(steps):
        raise ConfigError(
            f"{path} was written by a later version of QueryFlux ({part}: step {taken} of {len(steps)})",
            hint="use that version, or another file",
        )
    for step in steps[taken:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(
        "INSERT INTO queryflux_schema VALUES (?, ?) ON CONFLICT (part) DO UPDATE SET steps = excluded.steps",
        (part, len(steps)),
    )
