"""Following the configuration of the control plane: what a worker runs, where it came from, how sure that is.

A worker without a configuration gets it with a plain GET, or, while no control plane answers, from a peer.
One that has a peer's copy asks with conditional GETs, which are answered at once, until a control plane has
confirmed or replaced it. After that it waits for news: a call that is answered when there is some, and after
pollTimeoutSecs when there is none. Each wait says what the worker has and what it has refused, so nothing
that happens between two waits is lost.

Order. Every answer says where its revision stands: an epoch, and a sequence in it. What does not come after
all that was heard of (order.py) is not news, whoever serves it: of two control planes one may lag. Such an
answer confirms nothing either.

Activation is strict: everything that a snapshot needs is prepared, or nothing changes. A revision that could
not be used is remembered, and not fetched again before there is another. The bytes of what is in use are kept
for peers, in memory only.
"""

import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from urllib.parse import urlencode

from queryflux.config.problems import in_short
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import Refusal, SnapshotRefused, WorkerSnapshot
from queryflux.model.errors import InternalError, QueryFluxError, StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup
from queryflux.worker.offer import Offer, PeerSource, received
from queryflux.worker.order import Order, Position, Seen
from queryflux.worker.port import ControlPlane, Reply, SecretRefused
from queryflux.worker.said import About, about
from queryflux.worker.state import ConfigEvent, ConfigState, after
from queryflux.worker.status import Rejected, SyncStatus

log = logging.getLogger(__name__)

STAGE = "worker_activate"
"""What snapshots that cannot be used are counted under."""
GET_SECS = 15.0
LISTEN_SECS = 10.0
"""So much longer than a wait may last its answer may take."""
FIRST_RETRY_SECS = 0.5
LAST_RETRY_SECS = 8.0
EAGER_RETRY_SECS = 1.0
"""The longest pause of a worker that has no configuration yet."""
SECRET_RETRY_SECS = 30.0
POLL_SECS = 5.0
"""Between two looks at a control plane that knows no waits, or that sends what is no news."""
PAUSE_SECS = 0.5
"""After a wait that was answered at once without news."""
AFTER_RESTORE = "after a restore, run queryflux migrate --new-epoch"
OLDER_SECS = 60.0
"""How long a control plane that knew no waits is taken not to know any."""

Swap = Callable[[], None]
Prepare = Callable[[WorkerSnapshot], Awaitable[Swap]]
"""Makes all that a snapshot needs; what it gives puts it into use, at once. Raises QueryFluxError."""


