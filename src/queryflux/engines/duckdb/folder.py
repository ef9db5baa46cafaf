"""A folder of files as tables: which files, under which names, and the views that stand for them.

Every .parquet, .csv and .json file (also .ndjson, .jsonl, and .csv or .json compressed as .gz) is a table
named after the file; every folder that holds such files, at any depth, is one table of all its files of one
format. All are views in ``files.main``. Names that begin with a dot or an underscore are left out, as are
files and folders that lead outside through a symbolic link. Of two with one name (DuckDB's names do not
distinguish case) Parquet goes before CSV, CSV before JSON, files before folders; the others get their format,
and if need be a number, behind the name: ``sales``, ``sales_csv``, ``sales_csv_2``.
"""

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from queryflux.engines.duckdb.errors import translate
from queryflux.engines.duckdb.seam import Cursor
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

FOLDER_CATALOG = "files"
FOLDER_SCHEMA = "main"
RESCAN_SECONDS = 2.0

FORMATS: dict[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".ndjson", ".jsonl", ".json.gz"),
}
_RANK = {name: rank for rank, name in enumerate(FORMATS)}
_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}

Mark = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of each file: a view is made anew when it differs."""


@dataclass(frozen=True, slots=True)
class Source:
    """One table to be: its files, and a mark that tells when they have changed."""

    stem: str
    format: str
    is_folder: bool
    files: tuple[str, ...]
    mark: Mark

    def select(self) -> str:
        """The query behind the view."""
        paths = ", ".join("'" + path.replace("'", "''") + "'" for path in self.files)
        options = ", union_by_name = true" if len(self.files) > 1 else ""
        return f"FROM {_READERS[self.format]}([{paths}]{options})"


def format_of(name: str) -> tuple[str, str] | None:
    """The name without its ending, and the format that the ending stands for."""
    lower = name.lower()
    for kind, endings in FORMATS.items():
        for ending in sorted(endings, key=len, reverse=True):
            if lower.endswith(ending) and len(name) > len(ending):
                return name[: -len(ending)], kind
    return None


def quoted(identifier: str) -> str:
    """An identifier that DuckDB reads as it is."""
    return '"' + identifier.replace('"', '""') + '"'


def _visible(root: Path, directory: Path) -> list[os.DirEntry[str]]:
    """Entries that are neither hidden nor lead outside ``root``, by name."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")) or "\0" in entry.name:
                continue
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
                continue
            found.append(entry)
    return sorted(found, key=lambda entry: entry.name)


def _glob_safe(path: str) -> str:
    """DuckDB takes every path for a glob pattern: its signs are put in brackets."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)


def _files(root: Path, directory: Path) -> Iterator[tuple[str, str, int, int]]:
    """Format, path, size and time of change of every file below, links to folders aside."""
    for entry in _visible(root, directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(root, Path(entry.path))
        elif (named := format_of(entry.name)) and entry.is_file():
            status = entry.stat()
            yield named[1], entry.path, status.st_size, status.st_mtime_ns


def scan(root: Path) -> list[Source]:
    """What is in the folder now, in the order in which names are given. Raises OSError."""
    sources = []
    for entry in _visible(root, root):
        if entry.is_dir():
            by_format: dict[str, list[tuple[str, int, int]]] = {}
            for kind, path, size, changed in _files(root, Path(entry.path)):
                by_format.setdefault(kind, []).append((path, size, changed))
            if by_format:
                kind = min(by_format, key=_RANK.__getitem__)
                sources.append(_source(entry.name, kind, True, by_format[kind]))
        elif (named := format_of(entry.name)) and entry.is_file():
            status = entry.stat()
            marks = [(entry.path, status.st_size, status.st_mtime_ns)]
            sources.append(_source(named[0], named[1], False, marks))
    return sorted(sources, key=lambda source: (source.is_folder, _RANK[source.format], source.stem))


def _source(stem: str, kind: str, is_folder: bool, marks: list[tuple[str, int, int]]) -> Source:
    files = tuple(_glob_safe(path) for path, _, _ in marks)
    return Source(stem, kind, is_folder, files, tuple(marks))


def named(sources: list[Source]) -> dict[str, Source]:
    """A name for each source, unique without regard to case."""
    tables: dict[str, Source] = {}
    taken: set[str] = set()
    for source in sources:
        name = source.stem
        if name.lower() in taken:
            name = candidate = f"{source.stem}_{source.format}"
            number = 2
            while name.lower() in taken:
                name = f"{candidate}_{number}"
                number += 1
        taken.add(name.lower())
        tables[name] = source
    return tables


class Folder:
    """Keeps the views in step with the files. Used from several threads."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._cursor: Cursor | None = None
        self._resolved = root
        self._due = 0.0
        self._views: dict[str, Mark] = {}
        self._broken: dict[str, tuple[Mark, str]] = {}

    def open(self, cursor: Cursor, resolved: Path) -> None:
        """Begin on a fresh instance: ``cursor`` is for the views alone."""
        with self._lock:
            self._cursor = cursor
            self._resolved = resolved
            self._views = {}
            self._broken = {}
            self._due = self._clock.monotonic()
        self.refresh()

    def refresh(self) -> None:
        """Look at the folder again if the last look is RESCAN_SECONDS old; one thread does, others go on
        with what there is."""
        if self._clock.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        try:
            if self._clock.monotonic() >= self._due and self._cursor is not None:
                self._apply(self._cursor)
                self._due = self._clock.monotonic() + RESCAN_SECONDS
        finally:
            self._lock.release()

    def why_missing(self, message: str) -> str:
        """Why a table that an error message names has no view; empty when it is no file of ours."""
        for name, (_, reason) in self._broken.items():
            if f"name {name} does not exist" in message or f'name "{name}" does not exist' in message:
                return f"The file of {name} could not be opened: {reason}"
        return ""

    def relative(self, text: str) -> str:
        """A message with the paths of the folder's files as seen from the folder."""
        return text.replace(f"{self._resolved}{os.sep}", "").replace(f"{self.root}{os.sep}", "")

    def _apply(self, cursor: Cursor) -> None:
        try:
            tables = named(scan(self._resolved))
        except OSError as error:
            log.warning("folder %s cannot be read: %s", self._resolved, error)
            return
        for name in self._views.keys() - tables.keys():
            cursor.execute(f"DROP VIEW IF EXISTS {_qualified(name)}")
            del self._views[name]
        self._broken = {name: known for name, known in self._broken.items() if name in tables}
        for name, source in tables.items():
            if self._views.get(name) != source.mark and self._broken.get(name, (None,))[0] != source.mark:
                self._make(cursor, name, source)

    def _make(self, cursor: Cursor, name: str, source: Source) -> None:
        sql = f"CREATE OR REPLACE VIEW {_qualified(name)} AS {source.select()}"
        try:
            cursor.execute(sql)
        except duckdb.Error as error:
            reason = translate(error, sql).message
            log.warning("%s is not a table: %s", source.mark[0][0], reason)
            self._broken[name] = (source.mark, reason)
            if self._views.pop(name, None) is not None:
                cursor.execute(f"DROP VIEW IF EXISTS {_qualified(name)}")
        else:
            self._views[name] = source.mark
            self._broken.pop(name, None)


def _qualified(name: str) -> str:
    return f"{FOLDER_CATALOG}.{FOLDER_SCHEMA}.{quoted(name)}"
