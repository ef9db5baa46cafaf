"""One client's way to PostgreSQL.

A server connection is held only while a statement runs, while ReadyForQuery says that a transaction is open,
while a batch waits for its Sync, or while session state pins it. Statements of PostgreSQL clients are
relayed; those of other doors go through ``arrow.py``, which is loaded with the first of them.
"""

import asyncio
import importlib
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from queryflux.engines.port import (
    AskedFrames,
    ConnectionSpec,
    EngineConnection,
    EngineRequest,
    TransactionStatus,
)
from queryflux.engines.postgres.describe import describe_on
from queryflux.engines.postgres.effects import Effects, effects_of
from queryflux.engines.postgres.link import RESET_TIMEOUT, ServerLink, StatementKey
from queryflux.engines.postgres.loss import ENDS_TRANSACTION, Lost, lost_with, session_lost
from queryflux.engines.postgres.phases import Phase
from queryflux.engines.postgres.quick import ask
from queryflux.engines.postgres.relay import RelayFrames
from queryflux.engines.postgres.settings import codec_of, settings_of, with_setting, without_setting
from queryflux.engines.postgres.told import agrees, check
from queryflux.model.errors import (
    EngineError,
    NotSupported,
    QueryCancelled,
    QueryFluxError,
    TransactionFailed,
)
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import Answer, Done, EngineStats, Frames, Shape
from queryflux.runtime.threads import LaneThread
from queryflux.wire.postgres.native import BoundQuery, DescribeStatement, ExtendedQuery, Native, SimpleQuery

if TYPE_CHECKING:
    from queryflux.engines.postgres.arrow import ArrowSession
    from queryflux.engines.postgres.engine import PostgresEngine

log = logging.getLogger(__name__)

_STATUS = {b"I": TransactionStatus.IDLE, b"T": TransactionStatus.OPEN, b"E": TransactionStatus.FAILED}
_TRANSACTION_WORDS = re.compile(
    r"\s*(?:begin|start\s+transaction|commit|end|rollback|abort|savepoint|release)\b", re.IGNORECASE
)
_ARROW = "queryflux.engines.postgres.arrow"
_ROLLED_BACK = b"C\0\0\0\x0dROLLBACK\0"


async def _load_arrow() -> None:
    """Import pyarrow and ADBC: half a second, so not on the loop."""
    thread = LaneThread("postgres-import")
    try:
        await thread.run(importlib.import_module, _ARROW)
    finally:
        thread.close()


class RolledBack(Frames):
    """The end of a transaction whose connection was lost: the server has rolled it back already."""

    protocol = ClientProtocol.POSTGRES_WIRE

    def __init__(self) -> None:
        self.stats = EngineStats()
        self._frame: bytes | None = _ROLLED_BACK

    async def next(self) -> bytes | None:
        frame, self._frame = self._frame, None
        return frame

    async def close(self) -> None:
        self._frame = None


