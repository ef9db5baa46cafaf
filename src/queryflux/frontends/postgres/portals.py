"""The portals of one client.

A conversation runs one query at a time. A portal that is suspended at its row limit when another statement
comes is read to its end into memory first, as far as the client's budget goes.
"""

from typing import cast

from queryflux.frontends.postgres.answers import cut_rows
from queryflux.frontends.postgres.client import Client
from queryflux.frontends.postgres.moving import PIECE_ROWS, Skipped
from queryflux.frontends.postgres.prepared import OVERHEAD, Portal
from queryflux.model.endings import EndReason
from queryflux.model.errors import QueryFluxError
from queryflux.pipeline.face import TransactionStatus
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.errors import PostgresError

MAX_PORTALS = 256


class Portals:
    """Portals by name; the unnamed one is replaced by each Bind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: dict[str, Portal] = {}

    def named(self, name: str) -> Portal:
        """Raises PostgresError for an unknown name."""
        try:
            return self._open[name]
        except KeyError:
            raise PostgresError(f'portal "{name}" does not exist', "34000") from None

    def get(self, name: str) -> Portal | None:
        """The portal, if there is one."""
        return self._open.get(name)

    async def add(self, name: str, portal: Portal, size: int) -> None:
        """Keep a portal whose message had ``size`` bytes. Raises PostgresError for a name in use, or when
        there are too many or they hold too much."""
        old = self._open.get(name)
        if old is not None:
            if name:
                raise PostgresError(f'cursor "{name}" already exists', "42P03")
            await self._drop(old)
        elif len(self._open) >= MAX_PORTALS:
            raise PostgresError(f"more than {MAX_PORTALS} portals in one session", "53400")
        if name:
            self._take(portal, size + len(portal.statement.sql) + OVERHEAD)
        self._open[name] = portal

    def _take(self, portal: Portal, size: int) -> None:
        self._client.budget.take(size)
        portal.taken += size

    async def remove(self, name: str) -> None:
        """Drop a portal, if it is there."""
        portal = self._open.pop(name, None)
        if portal is not None:
            await self._drop(portal)

    async def clear(self) -> None:
        """Drop them all."""
        if self._open:
            portals, self._open = list(self._open.values()), {}
            for portal in portals:
                if portal.taken or portal.rows is not None or portal.running:
                    await self._drop(portal)

    async def transaction_over(self) -> None:
        """Drop them all unless a transaction is open: they do not outlive it."""
        if self._open and self._client.conversation.transaction is TransactionStatus.IDLE:
            await self.clear()

    async def _drop(self, portal: Portal) -> None:
        """End what a portal still runs. A client that has read enough ends its query well."""
        self._client.budget.give_back(portal.taken)
        portal.taken = 0
        if portal.rows is not None:
            await portal.rows.close()
        if portal.query is not None and not portal.finished:
            portal.finished = True
            await portal.query.close(EndReason.COMPLETED)

    # One query at a time.

    async def make_way(self, portal: Portal | None) -> None:
        """Read every other portal that is still running into memory. Raises PostgresError 53200 when that is
        too much; the portal is then of no more use."""
        for other in list(self._open.values()):
            if other is portal or not other.running or other.held is not None:
                continue
            try:
                await self._hold(other)
            except QueryFluxError:
                await self._drop(other)
                raise

    async def _hold(self, portal: Portal) -> None:
        if portal.rows is not None:
            await portal.rows.hold(lambda size: self._take(portal, size))
            return
        query, native = portal.query, portal.native
        assert query is not None
        assert native is not None
        native.max_rows = 0
        native.sync = False
        frames: list[bytes] = []
        while (frame := cast("bytes | None", await query.next())) is not None:
            self._take(portal, len(frame))
            frames.append(frame)
        portal.held = b"".join(frames)

    async def from_memory(self, portal: Portal, limit: int) -> None:
        """The next rows of a portal whose server has been read to the end."""
        outbox = self._client.outbox
        if not isinstance(outbox, Skipped):
            self._take_held(portal, limit)
            return
        while not portal.finished and (not limit or outbox.rows < limit):
            self._take_held(portal, min(limit - outbox.rows, PIECE_ROWS) if limit else PIECE_ROWS)
            await outbox.room()

    def _take_held(self, portal: Portal, limit: int) -> None:
        held = portal.held
        assert held is not None
        start = portal.held_at
        end = portal.held_at = cut_rows(held, limit, start) if limit else len(held)
        self._client.outbox.add(held if end - start == len(held) else held[start:end])
        portal.finished = end == len(held)
        if portal.finished:
            portal.held = b""
        else:
            self._client.outbox.add(messages.PORTAL_SUSPENDED)
