"""A folder of files as tables: which files, under which names, and the views that stand for them.

Every .parquet, .csv and .json file (also .ndjson, .jsonl, and .csv or .json compressed as .gz) is a table
named after the file; every folder that holds such files, at any depth, is one table of all its files of one
format. All are views in ``files.main``. Names that begin with a dot or an underscore are left out, as are
files and folders that lead outside through a symbolic link. Of two with one name (DuckDB's names do not
distinguish case) Parquet goes before CSV, CSV before JSON, files before folders; the others get their format,
and if need be a number, behind the name: ``sales``, ``sales_csv``, ``sales_csv_2``.

An odd entry (a link that leads outside, in a circle or nowhere, what may not be read) is left out with one
line in the log; it never keeps the others from being served.
"""

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from queryflux.engines.duckdb.errors import translate
from queryflux.engines.duckdb.seam import Cursor
from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

FOLDER_CATALOG = "files"
FOLDER_SCHEMA = "main"
RESCAN_SECONDS = 2.0
MOST_SNIFFED = 100
"""Of the CSV files that one table gets at once."""
SNIFFING_SECONDS = 5.0
_SNIFF = "SELECT SkipRows, Columns FROM sniff_csv($1)"

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
    path: str
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


class Odd(Exception):
    """Why an entry of the folder is left out."""


@dataclass(slots=True)
class Looked:
    """What is in the folder now."""

    sources: list[Source] = field(default_factory=list)
    """In the order in which names are given."""
    odd: dict[str, str] = field(default_factory=dict)
    """What somebody may miss among the tables: the path, and why it is left out or less than it seems."""


class _Walk:
    """One look at the folder. What cannot be read is noted, and the rest goes on."""

    def __init__(self, root: Path) -> None:
        self.looked = Looked()
        self._root = root

    def visible(self, directory: str) -> list[os.DirEntry[str]]:
        """Entries that are not hidden, by name. Raises OSError."""
        with os.scandir(directory) as entries:
            shown = [entry for entry in entries if not entry.name.startswith((".", "_"))]
        return sorted(shown, key=lambda entry: entry.name)

    def is_directory(self, entry: os.DirEntry[str], *, top: bool) -> bool:
        """Whether its entries count. Raises Odd and OSError."""
        if not entry.is_symlink():
            return entry.is_dir()
        leads_to_folder = entry.is_dir()
        if not leads_to_folder and format_of(entry.name) is None:
            return False
        if not Path(os.path.realpath(entry.path)).is_relative_to(self._root):
            raise Odd("a link that leads outside the folder")
        if leads_to_folder and not top:
            raise Odd("a link to a folder, in a folder of files")
        if not leads_to_folder and not os.path.exists(entry.path):
            os.stat(entry.path)  # says whether it leads in a circle
        return leads_to_folder

    def file(self, entry: os.DirEntry[str]) -> tuple[str, str, Mark] | None:
        """Name, format and mark of a file of data. Raises Odd and OSError."""
        if (named := format_of(entry.name)) is None:
            return None
        if not entry.is_file():
            raise Odd("not a regular file")
        try:
            entry.path.encode()
        except UnicodeEncodeError:
            raise Odd("a name that is not UTF-8") from None
        status = entry.stat()
        return *named, ((entry.path, status.st_size, status.st_mtime_ns),)

    def below(self, directory: str) -> Iterator[tuple[str, Mark]]:
        """Format and mark of every file below, links to folders aside. Raises OSError for itself."""
        waiting = self.visible(directory)[::-1]
        while waiting:
            entry = waiting.pop()
            with self.noting(entry.path):
                if self.is_directory(entry, top=False):
                    waiting.extend(self.visible(entry.path)[::-1])
                elif found := self.file(entry):
                    if not os.access(entry.path, os.R_OK):  # one that DuckDB cannot open costs all the others
                        os.stat(entry.path)  # gone in the meantime: raises that
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), entry.path)
                    yield found[1:]

    def folder(self, entry: os.DirEntry[str]) -> None:
        """The table of a folder, if it holds files of data. Raises OSError."""
        by_format: dict[str, list[tuple[str, int, int]]] = {}
        for kind, mark in self.below(entry.path):
            by_format.setdefault(kind, []).extend(mark)
        if not by_format:
            return
        kind, *others = sorted(by_format, key=_RANK.__getitem__)
        if others:
            left_out = sum(len(by_format[other]) for other in others)
            self.looked.odd[entry.path] = (
                f"a folder with files of several formats: its table has those of {kind},"
                f" and {left_out} of {' and '.join(others)} are left out"
            )
        self.looked.sources.append(_source(entry.name, kind, entry.path, by_format[kind], is_folder=True))

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """What goes wrong with an entry is noted; one that has gone in the meantime is no news."""
        try:
            yield
        except Odd as odd:
            self.looked.odd[path] = f"left out: {odd}"
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.looked.odd[path] = f"left out: {(error.strerror or str(error)).lower()}"
            elif os.path.islink(path):
                self.looked.odd[path] = "left out: a link that leads nowhere"


def scan(root: Path) -> Looked:
    """What is in the folder now. Raises OSError when the folder itself cannot be read."""
    walk = _Walk(root)
    for entry in walk.visible(str(root)):
        with walk.noting(entry.path):
            if walk.is_directory(entry, top=True):
                walk.folder(entry)
            elif found := walk.file(entry):
                stem, kind, mark = found
                walk.looked.sources.append(_source(stem, kind, entry.path, list(mark)))
    walk.looked.sources.sort(key=lambda source: (source.is_folder, _RANK[source.format], source.stem))
    return walk.looked


