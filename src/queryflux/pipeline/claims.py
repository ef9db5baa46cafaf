"""The queries of this process that others of its database may be asked about, and those of others that it is
asked about.

Of each of ours the database has a row from the moment that its client gets a URI until it ends; the row says
who answers for it. Whoever takes a query over changes that, and we learn it with whatever we do next to the
row: before a query that waited goes to its engine, when it ends, with the refresh every REFRESH_SECS, and,
where others may take from us although we live, whenever we are asked about it. Then our part is dropped
without a record, so that there is one, of the last owner.

A database that does not answer holds up nothing but what only it can say. Once a call has failed, nobody asks
on behalf of a query of ours until one has succeeded (arrears.py). An ending waits for PATIENCE_SECS at most.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from queryflux.admission.claims import REFRESH_SECS, STALE_SECS, ClaimStore
from queryflux.model.errors import QueryTakenOver, StoreUnavailable
from queryflux.model.shared import Kept, SharedQuery, SharedRow
from queryflux.pipeline.arrears import Arrears
from queryflux.pipeline.face import Claim
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup, done_within

log = logging.getLogger(__name__)

MARGIN_SECS = 15.0
"""So long before our claim could be stale we do not rely on it any more."""
PATIENCE_SECS = 0.5
"""So long an ending waits to hear that the query is still ours: what is said later is too late for its
record."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a row is to say."""

    executing: bool
    cluster: str = ""
    backend_id: str = ""
    kept: Kept | None = None


class Subject(Protocol):
    """A query as its door has it."""

    def shared(self, *, executing: bool) -> SharedQuery:
        """What others need to know of it."""

    def standing(self) -> Standing:
        """Where it stands now."""

    def will_be_kept(self) -> bool:
        """Its engine does not begin in earnest before it has been told where pages are kept."""

    def is_wanted(self) -> bool:
        """Its client has not had its last page, and may ask for it."""

    def idle(self) -> float:
        """Seconds since it was last asked for here."""

    def asked_elsewhere(self, idle: float) -> None:
        """Somebody was asked for it so many seconds ago."""

    async def drop(self) -> None:
        """It is not ours any more."""


