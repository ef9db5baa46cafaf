"""Which configuration comes after which: epochs, and sequences in them.

A sequence only grows within its epoch. An epoch is new when the store is new, or when its operator says so
after a restore; names of epochs have no order. Between two of them the one counts that the store was seen to
say later: a control plane that has not heard of the new one yet was last confirmed before it began. Who has
left an epoch goes back to it only when nobody has confirmed the other one for a while, so that control planes
of two stores, which should not stand under one address, do not make a worker go to and fro.

Answers give an age, and were made some time between the question and their arrival: so ``Seen`` is a span.
"""

from collections import OrderedDict
from typing import NamedTuple

MAX_EPOCHS = 64
LEFT_SECS = 60.0


class Position(NamedTuple):
    """Where a revision stands."""

    epoch: str
    sequence: int


class Seen(NamedTuple):
    """When the store was seen to say something: somewhere between these two, monotonic seconds of this
    process."""

    earliest: float
    latest: float


class Order:
    """What a worker has heard of."""

    def __init__(self) -> None:
        self.position: Position | None = None
        """The latest."""
        self._seen = 0.0
        """The store was seen to say so then at the latest."""
        self._left: OrderedDict[str, None] = OrderedDict()

    def is_news(self, there: Position, seen: Seen) -> bool:
        """Whether another revision, which the store was ``seen`` to say, comes after all that was
        heard of."""
        here = self.position
        if here is None:
            return True
        if there.epoch == here.epoch:
            return there.sequence > here.sequence
        return seen.earliest > self._seen + (LEFT_SECS if there.epoch in self._left else 0.0)

    def may_confirm(self, there: Position, seen: Seen) -> bool:
        """Whether somebody who is there may say that a revision is the current one."""
        return there == self.position or self.is_news(there, seen)

    def advance(self, there: Position, seen: Seen) -> None:
        """This was heard of; what is not after the latest changes nothing."""
        here = self.position
        if there == here:
            self._seen = max(self._seen, seen.latest)
            return
        if not self.is_news(there, seen):
            return
        if here is not None and here.epoch != there.epoch:
            self._left[here.epoch] = None
            self._left.pop(there.epoch, None)
            while len(self._left) > MAX_EPOCHS:
                self._left.popitem(last=False)
        self.position, self._seen = there, seen.latest
