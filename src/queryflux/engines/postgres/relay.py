"""A statement whose answer is relayed: the server's own bytes, cut only between messages.

One write carries the whole statement; the server's chunks are walked by message headers, what belongs to our
own book-keeping (ParseComplete, BindComplete, CloseComplete, ReadyForQuery) is cut out, the rest is passed on
in one piece. Whoever stops a statement takes over reading from its client.
"""

import asyncio
from typing import TYPE_CHECKING

from queryflux.engines.postgres.effects import Effects
from queryflux.engines.postgres.errors import QUERY_CANCELED, engine_error, plan_is_stale
from queryflux.engines.postgres.link import ServerLink, StatementKey
from queryflux.engines.postgres.phases import OURS, PASSED, TABLE, Event, Phase
from queryflux.engines.postgres.settings import encoded
from queryflux.engines.postgres.stopping import wait_for
from queryflux.engines.postgres.told import check, learn
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    InvalidRequest,
    ProtocolViolation,
    QueryCancelled,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import EngineStats, Frames
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.constants import Back, Front
from queryflux.wire.postgres.native import BoundQuery, ExtendedQuery, Native, SimpleQuery

if TYPE_CHECKING:
    from queryflux.engines.postgres.connection import PostgresConnection

_DESCRIBE_UNNAMED = wire.describe_portal(b"")
_EXECUTE_UNNAMED = wire.execute(b"", 0)


