"""What an engine knows: which queries run, and whether there may be so many.

Whoever runs queries says ``start`` once admission has let one go on and ``end`` before it gives its place
back, so the queries that run are never more than the leases that were granted for them. The judge looks at
every start. Two things may put a cluster past its cap, and nothing else: a process that was away past the
expiry of its leases, whose queries run on while others get their places, and lease rows that were lost
under queries that run. Whoever makes such a fault says so with ``excuse``; the excused queries are left out
of the count that must hold, and the cluster that was past its cap with them is counted by cause.

An edit of a cap reaches processes one after another: until all have it, and for a grace that covers calls
under way, the old value counts as well.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

FOREVER = float("inf")
MOST_TOLD = 20
"""Violations that are kept word for word."""


@dataclass(slots=True)
class Query:
    """One that runs. ``began``: no call that may have granted its lease was made before."""

    query_id: str
    instance: str
    began: float
    causes: tuple[str, ...] = ()
    """What excuses it, whatever its times."""


@dataclass(slots=True)
class Cap:
    """A value and when it stops to count."""

    value: int
    until: float = FOREVER


@dataclass(slots=True)
class ClusterCount:
    """One cluster."""

    caps: list[Cap]
    running: dict[str, Query] = field(default_factory=dict)
    starts: int = 0
    most: int = 0
    """Most that ran at a time."""
    most_counted: int = 0
    """... without those that were excused then."""

    def cap(self, began: float) -> int:
        """The highest that was in force since."""
        return max(cap.value for cap in self.caps if cap.until >= began)


@dataclass(slots=True, frozen=True)
class Excuse:
    """Queries of ``instance`` (None: of any) whose lease may date from before ``until``."""

    cause: str
    instance: str | None


class Judge:
    """Counts what runs on each cluster."""

    def __init__(self, caps: Mapping[str, int], grace_secs: float = 3.0) -> None:
        self.clusters = {name: ClusterCount([Cap(cap)]) for name, cap in caps.items()}
        self.grace_secs = grace_secs
        self.over: Counter[str] = Counter()
        """Starts past a cap that are explained, by cause."""
        self.violations: list[str] = []
        self.violated = 0
        self._excuses: dict[Excuse, float] = {}
        self._of_query: dict[str, str] = {}
        """The cluster of each query that runs."""

    @property
    def starts(self) -> int:
        """Queries that have started."""
        return sum(cluster.starts for cluster in self.clusters.values())

    @property
    def running(self) -> int:
        """Queries that run."""
        return len(self._of_query)

    # Caps and faults.

    def cap(self, name: str, value: int) -> None:
        """Processes begin to be told of another cap."""
        self.clusters[name].caps.append(Cap(value))

    def settled(self, name: str, now: float) -> None:
        """All of them have the latest one."""
        caps = self.clusters[name].caps
        for cap in caps[:-1]:
            cap.until = min(cap.until, now + self.grace_secs)

    def excuse(self, cause: str, instance: str | None, until: float) -> None:
        """See Excuse; said before the fault with FOREVER, and with the time once it is over."""
        key = Excuse(cause, instance)
        before = self._excuses.get(key, 0.0)
        self._excuses[key] = until if before == FOREVER else max(before, until)

    def excuse_one(self, query_id: str, cause: str) -> None:
        """This one's lease is gone; harmless when it does not run."""
        cluster = self._of_query.get(query_id)
        if cluster is not None:
            self.clusters[cluster].running[query_id].causes += (cause,)

    def _causes(self, query: Query) -> tuple[str, ...]:
        return query.causes + tuple(
            excuse.cause
            for excuse, until in self._excuses.items()
            if excuse.instance in (None, query.instance) and query.began <= until
        )

    # Queries.

    def start(
        self, name: str, query_id: str, instance: str, began: float, causes: tuple[str, ...] = ()
    ) -> None:
        """A query starts; ``causes`` excuse it."""
        cluster = self.clusters[name]
        if query_id in self._of_query:
            self.violate(f"{query_id} of {instance} starts on {name} while it runs")
            return
        self._of_query[query_id] = name
        cluster.running[query_id] = Query(query_id, instance, began, causes)
        cluster.starts += 1
        count = len(cluster.running)
        cluster.most = max(cluster.most, count)
        cap = cluster.cap(began)
        if count > cap or self._excuses:
            self._weigh(name, cluster, cap)
        else:
            cluster.most_counted = max(cluster.most_counted, count)

    def _weigh(self, name: str, cluster: ClusterCount, cap: int) -> None:
        causes: Counter[str] = Counter()
        counted = 0
        for query in cluster.running.values():
            why = self._causes(query)
            causes.update(set(why))
            counted += not why
        cluster.most_counted = max(cluster.most_counted, counted)
        if counted > cap:
            instances = Counter(query.instance for query in cluster.running.values())
            self.violate(
                f"{counted} queries run on {name} under a cap of {cap} (and {len(cluster.running) - counted} "
                f"excused); by process: {dict(instances)}"
            )
        elif len(cluster.running) > cap:
            self.over.update(causes.keys())

    def end(self, query_id: str) -> None:
        """A query has ended, for the engine."""
        name = self._of_query.pop(query_id, None)
        if name is None:
            self.violate(f"{query_id} ends and does not run")
        else:
            del self.clusters[name].running[query_id]

    def violate(self, what: str) -> None:
        """Something that must never be."""
        self.violated += 1
        if len(self.violations) < MOST_TOLD:
            self.violations.append(what)
