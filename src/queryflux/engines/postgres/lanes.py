"""ADBC connections, each with a thread of its own: ADBC's calls block. Loaded with the first Arrow answer.

A statement goes through the driver in two steps: it is prepared, which tells the columns and runs nothing,
then run. What fails in the first step on a connection that the server has dropped is safe to run elsewhere.
A stream that is left before its end cannot be used further (the driver would read the rest first), so its
connection is closed; the server then stops at its next write.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_manager import _reader

from queryflux.engines.port import TransactionStatus
from queryflux.engines.postgres.columns import Plan, converted, plan_of
from queryflux.engines.postgres.errors import engine_error
from queryflux.engines.postgres.pool import Pool
from queryflux.engines.postgres.settings import Settings, change
from queryflux.engines.postgres.target import APPLICATION_NAME, Target
from queryflux.engines.postgres.text import first_word, leading_words, main_statement
from queryflux.model.errors import EngineConnectionLost, EngineError, EngineUnavailable
from queryflux.runtime.threads import LaneThread
from queryflux.wire.postgres.client import ServerError

if TYPE_CHECKING:
    from queryflux.engines.postgres.engine import PostgresEngine

log = logging.getLogger(__name__)

BATCH_BYTES = 2 * 1024 * 1024
"""About how large a batch is."""
JOIN_TIMEOUT = 10.0
CONNECT_TIMEOUT = 10

_COPYABLE = {"SELECT", "WITH", "VALUES", "TABLE", "(", "INSERT", "UPDATE", "DELETE", "MERGE"}
_SELECTS = {"SELECT", "WITH", "VALUES", "TABLE", "("}
_DIRECT = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "SET", "RESET"}
_TWO_WORDS = {"CREATE", "DROP", "ALTER", "REFRESH", "COMMENT", "SECURITY"}
_TAGS = {"START": "START TRANSACTION", "END": "COMMIT", "ABORT": "ROLLBACK", "WITH": "SELECT"}
_TAGS |= {"VALUES": "SELECT", "TABLE": "SELECT", "(": "SELECT"}
_STATUS = {
    "idle": TransactionStatus.IDLE,
    "intrans": TransactionStatus.OPEN,
    "inerror": TransactionStatus.FAILED,
}

T = TypeVar("T")


class StaleLane(Exception):
    """The server dropped the connection before the statement could run."""


@dataclass(slots=True)
class Started:
    """A statement that is running or, without ``schema``, done."""

    schema: pa.Schema | None
    tag: str
    rows: int | None


class Lane:
    """One ADBC connection. Methods that begin with ``do_`` run in its thread, one at a time."""

    def __init__(self, target: Target, name: str) -> None:
        self.target = target
        self.thread = LaneThread(name)
        self.settings: Settings | None = ()
        self.idle_since = 0.0
        self.broken = False
        self.pinned = False
        self.status = TransactionStatus.IDLE
        self.pid = 0
        self.started = ""
        self.call: asyncio.Future[Any] | None = None
        """What the thread is busy with."""
        self._database: Any = None
        self._connection: Any = None
        self._statement: Any = None
        self._reader: Any = None
        self._plans: list[Plan] = []
        self._schema: pa.Schema = pa.schema([])
        self._closing: asyncio.Future[None] | None = None

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call in the thread. When the waiter is cancelled the call goes on, and ``call`` says until when."""
        future = self.thread.submit(function, *args)
        self.call = future
        return await asyncio.shield(future)

    @property
    def busy(self) -> bool:
        """The thread is inside a call."""
        return self.call is not None and not self.call.done()

    @property
    def idle(self) -> bool:
        """Nothing runs in it and no stream is open."""
        return not self.busy and self._reader is None

    # What the pool asks.

    @property
    def usable(self) -> bool:
        return not (
            self.broken
            or self.pinned
            or self.busy
            or self._reader is not None
            or self.status is not TransactionStatus.IDLE
        )

    def disturbed(self) -> bool:
        """Not to be told from outside the driver; ``do_start`` finds out."""
        return False

    def close(self) -> None:
        if self._closing is None:
            self.broken = True
            self._closing = self.thread.submit(self._do_close)
            self.thread.close()

    @property
    def gone(self) -> bool:
        """Closed to the end."""
        return self._closing is not None and self._closing.done()

    def abort(self) -> None:
        self.close()

    # In the thread.

    def do_open(self) -> None:
        """Connect. Raises EngineUnavailable."""
        try:
            self._database = adbc.AdbcDatabase(
                driver=adbc_driver_postgresql._driver_path(), uri=_uri(self.target)
            )
            self._connection = adbc.AdbcConnection(self._database)
            table = self._fetch(
                "SELECT pid, extract(epoch FROM backend_start)::text FROM pg_catalog.pg_stat_activity"
                " WHERE pid = pg_catalog.pg_backend_pid()"
            )
        except adbc.Error as error:
            self._do_close()
            raise EngineUnavailable(
                f"PostgreSQL at {self.target.where} cannot be reached: {_plain(str(error))}",
                hint="Check that the server runs and that the cluster's endpoint, auth and tls are right.",
            ) from None
        self.pid, self.started = table.column(0)[0].as_py(), table.column(1)[0].as_py()

    def _fetch(self, sql: str) -> pa.Table:
        with adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(sql)
            handle, _ = statement.execute_query()
            with _reader.AdbcRecordBatchReader._import_from_c(handle.address) as reader:
                return reader.read_all()

    def _do_close(self) -> None:
        self._finish()
        for thing in (self._connection, self._database):
            if thing is not None:
                try:
                    thing.close()
                except adbc.Error as error:
                    log.debug("closing an ADBC connection: %s", error)
        self._connection = self._database = None

    def _finish(self) -> None:
        for thing in (self._reader, self._statement):
            if thing is not None:
                thing.close()
        self._reader = self._statement = None

    def do_start(self, sql: str, wanted: Settings | None) -> Started:
        """Run a statement; ``wanted`` settings first, None inside a transaction.

        Raises StaleLane, EngineError, EngineConnectionLost.
        """
        word = first_word(sql)
        if wanted is not None and self.settings != wanted:
            self._apply(wanted)
        self._statement = adbc.AdbcStatement(self._connection)
        try:
            started = self._start(sql, word)
        except adbc.Error as error:
            self._finish()
            self._note_status()
            raise self._translated(error) from None
        except BaseException:
            self._finish()
            self._note_status()
            raise
        if started.schema is None:
            self._finish()
            self._note_status()
        return started

    def _apply(self, wanted: Settings) -> None:
        before, self.settings = self.settings, None
        try:
            for sql in change(before, wanted):
                self._statement = adbc.AdbcStatement(self._connection)
                self._prepare(sql)
                self._statement.execute_update()
                self._finish()
        except adbc.Error as error:
            self._finish()
            raise self._translated(error) from None
        self.settings = wanted

    def _prepare(self, sql: str) -> pa.Schema:
        """The columns of a statement. Raises StaleLane when the connection is gone, adbc.Error."""
        try:
            self._statement.set_sql_query(sql)
            handle = self._statement.execute_schema()
            return pa.Schema._import_from_c(handle.address)
        except adbc.Error as error:
            if _is_lost(error):
                self.broken = True
                raise StaleLane(_plain(str(error))) from None
            raise

    def _start(self, sql: str, word: str) -> Started:
        statement = self._statement
        if word in _DIRECT and self.status is not TransactionStatus.IDLE:
            statement.set_sql_query(sql)
            return self._update(sql, word)
        schema = self._prepare(sql)
        if not schema.names:
            return self._update(sql, word)
        self._plans = [plan_of(field) for field in schema]
        if word in _COPYABLE:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
            if any(plan.cast for plan in self._plans):
                statement.set_sql_query(_casting(sql, self._plans, word))
        else:
            statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        handle, _ = statement.execute_query()
        self._reader = _reader.AdbcRecordBatchReader._import_from_c(handle.address)
        self._plans, self._schema = _settled(self._reader.schema, self._plans)
        return Started(self._schema, "", None)

    def _update(self, sql: str, word: str) -> Started:
        failed = self.status is TransactionStatus.FAILED
        rows = self._statement.execute_update()
        if word == "WITH":
            word = first_word(sql[main_statement(sql) :])
        tag = _TAGS.get(word, word)
        if tag == "COMMIT" and failed:
            tag = "ROLLBACK"
        if word in _TWO_WORDS:
            tag = _ddl_tag(sql)
        return Started(None, tag, rows if rows is not None and rows >= 0 and word in _COPYABLE else None)

    def do_describe(self, sql: str, wanted: Settings | None) -> tuple[pa.Schema | None, tuple[str, ...]]:
        """Columns, None without, and the types of parameters. Raises as ``do_start``."""
        if wanted is not None and self.settings != wanted:
            self._apply(wanted)
        self._statement = adbc.AdbcStatement(self._connection)
        try:
            schema = self._prepare(sql)
            handle = self._statement.get_parameter_schema()
            parameters = pa.Schema._import_from_c(handle.address)
        except adbc.Error as error:
            raise self._translated(error) from None
        finally:
            self._finish()
            self._note_status()
        plans = [plan_of(field) for field in schema]
        types = tuple(
            (field.metadata or {}).get(b"POSTGRESQL:type", b"text").decode() for field in parameters
        )
        found = pa.schema([pa.field(plan.name, plan.type) for plan in plans]) if plans else None
        return found, tuple("text" if name.startswith("unnamed") else name for name in types)

    def do_read(self) -> pa.RecordBatch | None:
        """The next batch; None at the end. Raises EngineError, EngineConnectionLost."""
        if self._reader is None:
            return None
        try:
            batch = self._reader.read_next_batch()
            return converted(batch, self._plans, self._schema)
        except StopIteration:
            self._finish()
            self._note_status()
            return None
        except adbc.Error as error:
            self._finish()
            self._note_status()
            raise self._translated(error) from None
        except BaseException:
            # The stream goes on behind a batch that could not be converted.
            self.broken = True
            self._finish()
            raise

    def _note_status(self) -> None:
        if self._connection is None:
            return
        try:
            word = self._connection.get_option("adbc.postgresql.transaction_status")
        except adbc.Error:
            word = "unknown"
        found = _STATUS.get(word)
        if found is None:
            self.broken = True
        else:
            self.status = found

    def _translated(self, error: adbc.Error) -> EngineError | EngineConnectionLost:
        fields = _details(error)
        if _is_lost(error):
            self.broken = True
            return EngineConnectionLost(
                f"The connection to PostgreSQL at {self.target.where} was lost: {_plain(str(error))}",
                hint="The statement may have run. Look before you run it again.",
            )
        position = fields.get("PG_DIAG_STATEMENT_POSITION", "")
        translated = engine_error(
            ServerError(
                severity="ERROR",
                sqlstate=error.sqlstate or "XX000",
                message=fields.get("PG_DIAG_MESSAGE_PRIMARY") or _plain(str(error)),
                detail=fields.get("PG_DIAG_MESSAGE_DETAIL", ""),
                hint=fields.get("PG_DIAG_MESSAGE_HINT", ""),
                position=int(position) if position.isdecimal() else 0,
            )
        )
        assert isinstance(translated, EngineError)
        return translated


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _details(error: adbc.Error) -> dict[str, str]:
    """libpq's error fields by name."""
    return {_text(key): _text(value) for key, value in error.details or ()}


