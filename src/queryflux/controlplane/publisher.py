"""The snapshot document that workers get: made of the configuration in use, serialised and compressed once
for each revision, and handed out as it is.

The process offers what it uses whenever its store was read. A document is made beside the loop; until it is
there, and while it cannot be made, the last one stays. A waiter looks at what is published and waits in the
same step, so no news is lost; it is woken by the next one, and a random moment later it answers, so that
thousands do not answer at once.

Confirmation: a document is as old as the last read of the store that said what is in it. It does not get
younger while the store cannot be read, or says something that cannot be used.
"""

import asyncio
import gzip
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from queryflux.config.snapshot import Snapshot
from queryflux.fleet import snapshot as wire
from queryflux.model.errors import NotConfigured, ShuttingDown
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.runtime.threads import in_thread

log = logging.getLogger(__name__)

STAGE = "snapshot_build"
"""What failures are counted under."""
COMPRESSION = 6
SPREAD_SECS = 0.5
SPREAD_PER_WAITER_SECS = 0.0005
"""Waiters answer within so long after news: the first at most, the second for each of them."""
EARLIER = 0.1
"""A wait without news ends at most this part of its time earlier: those that began together do not end so."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration in use, where it stands in order. ``read_at``: when (monotonic) the store said so."""

    snapshot: Snapshot
    epoch: str
    sequence: int
    read_at: float

    @property
    def position(self) -> tuple[str, int]:
        """Epoch and sequence."""
        return self.epoch, self.sequence

    def is_as(self, other: "Offer") -> bool:
        """Whether it is the same, perhaps read at another time."""
        return self.snapshot is other.snapshot and self.position == other.position


