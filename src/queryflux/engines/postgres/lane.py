"""An ADBC connection with a thread of its own: ADBC's calls block. Loaded with the first Arrow answer.

A statement goes through the driver in two steps: it is prepared, which tells the columns and runs nothing,
then run. What fails in the first step on a connection that the server has dropped is safe to run elsewhere.
Before the next statement the driver reads the rest of a stream that was left: so such a stream is cancelled
and read to its end where the connection holds a transaction or session state, and closed with its connection
elsewhere; the server then stops at its next write.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import adbc_driver_manager as adbc
import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_manager import _reader

from queryflux.engines.port import TransactionStatus
from queryflux.engines.postgres.casting import casting
from queryflux.engines.postgres.columns import Plan, converted, plan_of
from queryflux.engines.postgres.errors import engine_error
from queryflux.engines.postgres.libpq import uri_of
from queryflux.engines.postgres.settings import Settings, change
from queryflux.engines.postgres.tags import tag_of
from queryflux.engines.postgres.target import Target
from queryflux.engines.postgres.text import first_word
from queryflux.model.errors import EngineConnectionLost, EngineError, EngineUnavailable
from queryflux.runtime.threads import LaneThread
from queryflux.wire.postgres.client import ServerError

log = logging.getLogger(__name__)

BATCH_BYTES = 2 * 1024 * 1024
"""About how large a batch is."""

_COPYABLE = {"SELECT", "WITH", "VALUES", "TABLE", "(", "INSERT", "UPDATE", "DELETE", "MERGE"}
_DIRECT = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "SET", "RESET"}
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
        return await asyncio.shield(self.submit(function, *args))

    def submit(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Begin a call in the thread."""
        future = self.thread.submit(function, *args)
        self.call = future
        return future

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
                driver=adbc_driver_postgresql._driver_path(), uri=uri_of(self.target)
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
                columns = [(plan.name, plan.cast) for plan in self._plans]
                statement.set_sql_query(casting(sql, columns, word))
        else:
            statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        handle, _ = statement.execute_query()
        self._reader = _reader.AdbcRecordBatchReader._import_from_c(handle.address)
        self._plans, self._schema = _settled(self._reader.schema, self._plans)
        return Started(self._schema, "", None)

    def _update(self, sql: str, word: str) -> Started:
        tag = tag_of(sql, failed=self.status is TransactionStatus.FAILED)
        rows = self._statement.execute_update()
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

    def do_drain(self) -> None:
        """Read what is left, to nowhere, until the end or an error."""
        try:
            while self.do_read() is not None:
                pass
        except (EngineError, EngineConnectionLost) as error:
            log.debug("the rest of a stream: %s", error.message)

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


def _settled(given: pa.Schema, plans: list[Plan]) -> tuple[list[Plan], pa.Schema]:
    """The plans for what ADBC gives in the end: a cast column comes in its new type."""
    settled = []
    for field, plan in zip(given, plans, strict=True):
        convert = plan_of(field).convert if plan.cast else plan.convert
        settled.append(Plan(plan.name, plan.type, convert))
    return settled, pa.schema([pa.field(plan.name, plan.type) for plan in settled])
