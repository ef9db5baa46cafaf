"""A configuration that somebody offers: how its bytes are read, and what peers have to say about theirs."""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from queryflux.fleet.snapshot import WorkerSnapshot, read
from queryflux.runtime.threads import in_thread
from queryflux.worker.order import Position, Seen

LONG_BYTES = 64 * 1024
"""Longer documents are read off the loop."""


class Offer(NamedTuple):
    """What a peer runs. ``position`` is where it stands by now; ``age``: seconds since a control plane has
    confirmed it, which was ``seen`` then."""

    snapshot: WorkerSnapshot
    position: Position
    age: float
    seen: Seen
    peer: str


class PeerSource(Protocol):
    """Other workers, to be asked while no control plane answers."""

    @property
    def max_age_secs(self) -> float:
        """What was confirmed longer ago is not taken."""

    def offers(self) -> AsyncGenerator[Offer, None]:
        """What they have, one after the other."""

    def refuse(self, offer: Offer, why: str) -> None:
        """What a peer has is not used."""

    @property
    def refusals(self) -> Sequence[str]:
        """Why nothing came of the latest ``offers``, peer by peer."""


async def received(data: bytes) -> WorkerSnapshot:
    """The document in ``data``. Raises SnapshotRefused."""
    return read(data) if len(data) <= LONG_BYTES else await in_thread("configuration", read, data)
