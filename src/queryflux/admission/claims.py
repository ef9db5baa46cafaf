"""Who answers for a query that several processes may be asked about: the claims of one instance, among those
of all. What every store holds: tests/contract/test_claim_store.py.

A query has one row, while it waits or while it runs, and one owner. The owner says every REFRESH_SECS that it
is alive; a claim that was not refreshed for STALE_SECS, by the store's own clock, is stale. Whatever an owner
does to its row it does on condition that the row is still its own, in the same statement, and is told when it
is not: then another instance has taken the query over, and its lease with it.

Every call raises StoreUnavailable when the store cannot be asked.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from queryflux.model.shared import Kept, SharedQuery, SharedRow

REFRESH_SECS = 15.0
STALE_SECS = 60.0
"""Four refreshes."""
MOST_LISTED = 1000


class ClaimStore(Protocol):
    """The claims of one instance."""

    @property
    def instance(self) -> str:
        """Whose claims these are."""

    async def relay_key(self) -> bytes:
        """A secret that exactly the processes of this database know."""

    async def wait(self, query: SharedQuery) -> bool:
        """A row for a query that waits here. False: it has one already, and another owner."""

    async def run(
        self, query: SharedQuery, cluster: str, backend_id: str, kept: Kept | None, *, waited: bool
    ) -> bool:
        """Its row says from now on that it runs; ``waited``: it has a row that says it waits. False: that
        row is not ours any more, or it has one that says it runs, and another owner."""

    async def move(self, query_id: str, kept: Kept) -> bool:
        """Its client has come a page further. False: not ours any more."""

    async def refresh(self, idle: Mapping[str, float]) -> dict[str, float]:
        """Our queries live, and were last asked for here so many seconds ago. Gives, for those that are
        still ours, how long ago anybody was last asked for them."""

    async def end(self, query_ids: Collection[str]) -> set[str]:
        """Rows of queries that have ended; gives those that were still ours."""

    async def give_up(self) -> set[str]:
        """Nobody owns the queries any more that wait here; gives them."""

    async def find(self, query_id: str) -> SharedRow | None:
        """The row of a query whose client asks for it, by our id or the engine's."""

    async def claim(self, row: SharedRow, *, alive: bool) -> SharedRow | None:
        """Take a query and its lease over from the owner that ``row`` names, in one statement. Unless
        ``alive``, only when its claim is stale. None: somebody else was faster, or its owner lives."""

    async def others(self) -> Sequence[tuple[SharedRow, str]]:
        """Queries of other instances, and of nobody, each with its engine's id (empty: it has none yet), the
        oldest first, at most MOST_LISTED."""

    async def stale(self, *, executing: bool, idle_secs: float) -> Sequence[SharedRow]:
        """Queries that run, or that wait, whose claim is stale and whose client has not asked for so
        long."""