class Sync:
    """Keeps a worker at what its control plane says."""

    def __init__(
        self,
        control_plane: ControlPlane,
        prepare: Prepare,
        clock: Clock,
        metrics: Metrics,
        *,
        poll_secs: float,
        peers: PeerSource | None = None,
        changed: Callable[[], None] = lambda: None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``poll_secs`` is how long a wait lasts; ``changed`` is called after what operators look for;
        ``chance`` is from 0 to 1."""
        self._control_plane = control_plane
        self._prepare = prepare
        self._clock = clock
        self._poll_secs = poll_secs
        self._peers = peers
        self._changed = changed
        self._chance = chance
        self._stale = metrics.gauge("queryflux_worker_config_stale")
        self._refusals = metrics.counter("queryflux_config_reload_failures_total", stage=STAGE)
        self._tasks = TaskGroup("configuration")
        self.state = ConfigState.UNCONFIGURED
        self.active: WorkerSnapshot | None = None
        self.stands: Position | None = None
        """Where that was when it was last confirmed. What was heard of since, and could not be used here, may
        be of use to a peer."""
        self._source: str | None = None
        self._order = Order()
        self._rejected: Rejected | None = None
        self._confirmed_at = 0.0
        self._succeeded_at: float | None = None
        self._failures = 0
        self._failure = ""
        self._failing_since: float | None = None
        self._failing_as: type[StoreUnavailable] | None = None
        self._behind = ""
        self._retry_secs = FIRST_RETRY_SECS
        self._older_until = 0.0
        self._too_old = False
        self._stale.set(0)

    def start(self) -> None:
        """Begin to follow."""
        self._tasks.spawn("follow", self._follow())

    async def close(self) -> None:
        """Follow no more; what is being prepared is given up."""
        await self._tasks.close()

    # How it is.

    @property
    def confirmed_age(self) -> float | None:
        """Seconds since a control plane confirmed what is in use."""
        return None if self.active is None else max(0.0, self._clock.monotonic() - self._confirmed_at)

    @property
    def position(self) -> Position | None:
        """The latest that was heard of."""
        return self._order.position

    @property
    def status(self) -> SyncStatus:
        """For operators."""
        now = self._clock.monotonic()
        return SyncStatus(
            self.state,
            self.active.revision if self.active is not None else None,
            self._order.position,
            self._source,
            self._is_copy(),
            self.confirmed_age,
            now - self._succeeded_at if self._succeeded_at is not None else None,
            self._failures,
            self._failure,
            now - self._failing_since if self._failing_since is not None else None,
            self._rejected,
            self._behind,
        )

    def _is_copy(self) -> bool:
        """What is in use is a peer's, and no control plane has confirmed it."""
        return self._source == "peer"

    # One round after the other.

    async def _follow(self) -> None:
        while True:
            try:
                pause = await self._turn()
            except Exception:
                log.exception("following the control plane failed inside QueryFlux; going on")
                pause = LAST_RETRY_SECS
            if pause:
                await self._clock.sleep(pause * (0.5 + self._chance() / 2))

    async def _turn(self) -> float:
        """One round, or what its failure means; gives how long to rest after it."""
        try:
            return await self._round()
        except SecretRefused as error:
            self._failed(ConfigEvent.SECRET_REFUSED, error)
            return SECRET_RETRY_SECS
        except StoreUnavailable as error:
            self._failed(ConfigEvent.UNREACHABLE, error)
            return await self._after_failure()

    async def _round(self) -> float:
        """One question and what comes of it; gives how long to rest before the next, 0 for not at all."""
        waits = self._waits()
        began = self._clock.monotonic()
        reply = await (self._wait() if waits else self._get())
        if waits and reply.status == 404:
            self._older_until = began + OLDER_SECS
            return 0.0
        news = await self._take(reply, about(reply, began, self._clock.monotonic()))
        if reply.status == 200 and not news:
            return POLL_SECS
        if not waits:
            return 0.0 if self._waits() else POLL_SECS
        took = self._clock.monotonic() - began
        return 0.0 if news or took > PAUSE_SECS else PAUSE_SECS

    def _waits(self) -> bool:
        """Whether to wait for news, and not to ask what there is: that tells at once who answers again."""
        if self._failure or self._clock.monotonic() < self._older_until:
            return False
        settled = self.state in {ConfigState.FRESH, ConfigState.REJECTED}
        return settled or (self.state is ConfigState.UNCONFIGURED and self._rejected is not None)

    async def _get(self) -> Reply:
        known = [self._revision(), self._rejected.revision if self._rejected is not None else ""]
        tags = ", ".join(f'"{revision}"' for revision in known if revision)
        headers = {"If-None-Match": tags} if tags else {}
        return await self._control_plane.call("GET", CONFIG, headers=headers, seconds=GET_SECS)

    async def _wait(self) -> Reply:
        position = self._order.position or Position("", -1)
        asked = {
            "revision": self._revision(),
            "epoch": position.epoch,
            "sequence": position.sequence,
            "rejected": self._rejected.revision if self._rejected is not None else "",
            "timeoutSecs": f"{self._poll_secs:g}",
        }
        path = f"{CONFIG_WAIT}?{urlencode({key: value for key, value in asked.items() if value != ''})}"
        return await self._control_plane.call("GET", path, seconds=self._poll_secs + LISTEN_SECS)

    def _revision(self) -> str:
        return self.active.revision if self.active is not None else ""

    # Answers.

    async def _take(self, reply: Reply, told: About) -> bool:
        """An answer about the configuration; whether it was news. Raises StoreUnavailable when it is none."""
        if reply.status not in (200, 304):
            raise StoreUnavailable(f"the control plane answered {reply.status} to who asks for configuration")
        if reply.status == 304:
            if not self._revision() and self._rejected is None:
                raise StoreUnavailable(
                    "304 (not modified) was answered to a worker that has no configuration: is there a cache "
                    "in between, or a proxy that adds If-None-Match?"
                )
            self._succeeded()
            self._not_modified(told)
            return False
        try:
            snapshot = await received(reply.body)
        except SnapshotRefused as error:
            return self._unreadable(told, error)
        self._succeeded()
        return await self._offered(snapshot, told)

    def _not_modified(self, told: About) -> None:
        """Nothing new: does it confirm what is in use?"""
        if told.revision is not None and told.revision == self._revision():
            self._same(told.position, told.seen)
        else:
            self._no_news(told.position, told.seen, told.revision)

    def _has_refused(self, revision: str | None) -> bool:
        return self._rejected is not None and revision == self._rejected.revision

    async def _offered(self, snapshot: WorkerSnapshot, told: About) -> bool:
        """A snapshot that can be read."""
        position = Position(snapshot.epoch, snapshot.sequence)
        if snapshot.revision == self._revision():
            self._same(position, told.seen)
            return False
        if self._has_refused(snapshot.revision) or not self._order.is_news(position, told.seen):
            self._no_news(position, told.seen, snapshot.revision)
            return False
        try:
            swap = await self._ready(snapshot)
        except QueryFluxError as error:
            heard = told._replace(revision=snapshot.revision, position=position)
            self._reject(ConfigEvent.COMPILE_FAILED, heard, in_short(error))
            return True
        before = self._order.position
        self._use(snapshot, swap, position, "controlPlane", told.seen)
        self._rejected, self._behind = None, ""
        self._on(ConfigEvent.SNAPSHOT_RECEIVED)
        log.info("the configuration is %s now, at %d", snapshot.revision, snapshot.sequence)
        if before is not None and before.epoch != position.epoch:
            log.warning(
                "that is epoch %s, and was %s: another database, or one that was restored",
                *(position.epoch, before.epoch),
            )
        self._changed()
        return True

    async def _ready(self, snapshot: WorkerSnapshot) -> Swap:
        """Raises QueryFluxError, for every failure."""
        try:
            return await self._prepare(snapshot)
        except QueryFluxError:
            raise
        except Exception as error:
            log.exception("preparing a configuration failed inside QueryFlux")
            raise InternalError(f"internal error: {type(error).__name__}") from error

    def _use(self, snapshot: WorkerSnapshot, swap: Swap, position: Position, source: str, seen: Seen) -> None:
        swap()
        self.active, self.stands, self._source = snapshot, position, source
        self._order.advance(position, seen)
        self._confirmed_at = seen.latest
        self._too_old = False

    def _no_news(self, position: Position | None, seen: Seen, revision: str | None) -> None:
        """A control plane has something else, which was refused here before, or is not the latest."""
        refused = self._has_refused(revision)
        before, self._behind = self._behind, self._why_behind(position, seen, revision)
        if self._behind and not before:
            log.warning("%s", self._behind)
        if position is not None and not self._behind and (refused or position == self._order.position):
            self._order.advance(position, seen)  # to what was not received nothing advances
        self._on(ConfigEvent.COMPILE_FAILED if refused and not self._behind else ConfigEvent.WAIT_TIMED_OUT)

    def _why_behind(self, position: Position | None, seen: Seen, revision: str | None) -> str:
        """Why nothing that this control plane has can be news; empty when there is no such reason."""
        here = self._order.position
        if position is None or here is None:
            return ""
        if not self._order.may_confirm(position, seen):
            return (
                f"the control plane is behind: at {position.sequence} of epoch {position.epoch}, where this "
                f"worker has seen {here.sequence} of {here.epoch}; {AFTER_RESTORE}"
            )
        known = (None, self._revision(), self._rejected.revision if self._rejected is not None else None)
        if position == here and self._revision() and revision not in known:
            return (
                f"the control plane has another configuration at {position.sequence} of epoch "
                f"{position.epoch} than this worker has seen there; {AFTER_RESTORE}"
            )
        return ""

    def _same(self, position: Position | None, seen: Seen) -> None:
        """A control plane has what is in use. It may only have it still: then that confirms nothing."""
        if position is not None and not self._order.may_confirm(position, seen):
            self._no_news(position, seen, self._revision())
            return
        self._confirmed(position, seen)

    def _confirmed(self, position: Position | None, seen: Seen) -> None:
        """A control plane says that what is in use is what the store had then."""
        told = self._is_copy() or self._rejected is not None
        if position is not None:
            self._order.advance(position, seen)
            self.stands = position
        self._source, self._rejected, self._behind = "controlPlane", None, ""
        self._confirmed_at = max(self._confirmed_at, seen.latest)
        self._on(ConfigEvent.CONFIRMED)
        if told:
            log.info("a control plane has confirmed the configuration in use, %s", self._revision())
            self._changed()

    def _unreadable(self, told: About, error: SnapshotRefused) -> bool:
        """What came is no snapshot for this version. Raises StoreUnavailable when it was spoilt on its way:
        another try may be better."""
        if told.revision is None or error.reason in {Refusal.MALFORMED, Refusal.REVISION}:
            raise StoreUnavailable(error.message, hint=error.hint) from error
        self._succeeded()
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        self._reject(ConfigEvent.SCHEMA_UNKNOWN, told, said)
        return True

    def _reject(self, event: ConfigEvent, told: About, why: str) -> None:
        revision = told.revision or ""
        self._refusals.inc()
        if told.position is not None:
            self._order.advance(told.position, told.seen)
        self._rejected = Rejected(revision, why)
        self._on(event)
        stays = f"{self._revision()} stays in use" if self.active is not None else "nothing is in use yet"
        log.error("revision %s of the configuration cannot be used, %s: %s", revision, stays, why)
        self._changed()

    # Failures, and peers.

    def _succeeded(self) -> None:
        self._succeeded_at = self._clock.monotonic()
        self._retry_secs = FIRST_RETRY_SECS
        failed = bool(self._failure)
        self._failure, self._failing_since, self._failing_as = "", None, None
        if failed:
            log.info("the control plane answers again")
            self._changed()  # else what was reported meanwhile is held against it until the next heartbeat

    def _failed(self, event: ConfigEvent, error: StoreUnavailable) -> None:
        self._failures += 1
        if self._failing_as is not type(error):
            self._failing_as = type(error)
            grave = isinstance(error, SecretRefused) or self.active is None
            level = logging.ERROR if grave else logging.WARNING
            log.log(level, "the control plane does not give the configuration: %s", error.message)
        self._failing_since = self._failing_since or self._clock.monotonic()
        self._failure = error.message
        self._on(event)
        self._look_at_age()

    async def _after_failure(self) -> float:
        """No control plane has answered: is there a peer? Gives the pause before the next try."""
        if self.active is None and self._peers is not None:
            await self._copy(self._peers)
        pause, self._retry_secs = self._retry_secs, min(self._retry_secs * 2, LAST_RETRY_SECS)
        return min(pause, EAGER_RETRY_SECS) if self.active is None else pause

    async def _copy(self, peers: PeerSource) -> None:
        """Use what the first peer has that can be used."""
        async with aclosing(peers.offers()) as offers:
            async for offer in offers:
                if await self._copied(peers, offer):
                    return
        if peers.refusals:
            self._failure += "; peers: " + "; ".join(peers.refusals)

    async def _copied(self, peers: PeerSource, offer: Offer) -> bool:
        """Use what a peer has; False when that cannot be."""
        if offer.age > peers.max_age_secs:
            self._on(ConfigEvent.MAX_AGE_PASSED)
            said = f"its configuration was confirmed {offer.age:.0f} s ago, over maxAgeSecs"
            peers.refuse(offer, said)
            return False
        if self._rejected is not None and offer.snapshot.revision == self._rejected.revision:
            peers.refuse(offer, "its configuration was refused here before")
            return False
        try:
            swap = await self._ready(offer.snapshot)
        except QueryFluxError as error:
            self._refusals.inc()
            peers.refuse(offer, f"its configuration cannot be used here: {in_short(error)}")
            return False
        self._use(offer.snapshot, swap, offer.position, "peer", offer.seen)
        self._on(ConfigEvent.PEER_SNAPSHOT)
        log.warning(
            "the configuration is %s now, copied from %s: a control plane confirmed it %.0f s ago",
            offer.snapshot.revision,
            offer.peer,
            offer.age,
        )
        self._changed()
        return True

    def _look_at_age(self) -> None:
        """A copy that nobody has confirmed for too long stays in use, and is said to be so old."""
        age, peers = self.confirmed_age, self._peers
        if self.state is not ConfigState.STALE or age is None or peers is None or age <= peers.max_age_secs:
            return
        self._on(ConfigEvent.MAX_AGE_PASSED)
        if not self._too_old:
            self._too_old = True
            log.warning("the configuration in use was confirmed over %g s ago", peers.max_age_secs)

    def _on(self, event: ConfigEvent) -> None:
        self.state = after(self.state, event)
        self._stale.set(1 if self._is_copy() else 0)