class PostgresConnection(EngineConnection):
    """Made by the engine; ``link`` is the server connection that is held now."""

    def __init__(self, engine: "PostgresEngine", spec: ConnectionSpec) -> None:
        self.engine = engine
        self.session = spec.session
        self.startup_settings = engine.interned(settings_of(spec.session))
        self.settings = self.startup_settings
        """What a server connection must be set to before a statement of this client runs on it."""
        self.codec = codec_of(self.settings)
        self.link: ServerLink | None = None
        self.running: RelayFrames | None = None
        """The statement that runs on it."""
        self._acquiring: asyncio.Task[ServerLink] | None = None
        self._arrow: ArrowSession | None = None
        self._lost_state = Lost.NOTHING
        self._cancelled = False
        self._busy = False
        self._closed = False

    @property
    def transaction(self) -> TransactionStatus:
        if self._lost_state is Lost.TRANSACTION:
            return TransactionStatus.FAILED
        if self.link is not None:
            return _STATUS.get(self.link.status, TransactionStatus.FAILED)
        return self._arrow.transaction if self._arrow is not None else TransactionStatus.IDLE

    # Statements.

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        if self.link is not None or self._lost_state is not Lost.NOTHING or self._closed:
            return None
        return ask(self, native, answered)

    async def execute(self, request: EngineRequest) -> Answer:
        if self._closed:
            raise QueryCancelled("The connection was closed.")
        native = request.native
        if self._lost_state is not Lost.NOTHING:
            return self._after_loss(request)
        if native is None:
            return await self._execute_plain(request)
        if not isinstance(native, SimpleQuery | ExtendedQuery | BoundQuery):
            raise NotSupported(f"PostgreSQL cannot run a {type(native).__name__}")
        effects = effects_of(native.text if isinstance(native, SimpleQuery) else native.sql)
        link = self.link
        if link is None:
            link = self.link = self.engine.pool.take(self.settings)
        if link is None or self.running is not None or link.settings != self.settings:
            link = await self._ready_link()
        if native.told and not agrees(link, native):
            await self._check(link, native)
        if effects is not None and self._pins(effects, link, native):
            link.pinned = True
        frames = RelayFrames(self, link, native, effects)
        try:
            frames.send()
        except BaseException:
            self.settle(link)
            raise
        self.running = frames
        try:
            await frames.begin()
        except BaseException:
            await frames.close()
            raise
        return frames

    async def _ready_link(self) -> ServerLink:
        """The held connection, or one from the pool, with this client's settings and nothing running."""
        self._cancelled = False
        if self.running is not None:
            await self.running.close()
        link = self.link
        if link is None:
            link = self.engine.pool.take(self.settings) or await self._wait_for_link()
            self.link = link
        if link.settings != self.settings and link.status == b"I" and not link.unsynced:
            async with self._using(link):
                await link.apply(self.settings)
        if self._cancelled:
            self.settle(link)
            raise QueryCancelled("The query was cancelled before it had begun.")
        return link

    async def _check(self, link: ServerLink, native: Native) -> None:
        self._cancelled = False
        async with self._using(link):
            await check(link, native)
        if self._cancelled:
            self.settle(link)
            raise QueryCancelled("The query was cancelled before it had begun.")

    @asynccontextmanager
    async def _using(self, link: ServerLink) -> AsyncIterator[None]:
        """A statement of our own on the link: when it is not read to its end, the link is of no more use."""
        self._busy = True
        try:
            yield
        except EngineError:
            self.settle(link)
            raise
        except BaseException:
            self._lost(link)
            raise
        finally:
            self._busy = False

    async def _restore(self, link: ServerLink) -> None:
        """Undo what the client left behind; what cannot be undone goes with the connection."""
        try:
            async with asyncio.timeout(RESET_TIMEOUT):
                await link.reset()
        except (QueryFluxError, OSError):
            link.broken = True
        except BaseException:
            link.broken = True  # an answer may still be on its way
            raise

    async def _wait_for_link(self) -> ServerLink:
        task = asyncio.get_running_loop().create_task(self.engine.pool.acquire(self.settings))
        self._acquiring = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                self.engine.pool.keep(task)
                raise
            raise QueryCancelled("The query was cancelled before it had a connection.") from None
        finally:
            self._acquiring = None

    def _pins(self, effects: Effects, link: ServerLink, native: Native) -> bool:
        if effects.sets is None:
            return effects.pins
        alone = isinstance(native, SimpleQuery) or native.sync
        return link.pinned or link.unsynced or link.status != b"I" or not alone

    async def _execute_plain(self, request: EngineRequest) -> Answer:
        if self.session.protocol is not ClientProtocol.POSTGRES_WIRE and self.link is None:
            return await (await self._arrow_session()).execute(request)
        if self.link is None and not _TRANSACTION_WORDS.match(request.sql):
            return await (await self._arrow_session()).execute(request)
        link = await self._ready_link()
        async with self._using(link):
            reply = await link.simple(request.sql)
        self.settle(link)
        if reply.columns:
            if _ARROW not in sys.modules:
                await _load_arrow()
            from queryflux.engines.postgres.arrow import TextBatches

            return TextBatches(reply)
        return Done(reply.tag, reply.count)

    async def _arrow_session(self) -> "ArrowSession":
        if self._arrow is None:
            if _ARROW not in sys.modules:
                await _load_arrow()
            from queryflux.engines.postgres.arrow import ArrowSession

            self._arrow = ArrowSession(self.engine, self.session)
        return self._arrow

    def _after_loss(self, request: EngineRequest) -> Answer:
        if self._lost_state is Lost.SESSION:
            raise session_lost()
        if not ENDS_TRANSACTION.match(request.sql):
            raise TransactionFailed(
                "The connection to PostgreSQL was lost in the midst of this transaction.",
                hint="Send ROLLBACK, then run the whole transaction again.",
            )
        self._lost_state = Lost.NOTHING
        return Done("ROLLBACK") if request.native is None else RolledBack()

    async def describe(self, request: EngineRequest) -> Shape:
        native = request.native
        if native is None:
            return await (await self._arrow_session()).describe(request)
        if not isinstance(native, DescribeStatement):
            raise NotSupported(f"PostgreSQL cannot describe a {type(native).__name__}")
        link = await self._ready_link()
        async with self._using(link):
            found = await describe_on(link, native.sql, native.parameter_oids)
        self.settle(link)
        return Shape((), None, found.raw)

    # What the relay tells.

    def seen_before(self, key: StatementKey) -> bool:
        """Whether the statement was run before, by anybody: then it is worth a name on the server."""
        return self.engine.seen_before(key)

    def resumed(self, frames: RelayFrames) -> None:
        """A suspended portal runs again."""
        self.running = frames

    def suspended(self, frames: RelayFrames) -> None:
        """A portal waits for its client; others may run meanwhile."""
        if self.running is frames:
            self.running = None

    def finished(self, frames: RelayFrames) -> None:
        """A statement is over: note what it did to the session, give the connection back if it may go."""
        if self.running is frames:
            self.running = None
        link = frames.link
        if frames.effects is not None and not link.broken:
            self._note(frames.effects, link, failed=frames.failure is not None)
        self.settle(link)

    def _note(self, effects: Effects, link: ServerLink, *, failed: bool) -> None:
        if effects.forgets:
            link.forget_all()
        if failed:
            return
        if effects.discards and link.status == b"I":
            link.pinned = False
        if effects.resets == "all":
            link.settings = ()
            self.settings = self.startup_settings
        elif effects.resets:
            name = effects.resets
            initial = dict(self.startup_settings).get(name)
            rest = without_setting(self.settings, name)
            link.settings = without_setting(link.settings or (), name)
            self.settings = with_setting(rest, name, initial) if initial is not None else rest
        self.codec = codec_of(self.settings)
        if effects.sets is not None and not link.pinned:
            self.settings = self.engine.interned(with_setting(self.settings, *effects.sets))
            link.settings = self.settings
            self.codec = codec_of(self.settings)

    def settle(self, link: ServerLink) -> None:
        """Give the connection back unless something holds it here."""
        if self.link is not link:
            return
        if link.broken:
            self._lost(link)
        elif (
            link.status == b"I"
            and not link.pinned
            and not link.unsynced
            and not link.cancelling
            and (self.running is None or self.running.phase is Phase.OVER)
        ):
            self.link = None
            self.engine.pool.give(link)

    def _lost(self, link: ServerLink) -> None:
        if self.link is link:
            self.link = None
            link.broken = True
            self._lost_state = lost_with(transaction=link.status != b"I", pinned=link.pinned)
            self.engine.pool.drop(link)

    # Endings.

    async def cancel(self) -> None:
        self._cancelled = True
        if self._acquiring is not None:
            self._acquiring.cancel()
        if self.running is not None:
            await self.running.stop()
        if self._arrow is not None:
            await self._arrow.cancel()

    async def sync(self) -> None:
        link = self.link
        if link is None or not link.unsynced:
            return
        if self.running is not None:
            await self.running.close()
        async with self._using(link):
            await link.sync()
        self.settle(link)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.engine.gone(self)
        await self.cancel()
        if self._arrow is not None:
            await self._arrow.close()
        link = self.link
        if link is None:
            return
        if self._busy:
            link.abort()
            return
        try:
            await self._restore(link)
        finally:
            link.broken = link.broken or not link.usable
            self.settle(link)
