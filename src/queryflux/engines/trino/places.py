"""Where the names of clients lead that know databases and no catalogs: MySQL's.

Trino takes a schema only within a catalog. A database is a schema that one catalog has, or
``catalog.schema`` in one word; a schema of several catalogs is none by its name alone, as SHOW DATABASES has
it too (``metadata.listing``). A statement runs in the catalog of its database, or of the first schema that it
names itself if that one has none of that name. The list of schemas is asked for when a name is not known, and
kept. Statements whose names are all known never wait for it; it is made anew beside them.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

FRESH_SECS = 60.0
LOOK_AGAIN_SECS = 2.0
"""How soon a name that was not there is asked for again. After a failure it is twice as long each time."""
LONGEST_PAUSE_SECS = 60.0
LISTING_SECS = 5.0
"""How long a statement waits. A list that takes longer is used when it comes, and no statement waits for the
next one."""
LONGEST_LISTING_SECS = 30.0
_SHOWN_CATALOGS = 5

_NAME = r'(?:"((?:[^"]|"")+)"|(\w+))'
_SCHEMA_OF_TABLE = re.compile(
    rf"\b(?:from|join|into|update|table|exists|describe|analyze)\s+{_NAME}\s*\.\s*{_NAME}(?!\s*\.|\w)", re.I
)
_DOTTED = re.compile(
    r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/" r'|"((?:[^".]|"")+)\.((?:[^"]|"")+)"(?=\s*\.)|"(?:[^"]|"")*"', re.S
)

Ask = Callable[[], Awaitable[list[tuple[str, str]]]]


def names_of(session: Session) -> tuple[str, str]:
    """Catalog and schema of a session, empty where it has none. A client that has one name only (PostgreSQL's
    database, MySQL's schema) may write both into it: ``catalog.schema``. Trino refuses a schema without a
    catalog, so a schema alone is not sent."""
    catalog, schema = session.catalog or "", session.database or ""
    if not schema and "." in catalog:
        catalog, _, schema = catalog.partition(".")
    elif not catalog and "." in schema:
        catalog, _, schema = schema.partition(".")
    return catalog, schema if catalog else ""


class Places:
    """The schemas of a coordinator. ``ask`` gives catalogs and schemas, and may raise QueryFluxError."""

    def __init__(self, ask: Ask, clock: Clock, tasks: TaskGroup) -> None:
        self._ask = ask
        self._clock = clock
        self._tasks = tasks
        self._catalogs: dict[str, list[str]] = {}
        """By schema in lower case, in order."""
        self._pairs: set[str] = set()
        """The same, each as ``catalog.schema``."""
        self._absent: set[str] = set()
        """Names that nothing was found for at the last look, if that was quick and went well."""
        self._pause = 0.0
        """How long nothing is asked after a failure or a slow list; 0 when the last look went well."""
        self._slow = False
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._waited_for = asyncio.Event()
        """Set when the list is there, or has taken LISTING_SECS."""

    def close(self) -> None:
        """Stop a look that is on its way."""
        if self._asking is not None:
            self._asking.cancel()

    async def names(self, session: Session, sql: str) -> tuple[str, str]:
        """Catalog and schema for a statement, empty where there are none. Raises EngineError where a schema
        that it names is in several catalogs and nothing tells which is meant."""
        catalog, schema = names_of(session)
        if catalog or (session.protocol is not ClientProtocol.MYSQL_WIRE and not session.database):
            return catalog, schema
        wanted = (session.database or "").lower()
        named = list(dict.fromkeys(_schemas_in(sql)))
        await self._learn([name for name in (wanted, *named) if name])
        home = self._catalogs.get(wanted, [])
        if len(home) > 1:
            home = []
        unclear = ""
        for name in named:
            there = self._catalogs.get(name, [])
            if len(there) == 1 and there != home:
                return there[0], ""
            if len(there) > 1:
                unclear = unclear or name
        if unclear and not home:
            raise _unclear(unclear, self._catalogs[unclear])
        return (home[0], wanted) if home else ("", "")

    async def spelled(self, session: Session, sql: str) -> str:
        """The statement with ``"catalog.schema".`` in two words, for a client that can write it in one."""
        if session.protocol is not ClientProtocol.MYSQL_WIRE or '"' not in sql:
            return sql
        dotted = [found for found in _DOTTED.finditer(sql) if found[1]]
        if not dotted:
            return sql
        # A schema that is new in this catalog may long have been in another.
        await self._learn([f"{found[1]}.{found[2]}".lower() for found in dotted])

        def two_words(found: re.Match[str]) -> str:
            if found[1] is None or f"{found[1]}.{found[2]}".lower() not in self._pairs:
                return found[0]
            return f'"{found[1]}"."{found[2]}"'

        return _DOTTED.sub(two_words, sql)

    async def _learn(self, names: Sequence[str]) -> None:
        """Ask the coordinator if a name is not known, or what is known is old, and wait in the first case.
        Where it does not tell, what is known will do."""
        unknown = {name for name in names if not self._knows(name)}
        if self._asking is None:
            if not names or not self._is_due(unknown):
                return
            self._waited_for = asyncio.Event()
            self._asking = self._tasks.spawn("schemas", self._look(self._waited_for))
        if unknown and not self._slow:
            await self._waited_for.wait()
            if not self._pause:
                self._absent |= {name for name in unknown if not self._knows(name)}

    def _knows(self, name: str) -> bool:
        return name in self._catalogs or name in self._pairs

    def _is_due(self, unknown: set[str]) -> bool:
        age = self._clock.monotonic() - self._asked_at
        if self._pause:
            return age >= self._pause
        return age >= FRESH_SECS or (
            bool(unknown) and (age >= LOOK_AGAIN_SECS or not unknown <= self._absent)
        )

    async def _look(self, waited_for: asyncio.Event) -> None:
        timer = self._clock.call_later(LISTING_SECS, waited_for.set)
        pause = min(max(LOOK_AGAIN_SECS, 2 * self._pause), LONGEST_PAUSE_SECS)
        try:
            async with asyncio.timeout(LONGEST_LISTING_SECS):
                listed = await self._ask()
        except (QueryFluxError, TimeoutError) as error:
            log.warning("the schemas of Trino cannot be listed: %s", error or "it takes too long")
        else:
            found: dict[str, list[str]] = {}
            for catalog, schema in sorted(listed):
                found.setdefault(schema.lower(), []).append(catalog.lower())
            self._catalogs = found
            self._pairs = {f"{catalog}.{schema}".lower() for catalog, schema in listed}
            pause = 0.0
        finally:
            self._slow = waited_for.is_set()
            self._pause = LONGEST_PAUSE_SECS if self._slow else pause
            self._absent = set()
            self._asked_at = self._clock.monotonic()
            self._asking = None
            timer.cancel()
            waited_for.set()


def _schemas_in(sql: str) -> Iterator[str]:
    """The schemas of tables that a statement names in two parts, in lower case."""
    for quoted, plain, _, _ in _SCHEMA_OF_TABLE.findall(sql):
        yield (quoted.replace('""', '"') or plain).lower()


def _unclear(schema: str, catalogs: Sequence[str]) -> EngineError:
    choice = " or ".join(f"`{catalog}.{schema}`" for catalog in catalogs[:_SHOWN_CATALOGS])
    return EngineError(
        f"Unknown database '{schema}'",
        kind=EngineErrorKind.SCHEMA_NOT_FOUND,
        number=1049,
        sqlstate="42000",
        hint=f"several catalogs have a schema of that name: write {choice}",
    )