@dataclass(frozen=True, slots=True)
class Published:
    """A document. ``body`` is JSON, ``zipped`` the same in gzip."""

    revision: str
    epoch: str
    sequence: int
    body: bytes
    zipped: bytes

    @property
    def position(self) -> tuple[str, int]:
        """Epoch and sequence."""
        return self.epoch, self.sequence

    def __repr__(self) -> str:
        return f"Published({self.revision!r}, {self.epoch!r}, {self.sequence})"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who waits for news: what it runs, and the revision that it has refused."""

    revision: str
    epoch: str = ""
    sequence: int = -1
    rejected: str = ""

    def wants(self, there: Published) -> bool:
        """Whether this is news: of a new epoch or a higher sequence, and not known already."""
        return self.is_older_than(there) and there.revision not in (self.revision, self.rejected)

    def is_older_than(self, there: Published) -> bool:
        """Whether what is published comes after what the asker has, be it the same revision."""
        return there.epoch != self.epoch or there.sequence > self.sequence


@dataclass(frozen=True, slots=True)
class Publishing:
    """How it goes. ``failure``: why the newest configuration is not what is published, and since when."""

    published: Published | None
    age: float | None
    waiting: int
    failure: str
    failing_since: float | None


class SnapshotPublisher:
    """Keeps the document of the configuration in use."""

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Metrics,
        build_secs: float,
        most_sends: int,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``build_secs``: a document that takes longer to make counts as failed until it is there.
        ``most_sends`` bounds the bodies on their way; ``chance`` is from 0 to 1."""
        self._clock = clock
        self._failures = metrics.counter("queryflux_config_reload_failures_total", stage=STAGE)
        self._build_secs = build_secs
        self._chance = chance
        self.sends = asyncio.Semaphore(most_sends)
        self._tasks = TaskGroup("snapshot")
        self._building = False
        self._offer: Offer | None = None
        self._published: Published | None = None
        self._made_of: Offer | None = None
        self._confirmed_at = 0.0
        self._waiters: dict[asyncio.Future[float], None] = {}
        self._draining = False
        self._failure = ""
        self._failing_since: float | None = None

    # What is there.

    @property
    def current(self) -> Published:
        """The document. Raises NotConfigured before there is one."""
        if self._published is None:
            raise NotConfigured("no snapshot has been made yet", hint="retry in a moment")
        return self._published

    def age(self) -> float:
        """Seconds since the store was last seen to say what is published."""
        return max(0.0, self._clock.monotonic() - self._confirmed_at)

    @property
    def state(self) -> Publishing:
        """For operators."""
        there = self._published
        age = self.age() if there is not None else None
        return Publishing(there, age, len(self._waiters), self._failure, self._failing_since)

    # What the process tells.

    def offer(self, offer: Offer) -> None:
        """This is in use, and what the store says. The document of it is made in the background."""
        self._offer = offer
        self._look()

    def confirm(self, epoch: str, sequence: int, read_at: float) -> bool:
        """The store has said where it is; False: that is not what is in use."""
        offer = self._offer
        if offer is None or offer.position != (epoch, sequence):
            return False
        self.offer(Offer(offer.snapshot, epoch, sequence, max(read_at, offer.read_at)))
        return True

    async def built(self) -> None:
        """Return when no document is being made."""
        await self._tasks.wait()

    def _look(self) -> None:
        offer = self._offer
        if offer is None:
            return
        if self._made_of is not None and self._made_of.is_as(offer):
            self._confirmed_at = offer.read_at
        elif not self._building:
            self._building = True
            self._tasks.spawn("build", self._build(offer))

    async def _build(self, offer: Offer) -> None:
        slow = self._clock.call_later(self._build_secs, self._too_slow)
        try:
            published = await in_thread("snapshot", _made, offer, self._clock.now(), self._clock.monotonic())
        except ValueError as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("making the snapshot for workers failed inside QueryFlux")
            self._failed(f"internal error: {type(error).__name__}")
        else:
            self._publish(published, offer)
        finally:
            slow.cancel()
            self._building = False
        if self._offer is not None and not self._offer.is_as(offer):
            self._look()

    def _too_slow(self) -> None:
        self._failed(f"making it takes more than {self._build_secs:g} s")

    def _failed(self, reason: str) -> None:
        self._failures.inc()
        if reason != self._failure:
            log.error("workers are still served the snapshot before: %s", reason)
        self._failure = reason
        self._failing_since = self._failing_since or self._clock.now()

    def _publish(self, published: Published, offer: Offer) -> None:
        if self._failure:
            log.info("workers are served the configuration in use again")
        self._failure, self._failing_since = "", None
        self._published, self._made_of, self._confirmed_at = published, offer, offer.read_at
        self._look()  # the store may have said so again meanwhile
        self._wake(min(SPREAD_SECS, len(self._waiters) * SPREAD_PER_WAITER_SECS))

    # Who waits.

    async def wait(self, asker: Asker, seconds: float) -> Published | None:
        """What is published, as soon as that is news to the asker; None when there was none for so long, when
        only the order changed and not the revision, or when the process begins to drain. Raises NotConfigured
        before there is a document, ShuttingDown during the drain."""
        if self._draining:
            raise ShuttingDown("this control plane is shutting down", hint="ask another one")
        until = self._clock.monotonic() + seconds * (1 - EARLIER * self._chance())
        while not asker.wants(self.current):
            woken = await self._news(until - self._clock.monotonic())
            there = self.current
            if asker.wants(there):  # though time is over: it came in the last moment
                break
            same = there.revision == asker.revision and asker.is_older_than(there)
            if same or not woken or self._draining:
                return None
        return self.current

    async def _news(self, seconds: float) -> bool:
        """Wait for the next document; False when there was none for so long."""
        if seconds <= 0:
            return False
        waiter: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        timer = self._clock.call_later(seconds, waiter.cancel)
        try:
            await asyncio.wait({waiter})
        finally:
            timer.cancel()
            del self._waiters[waiter]
        if waiter.cancelled():
            return False
        if pause := waiter.result() * self._chance():
            await self._clock.sleep(pause)
        return True

    def _wake(self, spread: float) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(spread)

    def begin_drain(self) -> None:
        """All waits are answered at once, and there are no new ones."""
        self._draining = True
        self._wake(0)

    async def close(self) -> None:
        """Make no more documents."""
        self.begin_drain()
        await self._tasks.close()


def _made(offer: Offer, now: float, monotonic: float) -> Published:
    revision, body = wire.build(
        offer.snapshot,
        epoch=offer.epoch,
        sequence=offer.sequence,
        generated_at=now,
        confirmed_at=now - (monotonic - offer.read_at),
    )
    zipped = gzip.compress(body, COMPRESSION, mtime=0)
    return Published(revision, offer.epoch, offer.sequence, body, zipped)
