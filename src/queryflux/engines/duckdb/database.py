"""A DuckDB instance: opened by the first thread that needs it, locked down as its configuration asks.

A folder is served from an instance in memory whose catalog ``files`` holds a view for each table. What may be
read is settled before the configuration is locked: the folder (and, unavoidably, DuckDB's own spill folder,
which is private to this process). Limits are set before locking too.
"""

import logging
import os
import re
import threading
from pathlib import Path

import duckdb

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb.errors import translate
from queryflux.engines.duckdb.folder import FOLDER_CATALOG, FOLDER_SCHEMA, Folder, glob_safe, quoted
from queryflux.engines.duckdb.seam import Cursor
from queryflux.engines.duckdb.spill import SpillFolder
from queryflux.model.errors import EngineUnavailable
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

_HOLDER = re.compile(r"Conflicting lock is held in .*", re.DOTALL)
"""DuckDB names the program and the process that have a file open, in paths of this host."""

Settings = dict[str, str | bool | int | float | list[str]]


class Database:
    """The instance of one cluster. Every method blocks and may be called from any thread."""

    def __init__(self, name: str, config: ClusterConfig, clock: Clock) -> None:
        self._name = name
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Cursor | None = None
        self._spill: SpillFolder | None = None
        self._opened = 0
        self._logged = ""
        self.generation = 0
        """Grows when the instance was given up: cursors of an older one are closed, not used."""
        self.home = ""
        """The catalog and schema where a cursor begins, quoted; known once the instance is open."""
        self.folder: Folder | None = None
        if config.data_path is not None:
            self.folder = Folder(Path(config.data_path), clock)

    @property
    def guarded(self) -> bool:
        """Whether statements that write are refused before DuckDB sees them."""
        return self.folder is not None or self._config.read_only

    def cursor(self) -> Cursor:
        """A connection of its own to the instance. Raises EngineUnavailable when it cannot be opened."""
        with self._lock:
            if self._opened != self.generation:
                self._forget()
                self._opened = self.generation
            if self._connection is None:
                try:
                    self._connection = self._open()
                except (duckdb.Error, OSError) as error:
                    self._forget()
                    raise self._unavailable(translate(error, "").message) from error
                self._logged = ""
            cursor = self._connection.cursor()
            if self.folder is not None:
                cursor.execute(f"USE {FOLDER_CATALOG}")
            return cursor

    def invalidate(self) -> None:
        """Give the instance up; the next cursor opens it anew."""
        self.generation += 1

    def close(self) -> None:
        """Close the instance and remove its spill folder. Cursors must be closed before."""
        with self._lock:
            self._forget()

    def _unavailable(self, reason: str) -> EngineUnavailable:
        """What clients are told, who need not know where on this host the database lies: its name says
        enough. The log has all of it, once."""
        path = self._config.data_path or self._config.database_path or ""
        if reason != self._logged:
            self._logged = reason
            log.warning("cluster %s: DuckDB cannot open %s: %s", self._name, path or "a database", reason)
        reason = _HOLDER.sub("another process has it open", reason)
        name = Path(path).name
        if name:
            straight = os.path.abspath(path)
            ways = {path, straight, os.path.realpath(path), os.path.realpath(straight)}
            for whole in sorted(ways, key=len, reverse=True):
                reason = reason.replace(whole, name)
        return EngineUnavailable(
            f"cluster {self._name}: DuckDB cannot open {name or 'a database in memory'}: {reason}"
        )

    def _forget(self) -> None:
        if self.folder is not None:
            self.folder.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def _open(self) -> Cursor:
        path = self._config.database_path
        settings: Settings = {"errors_as_json": True, "python_enable_replacements": False}
        if path is None or self._config.read_only:
            self._spill = SpillFolder(self._clock.now())
            settings["temp_directory"] = str(self._spill.path)
        if self._config.memory_limit is not None:
            settings["memory_limit"] = self._config.memory_limit
        if self._config.threads is not None:
            settings["threads"] = self._config.threads
        if self.folder is not None:
            settings |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
            # Clients may read the settings: they learn nothing of this host's home folders.
            settings |= dict.fromkeys(("home_directory", "secret_directory", "extension_directory"), "/none")
        read_only = self._config.read_only and path is not None
        connection = duckdb.connect(path or ":memory:", read_only=read_only, config=settings)
        if self.folder is not None:
            self._lock_down(connection, self.folder)
            self.home = f"{FOLDER_CATALOG}.{FOLDER_SCHEMA}"
        else:
            here = connection.execute("SELECT current_catalog(), current_schema()").fetchall()[0]
            self.home = f"{quoted(here[0])}.{quoted(here[1])}"
        return connection

    def _lock_down(self, connection: Cursor, folder: Folder) -> None:
        root = Path(os.path.realpath(folder.root, strict=True))
        if not root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder")
        os.scandir(root).close()  # one that may not be read is no empty one
        connection.execute(f"ATTACH ':memory:' AS {FOLDER_CATALOG}")
        directories = ", ".join("'" + path.replace("'", "''") + "'" for path in _allowed(str(root)))
        connection.execute(f"SET allowed_directories = [{directories}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        folder.open(connection.cursor(), root)


def _allowed(root: str) -> list[str]:
    """The folder, also as the pattern that matches it alone: DuckDB looks for both in its list."""
    pattern = glob_safe(root)
    if pattern == root:
        return [root]
    if os.path.lexists(pattern):
        raise FileExistsError(f"{root} is not served while there is {pattern} too")
    return [root, pattern]
