"""The pure part of admission: who is eligible, and whom a strategy picks."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol


class Strategy(StrEnum):
    """How a group picks among its eligible members (``clusterGroups.<g>.strategy.type``)."""

    ROUND_ROBIN = "roundRobin"
    LEAST_LOADED = "leastLoaded"
    FAILOVER = "failover"


class Candidate(Protocol):
    """What the choice looks at."""

    @property
    def usable(self) -> bool:
        """Enabled and reachable."""

    @property
    def running(self) -> int:
        """Slots taken."""

    @property
    def full_at(self) -> int:
        """The highest limit at which the fleet had no place lately; -1 when it was not asked or had one."""


def has_room(member: Candidate, limit: int | None) -> bool:
    """Whether one more query fits; no limit always fits."""
    return member.usable and (limit is None or member.running < limit > member.full_at)


Chooser = Callable[[Sequence[Candidate], int], int]
"""Takes the eligible members in configured order and how many choices were made before; gives an index."""


def round_robin(eligible: Sequence[Candidate], turn: int) -> int:
    """Each in turn, counted over those that are eligible now."""
    return turn % len(eligible)


def least_loaded(eligible: Sequence[Candidate], turn: int) -> int:
    """The smallest number of running queries; the earliest of equals."""
    return min(range(len(eligible)), key=lambda index: eligible[index].running)


def failover(eligible: Sequence[Candidate], turn: int) -> int:
    """The first that can."""
    return 0


CHOOSERS: dict[Strategy, Chooser] = {
    Strategy.ROUND_ROBIN: round_robin,
    Strategy.LEAST_LOADED: least_loaded,
    Strategy.FAILOVER: failover,
}