class OwnClaim(Claim):
    """Our claim on one query."""

    def __init__(self, claims: "Claims", query_id: str, subject: Subject) -> None:
        self.id = query_id
        self.subject = subject
        self.lost = False
        self.told: Standing | None = None
        """What its row says; None: it has none."""
        self.doubtful = False
        """The database did not answer, and may have a row although ``told`` says no."""
        self.confirmed = 0.0
        """When the database last said that it is ours, by the monotonic clock."""
        self._claims = claims
        self.ended = False
        """Its row is to go, or has gone."""
        self._turn = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def taken(self, standing: Standing) -> None:
        """It has a row, and that is ours since a moment ago."""
        self.told = standing
        self._claims.keep(self)

    async def tell(self) -> None:
        """Before its client gets a URI: what others need to answer in our place is in the database, or, if
        that cannot be reached, will be with the next refresh. Raises QueryTakenOver."""
        standing = self.subject.standing()
        told = self.told
        if self._claims.arrears.away and standing != told and not self.lost:
            self._claims.arrears.tell_later(self)
        elif told is None or self.lost or not _suffices(told, standing):
            await self.written()
            await self._write()
        elif standing != told and self._writing is None:
            # Where the next page is may be written while the client has this one.
            self._writing = self._claims.tasks.spawn(f"place of {self.id}", self._write_later())

    async def written(self) -> None:
        """What is being written is. Raises QueryTakenOver."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self.lost:
            raise QueryTakenOver(f"query {self.id} was taken over")

    async def _write_later(self) -> None:
        try:
            await self._write()
        except QueryTakenOver:
            log.debug("query %s was taken over", self.id)
        finally:
            self._writing = None

    async def _write(self) -> None:
        try:
            async with self._turn:
                await self._claims.write(self, self.subject.standing())
        except asyncio.CancelledError:
            self.doubtful = True
            raise
        except StoreUnavailable as error:
            self.doubtful = True
            self._claims.arrears.failed("tell", error)
            self._claims.arrears.tell_later(self)

    async def dispatch(self) -> None:
        if self.told is None:
            return
        if self._claims.arrears.away and self._claims.lately(self):
            self._claims.arrears.tell_later(self)  # while its row says that it waits, others may begin it
            return
        try:
            async with self._turn:
                if self.subject.will_be_kept():
                    await self._claims.confirm(self)
                else:
                    await self._claims.write(self, self.subject.standing())
        except StoreUnavailable as error:
            self._claims.arrears.failed("dispatch", error)
            if not self._claims.lately(self):
                raise
            self._claims.arrears.tell_later(self)

    async def held(self, *, surely: bool = False) -> bool:
        """Whether it is ours. Unless ``surely``, what we heard lately is believed if nobody may take from us
        while we live."""
        if self.told is None or self.ended or self.lost or self._claims.arrears.away:
            return not self.lost
        if not surely and self._claims.reachable and self._claims.lately(self):
            return True
        try:
            await self.confirm()
        except StoreUnavailable as error:
            self._claims.arrears.failed("confirm", error)
        return not self.lost

    async def confirm(self) -> None:
        """Ask whether it is ours, and let go of it if it is not. Raises StoreUnavailable."""
        async with self._turn:
            if self.told is None or self.ended or self.lost:
                return
            with suppress(QueryTakenOver):
                await self._claims.confirm(self)

    async def tell_again(self) -> None:
        """What could not be told before."""
        if not self.ended:
            with suppress(QueryTakenOver):
                await self._write()

    async def end(self) -> bool:
        if not self.subject.is_wanted():
            await self.gone()
        elif self.told is not None and not (self.ended or self.lost or self._claims.arrears.away):
            await self._claims.briefly(f"owner of {self.id}", self.held(surely=True))
        return not self.lost

    async def gone(self) -> None:
        """Nobody will be asked for it any more: its row goes, later if the database is away."""
        self._claims.forget(self)
        unsure = self.doubtful or self._turn.locked()
        if self.lost or self.ended or (self.told is None and not unsure):
            return
        self.ended = True
        if self._claims.arrears.away:
            self.doubtful = unsure  # what is under way may be carried out after all
            self._claims.arrears.end_later(self)
        else:
            await self._claims.briefly(f"end of {self.id}", self._end())

    async def _end(self) -> None:
        try:
            async with self._turn:
                await self._claims.end(self)
        except asyncio.CancelledError:
            self.doubtful |= self._turn.locked()
            self._claims.arrears.end_later(self)
            raise


def _suffices(told: Standing, standing: Standing) -> bool:
    """Whoever takes it over now can go on: what its row says is one page behind at the most."""
    if told.kept is not None and standing.kept is not None:
        return standing.kept.token - told.kept.token <= 1
    return told.executing or not standing.executing


class Claims:
    """All of them. ``reachable``: others relay to us instead of taking our queries over while we live."""

    def __init__(
        self,
        store: ClaimStore,
        clock: Clock,
        metrics: Metrics,
        *,
        reachable: bool,
        refresh_secs: float = REFRESH_SECS,
        stale_secs: float = STALE_SECS,
        chance: Random | None = None,
    ) -> None:
        self.tasks = TaskGroup("claims")
        self.instance = store.instance
        self.reachable = reachable
        self.key = b""
        """What processes of this database prove themselves to each other by, once started."""
        self.draining = False
        self._store = store
        self._clock = clock
        self._refresh_secs = refresh_secs
        self._sure_secs = max(stale_secs - MARGIN_SECS, stale_secs / 2)
        self._ours: dict[str, OwnClaim] = {}
        self.arrears = Arrears(store, clock, metrics, chance)

    async def start(self) -> None:
        """Begin to refresh. Raises StoreUnavailable."""
        self.key = await self._store.relay_key()
        self.tasks.spawn("refresh", self._keep_refreshing())
        self.tasks.spawn("look", self.arrears.keep_looking(self.refresh))

    async def close(self) -> None:
        """For when no query is left. What could not be deleted is left to be swept."""
        await self.tasks.close()
        if unended := self.arrears.unended:
            try:
                await self._store.end(unended)
            except StoreUnavailable as error:
                log.warning("%d rows of ended queries are left: %s", len(unended), error.message)

    def claim(self, query_id: str, subject: Subject) -> OwnClaim:
        """A claim on a query of ours, of which nobody else knows yet."""
        return OwnClaim(self, query_id, subject)

    # For claims.

    def keep(self, claim: OwnClaim) -> None:
        """It is ours, as of now."""
        claim.confirmed = self._clock.monotonic()
        if not claim.ended:
            self._ours[claim.id] = claim
        self.arrears.answered()

    def lately(self, claim: OwnClaim) -> bool:
        """Its owner was confirmed so lately that nobody can have found it stale."""
        return self._clock.monotonic() - claim.confirmed < self._sure_secs

    def forget(self, claim: OwnClaim) -> None:
        """It ends: there is nothing to refresh or to tell of it any more."""
        self._ours.pop(claim.id, None)
        self.arrears.forget(claim)

    async def briefly(self, name: str, work: Coroutine[Any, Any, object]) -> None:
        """Do it, in the background once it has taken PATIENCE_SECS."""
        await done_within(self.tasks.spawn(name, work), PATIENCE_SECS, self._clock)

    async def write(self, claim: OwnClaim, standing: Standing) -> None:
        """Make its row say where it stands. Raises QueryTakenOver, StoreUnavailable."""
        told = claim.told
        if claim.lost or standing == told:
            return
        if not standing.executing:
            if told is not None:
                return  # it waits once more, for another cluster than it was on
            ours = await self._store.wait(claim.subject.shared(executing=False))
        elif told is not None and told.kept is not None and standing.kept is not None:
            ours = await self._store.move(claim.id, standing.kept)
        else:
            ours = await self._store.run(
                claim.subject.shared(executing=True),
                standing.cluster,
                standing.backend_id or claim.id,
                standing.kept,
                waited=told is not None and not told.executing,
            )
        if not ours:
            await self._lose(claim)
            raise QueryTakenOver(f"query {claim.id} was taken over")
        claim.told = standing
        self.keep(claim)
        if self.draining and not standing.executing:
            await self.give_up()

    async def confirm(self, claim: OwnClaim) -> None:
        """Raises QueryTakenOver when it is not ours, StoreUnavailable."""
        if claim.id not in await self._store.refresh({claim.id: claim.subject.idle()}):
            await self._lose(claim)
            raise QueryTakenOver(f"query {claim.id} was taken over")
        self.keep(claim)

    async def end(self, claim: OwnClaim) -> None:
        """Its row goes; or that was not ours, and it is lost. A row that cannot be deleted is, later."""
        self.forget(claim)
        try:
            ours = claim.id in await self._store.end([claim.id]) or claim.told is None
        except StoreUnavailable as error:
            self.arrears.failed("end", error)
            self.arrears.end_later(claim)
        else:
            self.arrears.answered()
            claim.lost = not ours
            if claim.doubtful:
                self.arrears.end_later(claim)

    async def _lose(self, claim: OwnClaim) -> None:
        self._ours.pop(claim.id, None)
        if not claim.lost:
            claim.lost = True
            log.info("query %s is answered by another process now", claim.id)
            self.tasks.spawn(f"drop {claim.id}", claim.subject.drop())

    # Now and then.

    async def _keep_refreshing(self) -> None:
        while True:
            await self._clock.sleep(self._refresh_secs)
            await self.arrears.tried("refresh", self.refresh())

    async def refresh(self) -> None:
        """Say that we live, and what could not be said before. Raises StoreUnavailable."""
        await self.arrears.pay()
        ours = list(self._ours.values())
        held = await self._store.refresh({claim.id: claim.subject.idle() for claim in ours})
        self.arrears.answered()
        for claim in ours:
            if claim.id in held:
                if claim.id in self._ours:
                    self.keep(claim)
                    claim.subject.asked_elsewhere(held[claim.id])
            elif claim.id in self._ours:
                await claim.confirm()  # it may have moved from waiting to running at that moment

    async def give_up(self) -> None:
        """We drain: what waits here is anybody's now."""
        self.draining = True
        if all(claim.told is None or claim.told.executing for claim in self._ours.values()):
            return
        try:
            given = await self._store.give_up()
            self.arrears.answered()
            for query_id in given:
                claim = self._ours.get(query_id)
                if claim is not None:
                    await self._lose(claim)
        except StoreUnavailable as error:
            self.arrears.failed("give up", error)

    # Queries of others.

    async def find(self, query_id: str) -> SharedRow | None:
        """What the database says of a query that is asked for, by our id or the engine's. Raises
        StoreUnavailable."""
        return await self.arrears.asked("find", self._store.find(query_id))

    async def others(self) -> Sequence[tuple[SharedRow, str]]:
        """Queries of other processes, each with its engine's id. Raises StoreUnavailable."""
        try:
            others = await self._store.others()
        except StoreUnavailable:
            self.arrears.count("list")  # many rows, for an operator: slow is not away
            raise
        self.arrears.answered()
        return others

    async def take(self, row: SharedRow, *, alive: bool = False) -> SharedRow | None:
        """Make it ours, as ClaimStore.claim. Raises StoreUnavailable."""
        taken = await self.arrears.asked("take over", self._store.claim(row, alive=alive))
        if taken is not None:
            log.info("query %s is taken over from %s", row.query.id, row.owner or "nobody")
        return taken