def glob_safe(path: str) -> str:
    """DuckDB takes every path for a glob pattern: its signs are put in brackets."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)


def _source(
    stem: str, kind: str, path: str, marks: list[tuple[str, int, int]], *, is_folder: bool = False
) -> Source:
    files = tuple(glob_safe(path) for path, _, _ in marks)
    return Source(stem, kind, is_folder, path, files, tuple(marks))


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
        self._said: dict[str, str] = {}
        self._ragged = Ragged(clock)

    def close(self) -> None:
        """Stop looking at files."""
        self._ragged.close()

    def open(self, cursor: Cursor, resolved: Path) -> None:
        """Begin on a fresh instance: ``cursor`` is for the views alone."""
        with self._lock:
            self._cursor = cursor
            self._resolved = resolved
            self._views = {}
            self._broken = {}
            self._due = self._clock.monotonic()
        self.refresh()
        if not self._views and not self._broken:
            log.warning("folder %s has no .parquet, .csv or .json file yet: there are no tables", self.root)

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
        for root in (str(self._resolved), glob_safe(str(self._resolved)), str(self.root)):
            text = text.replace(f"{root}{os.sep}", "")
        return text

    def _apply(self, cursor: Cursor) -> None:
        try:
            looked = scan(self._resolved)
        except OSError as error:
            self._say({str(self._resolved): f"the folder cannot be read: {error.strerror or error}"})
            return
        self._say(looked.odd)
        tables = named(looked.sources)
        for name in self._views.keys() - tables.keys():
            cursor.execute(f"DROP VIEW IF EXISTS {_qualified(name)}")
            del self._views[name]
        self._broken = {name: known for name, known in self._broken.items() if name in tables}
        for name, source in tables.items():
            if self._views.get(name) != source.mark and self._broken.get(name, (None,))[0] != source.mark:
                self._make(cursor, name, source)
        self._ragged.look(
            cursor, [s.mark for name, s in tables.items() if s.format == "csv" and name in self._views]
        )

    def _say(self, odd: dict[str, str]) -> None:
        """One line for each odd entry, again only when it was well in between."""
        for path, reason in odd.items():
            if self._said.get(path) != reason:
                log.warning("%s: %s", _printable(path), reason)
        self._said = odd

    def _make(self, cursor: Cursor, name: str, source: Source) -> None:
        sql = f"CREATE OR REPLACE VIEW {_qualified(name)} AS {source.select()}"
        try:
            cursor.execute(sql)
        except duckdb.Error as error:
            reason = translate(error, sql).message
            log.warning("%s is not a table: %s", _printable(source.path), reason)
            self._broken[name] = (source.mark, reason)
            if self._views.pop(name, None) is not None:
                cursor.execute(f"DROP VIEW IF EXISTS {_qualified(name)}")
        else:
            self._views[name] = source.mark
            self._broken.pop(name, None)


class Ragged:
    """Looks at CSV files in a thread beside the queries, at each path once, and not longer than
    SNIFFING_SECONDS at a time: what is left then is not looked at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        """Guards what follows."""
        self._waiting: deque[str] = deque()
        self._until = 0.0
        self._work: tuple[threading.Thread, Cursor] | None = None

    def look(self, cursor: Cursor, tables: Iterable[Mark]) -> None:
        """At the files of these tables, which are all there are; only some of a table with very many."""
        now: set[str] = set()
        new: list[str] = []
        for mark in tables:
            paths = {path for path, _, _ in mark}
            new += sorted(paths - self._seen)[:MOST_SNIFFED]
            now |= paths
        self._seen = now
        if not new:
            return
        with self._lock:
            self._waiting += new
            self._until = self._clock.monotonic() + SNIFFING_SECONDS
            if self._work is None:
                own = cursor.cursor()
                thread = threading.Thread(target=self._sniff, args=(own,), name="csv files", daemon=True)
                self._work = thread, own
                thread.start()

    def close(self) -> None:
        """Stop. Returns when the thread has ended, or does not for a second."""
        with self._lock:
            self._waiting.clear()
            work = self._work
            if work is not None:
                work[1].interrupt()
        if work is not None:
            work[0].join(1.0)

    def _sniff(self, cursor: Cursor) -> None:
        while (path := self._next()) is not None:
            try:
                _warn_of_ragged(cursor, path)
            except Exception:
                log.exception("%s could not be looked at", _printable(path))

    def _next(self) -> str | None:
        with self._lock:
            if self._waiting and self._clock.monotonic() < self._until:
                return self._waiting.popleft()
            self._waiting.clear()
            if self._work is not None:
                self._work[1].close()
                self._work = None
            return None


def _warn_of_ragged(cursor: Cursor, path: str) -> None:
    """DuckDB takes a CSV file whose lines differ in their number of columns for one column, or leaves the
    first lines out, and says nothing."""
    with suppress(duckdb.Error):
        skipped, columns = cursor.execute(_SNIFF, [glob_safe(path)]).fetchall()[0]
        if skipped:
            log.warning(
                "%s: lines 1 to %d are left out: they have other columns than the rest", path, skipped
            )
        elif len(columns) == 1 and any(sign in columns[0]["name"] for sign in ",;|\t"):
            log.warning("%s: is read as one column: its lines differ in their number of columns", path)


def _printable(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()


def _qualified(name: str) -> str:
    return f"{FOLDER_CATALOG}.{FOLDER_SCHEMA}.{quoted(name)}"
