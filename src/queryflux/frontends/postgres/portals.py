"""The portals of one client.

A conversation runs one query at a time. A portal that is suspended at its row limit when another statement
comes is read to its end into memory first, HELD_BYTES at most.
"""

from typing import cast

from queryflux.engines.port import TransactionStatus
from queryflux.frontends.postgres.answers import cut_rows
from queryflux.frontends.postgres.client import Client
from queryflux.frontends.postgres.prepared import Portal
from queryflux.model.endings import EndReason
from queryflux.model.errors import NotSupported
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.errors import PostgresError

HELD_BYTES = 64 * 1024 * 1024
MAX_PORTALS = 1_000


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

    async def add(self, name: str, portal: Portal) -> None:
        """Raises PostgresError for a name in use, or when there are too many."""
        old = self._open.get(name)
        if old is not None:
            if name:
                raise PostgresError(f'cursor "{name}" already exists', "42P03")
            await self._drop(old)
        elif len(self._open) >= MAX_PORTALS:
            raise PostgresError(f"more than {MAX_PORTALS} portals in one session", "53400")
        self._open[name] = portal

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
                await self._drop(portal)

    async def transaction_over(self) -> None:
        """Drop them all unless a transaction is open: they do not outlive it."""
        if self._open and self._client.conversation.transaction is TransactionStatus.IDLE:
            await self.clear()

    async def _drop(self, portal: Portal) -> None:
        """End what a portal still runs. A client that has read enough ends its query well."""
        if portal.rows is not None:
            await portal.rows.close()
        if portal.query is not None and not portal.finished:
            portal.finished = True
            await portal.query.close(EndReason.COMPLETED)

    # One query at a time.

    async def make_way(self, portal: Portal | None) -> None:
        """Read every other portal that is still running into memory. Raises NotSupported when that is too
        much."""
        for other in self._open.values():
            if other is portal or not other.running or other.frames is not None:
                continue
            if not await self._hold(other):
                await self._drop(other)
                raise NotSupported(
                    f"a portal with more than {HELD_BYTES // 2**20} MiB of rows to come is in the way",
                    hint="fetch it to its end, or close it, before the next statement",
                )

    async def _hold(self, portal: Portal) -> bool:
        if portal.rows is not None:
            return await portal.rows.hold(HELD_BYTES)
        query, native = portal.query, portal.native
        assert query is not None
        assert native is not None
        native.max_rows = 0
        native.sync = False
        frames: list[bytes] = []
        size = 0
        while (frame := cast("bytes | None", await query.next())) is not None:
            frames.append(frame)
            size += len(frame)
            if size > HELD_BYTES:
                return False
        portal.frames = frames
        portal.held = b"".join(frames)
        return True

    def from_memory(self, portal: Portal, limit: int) -> None:
        """The next rows of a portal whose server has been read to the end."""
        end = cut_rows(portal.held, limit) if limit else len(portal.held)
        rows, portal.held = portal.held[:end], portal.held[end:]
        self._client.outbox.add(rows)
        portal.finished = not portal.held
        if portal.held:
            self._client.outbox.add(messages.PORTAL_SUSPENDED)
