"""The faults of a run, in an order that its seed decides: a deck with each kind once, shuffled, again and
again.

A store fault lasts less than leases live, so that none of them is an excuse, and is followed by a rest in
which leases are renewed. Only ``pause_long`` (a process is stopped past its expiry), ``cut_off`` (the same
for its connections) and what destroys lease rows excuse anything, and they say so to the engine before and
after.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from random import Random

from tests.chaos.fleet import OLDER, Fleet
from tests.chaos.judge import FOREVER
from tests.chaos.worker import EXPIRY_SECS, RENEW_SECS
from tests.kit.cable import Cable

SHORT_SECS = (0.5, 2.0)
LONG_SECS = (EXPIRY_SECS + 2.5, EXPIRY_SECS + 4.5)
REST_SECS = (1.5, 2.5)
SAFE_SECS = EXPIRY_SECS - RENEW_SECS - 0.8
"""A store may be away for so long before leases are in danger."""
TRUNCATE = "TRUNCATE cluster_capacity_leases"
DELETE = (
    "SET LOCAL session_replication_role = replica",
    "ALTER TABLE cluster_capacity_leases DISABLE TRIGGER cluster_capacity_leases_deleted",
)
ENABLE = "ALTER TABLE cluster_capacity_leases ENABLE TRIGGER cluster_capacity_leases_deleted"


class Faults:
    """Makes them, and counts."""

    def __init__(self, fleet: Fleet, seed: int, kinds: Collection[str] | None = None) -> None:
        """``kinds``: only these; none at all when it is empty."""
        self.fleet = fleet
        self.engine = fleet.engine
        self.server = fleet.database.server
        self.chance = Random(seed)
        self.made: Counter[str] = Counter()
        self.losses = 0
        """How often lease rows were destroyed."""
        self.deadlocks = 0
        """Those that the database counted before it was restarted."""
        self._healthy = 0.0
        self._since: float | None = time.monotonic()
        self._deck: list[str] = []
        self._caps = dict(fleet.caps)
        self._kinds = sorted(KINDS if kinds is None else kinds)

    def run(self, until: float) -> None:
        """One after another until then, by the monotonic clock."""
        while time.monotonic() < until:
            if not self._deck:
                self._deck = self._kinds.copy()
                self.chance.shuffle(self._deck)
            if self._deck:
                self.make(self._deck.pop())
            time.sleep(max(0.0, min(self.chance.uniform(*REST_SECS), until - time.monotonic())))

    def make(self, kind: str) -> None:
        """One fault, to its end."""
        self.made[kind] += 1
        self._healthy, self._since = self.healthy, None
        KINDS[kind](self)
        self._since = time.monotonic()

    @property
    def healthy(self) -> float:
        """Seconds without a fault under way, until now."""
        since = self._since
        return self._healthy + (time.monotonic() - since if since is not None else 0.0)

    def _one(self) -> str:
        return self.chance.choice(self.fleet.new)

    def _links(self) -> Sequence[Cable]:
        """Those of one process, or of all."""
        return self.chance.choice([[self.fleet.members[self._one()].link], self.fleet.links])

    # Processes.

    def kill(self) -> None:
        """kill -9, and a new one."""
        self.fleet.kill(self._one())

    def kill_older(self) -> None:
        """... of the older version."""
        self.fleet.kill(OLDER)

    def drain(self) -> None:
        """One ends in good order and a new one comes."""
        name = self._one()
        link = self.fleet.members[name].link
        self.fleet.retire(name)
        self.fleet.spawn(name, link)

    def pause(self) -> None:
        """Stopped for less than its leases live."""
        self._stopped(self._one(), self.chance.uniform(*SHORT_SECS))

    def _stopped(self, name: str, seconds: float) -> float:
        member = self.fleet.members[name]
        member.wait_ready()
        began = time.monotonic()
        member.signal(signal.SIGSTOP)
        time.sleep(seconds)
        member.signal(signal.SIGCONT)
        return time.monotonic() - began

    def pause_long(self) -> None:
        """Stopped past the expiry of its leases, while other things happen."""
        name = self._one()
        member = self.fleet.members[name]
        member.wait_ready()
        self.engine.excuse("stopped", member.instance, FOREVER)
        member.signal(signal.SIGSTOP)
        self._meanwhile(name)
        member.signal(signal.SIGCONT)
        self.engine.excuse("stopped", member.instance, time.monotonic())

    def _meanwhile(self, busy: str) -> None:
        until = time.monotonic() + self.chance.uniform(*LONG_SECS)
        others = [name for name in self.fleet.new if name != busy]
        for _ in range(2):
            time.sleep(self.chance.uniform(0.5, 2))
            match self.chance.randrange(3):
                case 0:
                    self.made["kill"] += 1
                    self.fleet.kill(self.chance.choice(others))
                case 1:
                    self.made["truncate"] += 1
                    self.truncate()
                case _:
                    self.made["cut_one"] += 1
                    self.cut_one()
        time.sleep(max(0.0, until - time.monotonic()))

    # The database and the road to it.

    def restart(self) -> None:
        """Sessions are told, and cut."""
        self.count_deadlocks()
        self._away(self.server.restart)

    def crash(self) -> None:
        """It stops without a word, and recovers."""
        self.count_deadlocks()

        def crash() -> None:
            self.server.stop(crash=True)
            self.server.start()

        self._away(crash)

    def _away(self, do: Callable[[], object]) -> None:
        """If it takes longer than it should, leases may have run out meanwhile."""
        began = time.monotonic()
        do()
        if time.monotonic() - began > SAFE_SECS:
            self.engine.excuse("store_away", "", time.monotonic())

    def count_deadlocks(self) -> None:
        """What the database says of itself."""
        rows = self.fleet.database.rows(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        self.deadlocks = max(self.deadlocks, rows[0][0])

    def cut(self) -> None:
        """Connections are reset."""
        for link in self._links():
            link.cut()

    def cut_one(self) -> None:
        """Some connections are reset, one at a time."""
        for _ in range(5):
            self.fleet.members[self._one()].link.cut_one(self.chance.choice)
            time.sleep(self.chance.uniform(0, 0.1))

    def delay(self) -> None:
        """Replies take their time."""
        for link in (links := self._links()):
            link.link.delay = self.chance.uniform(0.02, 0.3)
        self._for_a_while(self._undelay(links))

    @staticmethod
    def _undelay(links: Sequence[Cable]) -> Callable[[], None]:
        def undelay() -> None:
            for link in links:
                link.link.delay = 0.0

        return undelay

    def _for_a_while(self, end: Callable[[], object]) -> None:
        def last() -> None:
            time.sleep(self.chance.uniform(*SHORT_SECS))
            end()

        self._away(last)

    def stall(self) -> None:
        """Replies do not come, until they all do."""
        for link in (links := self._links()):
            link.do(link.link.stall)
        self._for_a_while(lambda: self._resume(links))

    @staticmethod
    def _resume(links: Sequence[Cable]) -> None:
        for link in links:
            link.do(link.link.resume)

    def refuse(self) -> None:
        """Connections are reset, and no new one is to be had."""
        for link in (links := self._links()):
            link.link.refuse = True
            link.cut()
        self._for_a_while(lambda: self._let_in(links))

    @staticmethod
    def _let_in(links: Sequence[Cable]) -> None:
        for link in links:
            link.link.refuse = False

    def cut_off(self) -> None:
        """One process cannot reach the database until its leases have run out."""
        name = self._one()
        member = self.fleet.members[name]
        member.wait_ready()
        self.engine.excuse("cut_off", member.instance, FOREVER)
        member.link.link.refuse = True
        member.link.cut()
        time.sleep(self.chance.uniform(*LONG_SECS))
        self._let_in([member.link])
        # Calls that were made before and are answered late may have been granted before.
        self.engine.excuse("cut_off", member.instance, time.monotonic())

    # Lease rows.

    def truncate(self) -> None:
        """Every lease is lost, and no counter hears of it."""
        self._losing(lambda: self.fleet.database.rows(TRUNCATE))

    def delete(self) -> None:
        """Some of them are."""
        part = self.chance.choice([0.3, 1.0])
        how = self.chance.choice(DELETE)

        def delete() -> None:
            with self.server.admin(self.fleet.database.name) as admin, admin.transaction():
                admin.execute("LOCK TABLE cluster_capacity_leases IN SHARE ROW EXCLUSIVE MODE")
                admin.execute(how.encode())
                admin.execute("DELETE FROM cluster_capacity_leases WHERE random() < %s", (part,))
                if how.startswith("ALTER"):
                    admin.execute(ENABLE.encode())

        self._losing(delete)

    def _losing(self, do: Callable[[], object]) -> None:
        self.engine.excuse("lost", "", FOREVER)
        do()
        self.losses += 1
        self.engine.excuse("lost", "", time.monotonic())

    # Configuration.

    def caps(self) -> None:
        """Other caps for a while, then those from before."""
        changed = {name: max(1, cap // 2) for name, cap in self._caps.items()}
        changed[self.chance.choice(sorted(changed))] *= 3
        for name, value in changed.items():
            self.fleet.set_cap(name, value)
        time.sleep(self.chance.uniform(1, 2))
        self.restore_caps()

    def restore_caps(self) -> None:
        """Those of the beginning."""
        for name, value in self._caps.items():
            self.fleet.set_cap(name, value)


KINDS: dict[str, Callable[[Faults], None]] = {
    "kill": Faults.kill,
    "kill_older": Faults.kill_older,
    "drain": Faults.drain,
    "pause": Faults.pause,
    "pause_long": Faults.pause_long,
    "restart": Faults.restart,
    "crash": Faults.crash,
    "cut": Faults.cut,
    "cut_one": Faults.cut_one,
    "delay": Faults.delay,
    "stall": Faults.stall,
    "refuse": Faults.refuse,
    "cut_off": Faults.cut_off,
    "truncate": Faults.truncate,
    "delete": Faults.delete,
    "caps": Faults.caps,
}
"""Every kind of fault."""