def _is_lost(error: adbc.Error) -> bool:
    if _details(error).get("PG_DIAG_SEVERITY_NONLOCALIZED") in ("FATAL", "PANIC"):
        return True
    return not error.sqlstate and error.status_code == adbc.AdbcStatusCode.IO


def _plain(message: str) -> str:
    """ADBC's message without its prefixes and without the statement."""
    message = message.partition("\n\nQuery was:")[0]
    message = re.sub(r"^[A-Z_]+: (?:\[libpq\] )?", "", message.strip())
    return " ".join(message.split())


def _ddl_tag(sql: str) -> str:
    words = leading_words(sql, 5)
    noise = {"OR", "REPLACE", "TEMP", "TEMPORARY", "UNLOGGED", "GLOBAL", "LOCAL", "UNIQUE", "RECURSIVE"}
    rest = [word for word in words[1:] if word not in noise]
    long = {"MATERIALIZED": 2, "FOREIGN": 2, "EVENT": 2, "TEXT": 3, "ACCESS": 2, "SECURITY": 2}
    return " ".join([words[0], *rest[: long.get(rest[0], 1) if rest else 0]])


def _casting(sql: str, plans: list[Plan], word: str) -> str:
    """The same query with some columns cast in the server. What writes must stay at the top of a WITH."""
    names = ", ".join(f"c{number}" for number in range(1, len(plans) + 1))
    outputs = ", ".join(
        f"qf_.c{number}{f'::{plan.cast}' if plan.cast else ''} AS {_quoted(plan.name)}"
        for number, plan in enumerate(plans, 1)
    )
    main = main_statement(sql) if word == "WITH" else 0
    if main:
        return f"{sql[:main]}, qf_({names}) AS ({sql[main:]}\n) SELECT {outputs} FROM qf_"  # noqa: S608
    if word in _SELECTS:
        return f"SELECT {outputs} FROM ({sql}\n) AS qf_({names})"  # noqa: S608
    return f"WITH qf_({names}) AS ({sql}\n) SELECT {outputs} FROM qf_"  # noqa: S608


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _settled(given: pa.Schema, plans: list[Plan]) -> tuple[list[Plan], pa.Schema]:
    """The plans for what ADBC gives in the end: a cast column comes in its new type."""
    settled = []
    for field, plan in zip(given, plans, strict=True):
        convert = plan_of(field).convert if plan.cast else plan.convert
        settled.append(Plan(plan.name, plan.type, convert))
    return settled, pa.schema([pa.field(plan.name, plan.type) for plan in settled])


