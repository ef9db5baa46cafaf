"""The oracle of capacity: one cap for four processes, whatever happens to them and to their database."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.faults import Faults
from tests.chaos.fleet import OLDER, Fleet, fleet
from tests.chaos.watch import BOUND_SECS, TOLERANCE_SECS, Watch
from tests.kit.databases import Database, own_server

CAPS = {"one": 1, "ten": 10, "hundred": 100}
LAST_SECS = 8.0
"""Of a run, without faults."""
FULL_SECS = 15.0
SETTINGS = {
    "synchronous_commit": "on",
    "log_min_messages": "error",
    "deadlock_timeout": "200ms",
    "shared_buffers": "128MB",
}


@dataclass
class Outcome:
    """What came of a run. ``violations`` are what must never be; the rest is for the line of figures."""

    seed: int
    seconds: float
    state: dict[str, Any] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    reports: list[dict[str, Any]] = field(default_factory=list)
    longest_lost: float = 0.0
    freed: float = 0.0
    deadlocks: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def line(self) -> str:
        """The figures."""
        state = self.state
        waits = sorted(wait for report in self.reports for wait in report.get("waits", ()))
        most = " ".join(
            f"{name}:{count}/{state['caps'][name]}" for name, count in state["most_counted"].items()
        )
        largest = " ".join(f"{name}:{count}" for name, count in state["most"].items())
        lost = sum(report.get("lost", 0) for report in self.reports)
        return (
            f"capacity seed={self.seed} seconds={self.seconds:.0f} grants={state['starts']}"
            f" grants/s={state['starts'] / self.seconds:.0f} wait_p50_ms={_part(waits, 0.5) * 1000:.1f}"
            f" wait_p99_ms={_part(waits, 0.99) * 1000:.0f} faults=[{_counts(self.faults)}]"
            f" most=[{most}] most_with_excused=[{largest}] over=[{_counts(state['over'])}] retaken={lost:.0f}"
            f" unexplained={state['violated']} longest_lost_s={self.longest_lost:.1f}"
            f" all_freed_s={self.freed:.1f} deadlocks={self.deadlocks} {'ok' if self.ok else 'FAILED'}"
        )


def _counts(counts: "Counter[str] | dict[str, int]") -> str:
    return " ".join(f"{name}={count}" for name, count in sorted(counts.items())) or "none"


def _part(values: Sequence[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0.0


@contextmanager
def capacity_database(kind: str = "postgres15") -> Iterator[Database]:
    """A server of our own with a database."""
    server = own_server(kind, **SETTINGS)
    try:
        with server.admin("postgres") as admin:
            admin.execute("CREATE DATABASE fleet")
        database = Database(server, "fleet")
        database.migrate()
        yield database
    finally:
        server.remove()


def run(seconds: float, seed: int) -> Outcome:
    """The whole of it, on a server of its own."""
    with capacity_database() as database:
        return run_on(database, seconds, seed)


def run_on(database: Database, seconds: float, seed: int, kinds: Collection[str] | None = None) -> Outcome:
    """... on a database that may have been tampered with; ``kinds`` as of Faults."""
    with fleet(database, CAPS, seed) as made:
        outcome = Outcome(seed, seconds)
        faults = Faults(made, seed, kinds)
        began = time.monotonic()
        with Watch(made, faults) as watch:
            faults.run(began + seconds - LAST_SECS)
            faults.restore_caps()
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            outcome.seconds = time.monotonic() - began
            made.rest()
            outcome.freed = _freed(made, outcome)
            _full(made, outcome)
        if watch.error is not None:
            raise watch.error
        for name in list(made.members):
            made.retire(name)
        _conclude(made, faults, watch, outcome)
    return outcome


def _freed(made: Fleet, outcome: Outcome) -> float:
    """Seconds until no lease is left and every counter says so."""
    made.retire(OLDER)
    began = time.monotonic()
    while made.database.leases() or made.database.counters():
        if time.monotonic() - began > BOUND_SECS + TOLERANCE_SECS:
            outcome.violations.append(
                f"leases {made.database.leases()} and counters {made.database.counters()} after "
                f"{BOUND_SECS + TOLERANCE_SECS:g} s without a query"
            )
            break
        time.sleep(0.1)
    return time.monotonic() - began


def _full(made: Fleet, outcome: Outcome) -> None:
    """Every process in turn takes every place there is."""
    for name, member in made.members.items():
        before = made.engine.state()["starts"]
        began = time.monotonic()
        member.ask("full")()
        taken, seconds = made.engine.state()["starts"] - before, time.monotonic() - began
        if taken != sum(CAPS.values()) or seconds > FULL_SECS:
            outcome.violations.append(f"{name} got {taken} of {sum(CAPS.values())} places in {seconds:.1f} s")


def _conclude(made: Fleet, faults: Faults, watch: Watch, outcome: Outcome) -> None:
    faults.count_deadlocks()
    log = (made.database.server.folder / "log").read_text(encoding="utf-8", errors="replace")
    outcome.state = made.engine.state()
    outcome.faults = faults.made
    outcome.reports = made.reports
    outcome.longest_lost = watch.longest
    outcome.deadlocks = max(faults.deadlocks, log.count("deadlock detected"))
    outcome.violations += outcome.state["violations"]
    outcome.violations += watch.violations
    for report in made.reports:
        outcome.violations += report.get("violations", ())
    if outcome.deadlocks:
        outcome.violations.append(f"{outcome.deadlocks} deadlocks")
    if made.database.leases() or made.database.counters():
        outcome.violations.append(f"left at the end: {made.database.leases()}, {made.database.counters()}")