class RelayFrames(Frames):
    """The answer to a SimpleQuery or an ExtendedQuery."""

    protocol = ClientProtocol.POSTGRES_WIRE
    stats = EngineStats()
    """PostgreSQL says nothing of its work."""

    # Defaults of the class, not set one by one for each of the many statements that need none of them.
    phase = Phase.RUNNING
    stopped = False
    """Somebody cancelled it: its client gets QueryCancelled, whatever the server still says."""
    _first: bytes | None = None
    _key: StatementKey | None = None
    _cached = False
    _unchecked = False
    """It is to be sent again, but not before the server has told what it gives by now."""
    _parsing: StatementKey | None = None
    _learning: StatementKey | None = None
    """It is prepared with this message, and its columns come with the rows."""
    _portal = b""
    _batch = False
    _sync_late = False
    _ready_due = False
    _busy = False
    _handover: asyncio.Future[None] | None = None
    _stopping: asyncio.Task[None] | None = None

    def __init__(
        self,
        owner: "PostgresConnection",
        link: ServerLink,
        native: Native,
        effects: Effects | None,
    ) -> None:
        self._owner = owner
        self.link = link
        self.native = native
        self.effects = effects

    # Sending.

    def send(self) -> None:
        """Write the statement. Raises InvalidRequest before anything is written."""
        native, link = self.native, self.link
        try:
            if isinstance(native, SimpleQuery):
                link.stream.write(wire.query(encoded(native.text, self._owner.codec)))
                return
            self._batch = not native.sync
            retriable = link.status == b"I" and not link.unsynced
            copies = self.effects is not None and self.effects.copies
            self._sync_late = copies and isinstance(native, ExtendedQuery) and native.sync
            data = self._message(native)
        except InvalidRequest:
            self._forget_unparsed()
            raise
        self._cached = retriable and self._cached
        if self._batch:
            link.unsynced = True
        link.stream.write(data)

    def _message(self, native: ExtendedQuery | BoundQuery) -> bytes:
        link = self.link
        key = self._key = (native.sql, native.parameter_oids)
        statement, before = link.prepared(key), b""
        self._cached = bool(statement)
        if not statement:
            self._parsing = key
            self._learning = key if native.describe else None
            sql = encoded(native.sql, self._owner.codec)
            statement, before = link.prepare(key, sql, named=self._owner.seen_before(key))
        if isinstance(native, BoundQuery):
            return before + wire.bind_to(statement, native.rest, native.bound)
        portal = self._portal = link.next_portal() if native.max_rows else b""
        bind = wire.bind(
            portal, statement, native.parameter_formats, native.parameter_values, native.result_formats
        )
        if portal:
            describe, execute = wire.describe_portal(portal), wire.execute(portal, native.max_rows)
        else:
            describe, execute = _DESCRIBE_UNNAMED, _EXECUTE_UNNAMED
        return b"".join((before, bind, describe if native.describe else b"", execute, self._closing()))

    def _closing(self) -> bytes:
        return wire.FLUSH if self._batch or self._sync_late else wire.SYNC

    # Reading.

    async def begin(self) -> None:
        """Return when the server's first messages are there."""
        link = self.link
        if not self._batch and link.messages.empty:
            chunk = await self._chunk()
            found = wire.whole_answer(chunk)
            if found is not None:
                self._answered(chunk, *found)
                return
            link.messages.feed(chunk)
        self._first = await self._pull()
        if self._learning is not None:
            learn(link, self._learning, self._first)

    async def _chunk(self) -> bytes:
        self._busy = True
        try:
            return await self.link.chunk()
        except EngineConnectionLost as error:
            self.fail(error)
            raise
        finally:
            self._busy = False
            if self._handover is not None:
                self._hand_over()

    def _answered(self, chunk: bytes, begin: int, rows: int | None) -> None:
        """The usual case: everything came at once."""
        link = self.link
        self._first = chunk[begin:-6]
        self.rows = rows
        if self._learning is not None:
            learn(link, self._learning, self._first)
        self._parsing = None
        link.status = chunk[-1:]
        link.unsynced = False
        self.phase = Phase.OVER
        self._owner.finished(self)
        if self.stopped:
            raise QueryCancelled("The query was cancelled.")

    def _hand_over(self) -> None:
        if self._handover is not None and not self._handover.done():
            self._handover.set_result(None)

    async def next(self) -> bytes | None:
        frame = self._first
        if frame is not None:
            self._first = None
            if not self.stopped:
                return frame
        if self.phase is Phase.OVER and not self.stopped:
            return None
        return await self._pull()

    async def _pull(self) -> bytes | None:
        while True:
            if self.stopped:
                raise QueryCancelled("The query was cancelled.")
            if self._unchecked:
                await self._check_again()
            phase = self.phase
            if phase is Phase.OVER:
                return None
            if phase is Phase.SUSPENDED and not self._resume():
                return None
            frame = await self._upload() if phase is Phase.UPLOADING else await self._read()
            while self._ready_due and self.phase is Phase.SUSPENDED:
                frame += await self._read()
            if frame and not self.stopped:
                return frame

    async def _check_again(self) -> None:
        """The server has given up what it had prepared: run it anew if it gives what the client was told."""
        self._unchecked = False
        self._busy = True
        try:
            await check(self.link, self.native)
            if self.stopped:
                self._move(Event.LEAVE)
                raise QueryCancelled("The query was cancelled.")
            self.send()
        except EngineConnectionLost as error:
            self.fail(error)
            raise
        except EngineError as error:
            self.failure = error
            self._move(Event.LEAVE)
            raise
        finally:
            self._busy = False
            self._hand_over()

    async def _read(self) -> bytes:
        self._busy = True
        try:
            frame = b"" if self.link.messages.empty else self._scan()
            if not frame and not self._unchecked:
                await self.link.read()
                frame = self._scan()
        except EngineConnectionLost as error:
            self.fail(error)
            raise
        finally:
            self._busy = False
            self._hand_over()
        return frame

    def fail(self, error: EngineConnectionLost) -> None:
        """The connection is lost."""
        self.failure = error
        self.link.abort()
        self._move(Event.LEAVE)

    def _move(self, event: Event) -> None:
        after = TABLE.get((self.phase, event))
        if after is None:
            raise self.link.lost(f"{event.name} does not belong where the statement is {self.phase.name}")
        self.phase = after
        if after is Phase.OVER or (after is Phase.COMPLETE and self._batch):
            self.phase = Phase.OVER
            self._forget_unparsed()
            self._owner.finished(self)

    def _forget_unparsed(self) -> None:
        if self._parsing is not None:
            self.link.forget(self._parsing)
            self._parsing = None

    def _scan(self) -> bytes:
        """Walk the messages that are there; what is for the client, in one piece."""
        messages = self.link.messages
        data, begin = messages.data, messages.end
        pieces: list[bytes] = []
        try:
            while kind := messages.notable():
                if kind in PASSED:
                    continue
                if (
                    kind in OURS
                    or kind == Back.READY_FOR_QUERY
                    or (kind == Back.ERROR and self._stale_plan())
                ):
                    if messages.start > begin:
                        pieces.append(data[begin : messages.start])
                    begin = messages.end
                if self._take(kind, data):
                    break
        except ProtocolViolation as error:
            raise self.link.garbage(error) from error
        if messages.whole > begin:
            pieces.append(data[begin : messages.whole])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take(self, kind: int, data: bytes) -> bool:
        """Act on a message; whether the walk stops here."""
        link, messages = self.link, self.link.messages
        if kind == Back.COMMAND_COMPLETE:
            self._complete(data[messages.start + 5 : messages.end - 1])
        elif kind == Back.READY_FOR_QUERY:
            self._ready(data[messages.start + 5 : messages.end])
            return True
        elif kind == Back.PARSE_COMPLETE:
            self._parsing = None
        elif kind in OURS:
            self._cached = False
        elif kind == Back.ERROR:
            self._error()
        elif kind == Back.PORTAL_SUSPENDED:
            self._move(Event.SUSPEND)
            self._ready_due = not self._batch
            self._owner.suspended(self)
            return self._batch
        elif kind == Back.EMPTY_QUERY:
            self._completed(Event.COMPLETE)
        elif kind == Back.COPY_IN_RESPONSE:
            self._move(Event.COPY_IN)
            return True
        elif kind == Back.COPY_BOTH_RESPONSE:
            raise link.lost("replication does not go through a proxy")
        else:
            raise link.lost(f"a message of type {chr(kind)} is out of place")
        return self.phase is Phase.OVER

    def _ready(self, status: bytes) -> None:
        link, retry = self.link, self.phase is Phase.RETRYING
        link.status = status
        link.unsynced = self._ready_due = False
        self._move(Event.READY)
        if retry and self.native.told:
            if self.stopped:
                self._move(Event.LEAVE)
            else:
                self._unchecked = True
        elif retry:
            self.send()
        elif self.phase is Phase.SUSPENDED and status != b"T":
            self._move(Event.LEAVE)

    def _complete(self, tag: bytes) -> None:
        last = tag[tag.rfind(b" ") + 1 :]
        if last.isdigit():
            self.rows = int(last)
        self._completed(Event.COMPLETE)

    def _completed(self, event: Event) -> None:
        uploading = self.phase is Phase.UPLOADING
        self._move(event)
        if self._sync_late:
            self._sync_late = False
            self.link.stream.write(wire.SYNC)
        elif uploading and not isinstance(self.native, SimpleQuery) and not self._batch:
            self._second_sync()

    def _second_sync(self) -> None:
        """A COPY that we took for something else: the server has skipped the Sync sent with it, as a rule.

        When it has not there are two answers, so the connection is not used again.
        """
        self.link.stream.write(wire.SYNC)
        self.link.broken = True

    def _stale_plan(self) -> bool:
        if self.phase is not Phase.RUNNING or not self._key:
            return False
        if not plan_is_stale(wire.parse_error(self.link.messages.body)):
            return False
        self.link.forget(self._key)
        return self._cached

    def _error(self) -> None:
        error = wire.parse_error(self.link.messages.body)
        failure = engine_error(error)
        if isinstance(failure, EngineConnectionLost):
            self.link.broken = True
            raise failure
        if self._cached and self.phase is Phase.RUNNING and plan_is_stale(error):
            self._move(Event.STALE)
            if self._batch:
                self.link.stream.write(wire.SYNC)
            return
        self._cached = False
        self.failure = self.failure or failure
        if error.sqlstate == QUERY_CANCELED and self.stopped:
            self.failure = QueryCancelled("The query was cancelled.")
        self._completed(Event.ERROR)

    # Portals.

    def _resume(self) -> bool:
        """Ask a suspended portal for more; False when it is gone, with the transaction it lived in."""
        native, link = self.native, self.link
        assert isinstance(native, ExtendedQuery)
        if self._owner.link is not link or not (link.unsynced or link.status == b"T"):
            self._move(Event.LEAVE)
            return False
        self._move(Event.RESUME)
        self._batch = not native.sync
        link.unsynced = link.unsynced or self._batch
        self._owner.resumed(self)
        link.stream.write(wire.execute(self._portal, native.max_rows) + self._closing())
        return True

    # COPY FROM STDIN.

    async def _upload(self) -> bytes:
        """Pass the client's data on until it ends or the server objects; what the server said meanwhile."""
        upload, link = self.native.upload, self.link
        said = b""
        while self.phase is Phase.UPLOADING:
            message = wire.copy_fail("no data can come this way") if upload is None else await upload()
            if self.stopped:
                raise QueryCancelled("The query was cancelled.")
            link.stream.write(message)
            try:
                await link.stream.drain()
            except OSError as error:
                lost = link.lost(str(error))
                self.fail(lost)
                raise lost from error
            if message[0] in (Front.COPY_DONE, Front.COPY_FAIL):
                self._uploaded()
            elif link.stream.buffered:
                said += await self._read()
        return said

    def _uploaded(self) -> None:
        self._move(Event.UPLOADED)
        if self._sync_late:
            self._sync_late = False
            self.link.stream.write(wire.SYNC)
        elif self._batch:
            self.link.stream.write(wire.FLUSH)
        elif not isinstance(self.native, SimpleQuery):
            self._second_sync()

    # Stopping.

    async def close(self) -> None:
        if self.phase is not Phase.OVER:
            await self.stop()

    async def stop(self) -> None:
        """Stop the server's work on it. Returns when the server is ready again or the connection dropped."""
        if self._stopping is None:
            if self.phase is Phase.OVER:
                return
            self.stopped = True
            self._first = None
            self._stopping = self._owner.engine.tasks.spawn("stop", self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        try:
            if self.phase is Phase.SUSPENDED:
                self._move(Event.LEAVE)
            elif self.phase is Phase.UPLOADING:
                self.link.stream.write(wire.copy_fail("the query was cancelled"))
                self._uploaded()
                await self._drain_or_drop(cancel=False)
            else:
                await self._drain_or_drop(cancel=True)
        finally:
            self._owner.settle(self.link)

    async def _drain_or_drop(self, *, cancel: bool) -> None:
        drain = self._owner.engine.tasks.spawn("drain", self._drain())
        try:
            await wait_for(drain, self.link, cancel=cancel)
        finally:
            if drain.cancelled() and self.phase is not Phase.OVER:
                self.fail(self.link.lost("the query could not be stopped"))

    async def _drain(self) -> None:
        """Read to the end, leaving a read that is under way to its task."""
        try:
            while self.phase is not Phase.OVER:
                if self._busy:
                    self._handover = asyncio.get_running_loop().create_future()
                    await self._handover
                elif self.phase is Phase.UPLOADING:
                    self.link.stream.write(wire.copy_fail("the query was cancelled"))
                    self._uploaded()
                else:
                    await self._read()
        except EngineConnectionLost:
            return
