"""The quick way of a relayed statement: the client's own bytes to an idle connection, the answer as it comes.

It is for a plain statement that its door hands over with its bytes, which leaves nothing behind in the
session, when a connection with the client's settings is at hand and has what was prepared. Nobody waits:
``ask`` sends it, and the link's stream calls back with the answer. That must be in one piece, go well and
leave the connection idle. Whatever is not so goes the general way: before anything is sent through
``PostgresConnection.execute``, later as any RelayFrames, from ``begin`` on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from queryflux.engines.port import AskedFrames
from queryflux.engines.postgres.effects import effects_of, leaves_nothing
from queryflux.engines.postgres.phases import Phase
from queryflux.engines.postgres.relay import RelayFrames
from queryflux.engines.postgres.settings import UTF8
from queryflux.engines.postgres.told import agrees
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.native import BoundQuery, SimpleQuery

if TYPE_CHECKING:
    from queryflux.engines.postgres.connection import PostgresConnection
    from queryflux.engines.postgres.link import ServerLink, StatementKey

_BOUND = len(wire.BOUND)


class QuickFrames(RelayFrames, AskedFrames):
    """An answer that is in ``native.whole`` once ``answered`` has been called, or else comes in frames after
    ``begin``."""

    native: SimpleQuery | BoundQuery
    effects = None
    complete = False
    """Whether it is in ``native.whole``."""
    _expecting = True
    """The link's stream is to call us."""

    def __init__(
        self,
        owner: "PostgresConnection",
        link: "ServerLink",
        native: SimpleQuery | BoundQuery,
        key: "StatementKey | None",
        answered: Callable[[], object],
    ) -> None:
        self._owner = owner
        self.link = link
        self.native = native
        self._tell = answered
        if key is not None:
            self._key = key
            self._cached = True

    def arrived(self, chunk: bytes) -> None:
        """The first that the server says; empty when it has closed the connection."""
        native, link = self.native, self.link
        self._expecting = False
        if isinstance(native, SimpleQuery):
            rows = wire.whole_text_rows(chunk)
        elif chunk.startswith(wire.BOUND):
            rows = wire.whole_rows(chunk, _BOUND)
        else:
            rows = -1
        if rows >= 0:
            native.whole = chunk
            self.rows = rows
            self.complete = True
            self.phase = Phase.OVER
            owner = self._owner
            owner.running = owner.link = None
            self._tell()  # the client first
            owner.engine.pool.back(link)
            return
        if chunk:
            link.messages.feed(chunk)
        self._tell()

    async def begin(self) -> None:
        """Go on the general way. Raises as ``EngineConnection.execute``."""
        self._expect_no_more()
        try:
            self._first = await self._pull()
        except BaseException:
            await self.close()
            raise

    async def stop(self) -> None:
        if self._expect_no_more():
            self._tell()
        await super().stop()

    def _expect_no_more(self) -> bool:
        """What comes is for whoever reads from now on. Whether we still waited for it."""
        expecting, self._expecting = self._expecting, False
        if expecting:
            self.link.stream.expect_no_more()
        return expecting


def ask(owner: "PostgresConnection", native: object, answered: Callable[[], object]) -> QuickFrames | None:
    """As ``EngineConnection.ask``, for a connection that holds nothing."""
    if isinstance(native, SimpleQuery):
        if native.message is None or not leaves_nothing(native.text):
            return None
    elif not isinstance(native, BoundQuery) or effects_of(native.sql) is not None:
        return None
    if owner.codec is not UTF8:
        return None
    pool = owner.engine.pool
    link = pool.ready(owner.settings)
    if link is None:
        return None
    key = None
    if isinstance(native, SimpleQuery):
        message = native.message
    else:
        key = (native.sql, native.parameter_oids)
        name = link.prepared(key)
        message = None
        if name and (not native.told or agrees(link, native)):
            message = wire.bind_to(name, native.rest, native.bound)
    frames = QuickFrames(owner, link, native, key, answered)
    stream = link.stream
    if not message or not stream.expect(frames.arrived):
        pool.back(link)
        return None
    owner.link = link
    owner.running = frames
    stream.write(message)
    return frames