def _uri(target: Target) -> str:
    """libpq's connection URI. It holds the password: never to be shown."""
    options = {
        "application_name": APPLICATION_NAME,
        "client_encoding": "UTF8",
        "connect_timeout": str(CONNECT_TIMEOUT),
        "sslmode": "disable",
        "gssencmode": "disable",
    }
    host = target.host
    if target.tls is None:
        options["require_auth"] = "scram-sha-256,md5,none"
    else:
        options["sslmode"] = "require" if target.tls.insecure_skip_verify else "verify-full"
        if not target.tls.insecure_skip_verify:
            options["sslrootcert"] = target.tls.ca_file or "system"
        if target.tls.server_name and target.tls.server_name != host:
            options["hostaddr"] = _address(host)
            host = target.tls.server_name
    password = f":{quote(target.password.reveal(), safe='')}" if target.password else ""
    host = f"[{host}]" if ":" in host else host
    return (
        f"postgresql://{quote(target.user, safe='')}{password}@{host}:{target.port}"
        f"/{quote(target.database, safe='')}?{urlencode(options, quote_via=quote)}"
    )


def _address(host: str) -> str:
    """The numeric address of a host; in a lane's thread, since it may block."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None)[0][4][0])
    except OSError as error:
        raise EngineUnavailable(f"The host {host} cannot be resolved: {error}") from error


class Lanes:
    """The lanes of one cluster, at most ``poolSize`` of them."""

    def __init__(self, engine: "PostgresEngine") -> None:
        self._engine = engine
        self._count = 0
        self._all: set[Lane] = set()
        target = engine.target
        self.pool: Pool[Lane] = Pool(target.where, target.pool_size, self._open, engine.clock)

    async def _open(self) -> Lane:
        self._count += 1
        lane = Lane(self._engine.target, f"postgres-{self._engine.name}-{self._count}")
        self._all = {known for known in self._all if not known.gone} | {lane}
        try:
            await lane.run(lane.do_open)
        except BaseException:
            lane.close()
            raise
        return lane

    async def stop(self, lane: Lane, pauses: tuple[float, ...]) -> None:
        """Make the thread of a lane come back from the call it is in, by cancelling at the server."""
        for pause in pauses:
            call = lane.call
            if call is None or call.done():
                return
            if lane.pid:
                await self._engine.cancel_backend(lane.pid, lane.started)
            await asyncio.wait({call}, timeout=pause)
        log.warning(
            "PostgreSQL %s did not stop a query within %.0f s of being asked; its connection is dropped",
            self._engine.target.where,
            sum(pauses),
        )
        lane.broken = True

    async def close(self) -> None:
        """Close every lane and return when their threads have ended."""
        self.pool.close()
        for lane in list(self._all):
            lane.close()
        joins = [lane.thread.join() for lane in list(self._all)]
        if joins:
            _, late = await asyncio.wait(
                [asyncio.ensure_future(join) for join in joins], timeout=JOIN_TIMEOUT
            )
            for join in late:
                join.cancel()
                log.error("a thread of PostgreSQL cluster %s does not end", self._engine.name)
