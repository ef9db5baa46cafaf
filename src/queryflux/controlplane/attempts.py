"""Wrong passwords per peer: after a few in a row, a peer has to wait before the next one is looked at."""

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache

from queryflux.controlplane.errors import TooManyAttempts
from queryflux.runtime.clock import Clock

FREE_FAILURES = 5
LONGEST_WAIT_SECS = 60.0
FORGET_SECS = 900.0
MAX_PEERS = 10_000
MAX_PENDING = 16
"""Checks of one peer at a time: slow checks must not let it guess on while they run."""


@dataclass(slots=True)
class _Peer:
    failures: int = 0
    pending: int = 0
    last: float = 0.0
    until: float = 0.0


class Attempts:
    """Counts for every peer (an IPv6 client is its /64 network), the longest silent forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def begin(self, host: str) -> None:
        """A password is about to be checked. Raises TooManyAttempts while the peer has to wait."""
        now = self._clock.monotonic()
        peer = self._peer(host, now)
        wait = peer.until - now
        if wait <= 0 and peer.pending >= MAX_PENDING:
            wait = 1.0
        if wait > 0:
            seconds = max(1, round(wait))
            raise TooManyAttempts(
                f"too many failed log-ins from {host}: wait {seconds} s",
                headers={"Retry-After": str(seconds)},
            )
        peer.pending += 1

    def end(self, host: str, *, right: bool | None) -> None:
        """It has been checked; ``right`` None: it could not be."""
        now = self._clock.monotonic()
        peer = self._peer(host, now)
        peer.pending = max(0, peer.pending - 1)
        if right:
            peer.failures = 0
        elif right is not None:
            peer.failures += 1
            peer.last = now
            if peer.failures >= FREE_FAILURES:
                peer.until = now + min(2.0 ** (peer.failures - FREE_FAILURES), LONGEST_WAIT_SECS)

    def _peer(self, host: str, now: float) -> _Peer:
        key = network_of(host)
        peer = self._peers.get(key)
        if peer is None:
            while len(self._peers) >= MAX_PEERS:
                self._peers.popitem(last=False)
            peer = self._peers[key] = _Peer()
        elif peer.failures and now - peer.last > FORGET_SECS:
            peer.failures = 0
        self._peers.move_to_end(key)
        return peer


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """Where a peer counts: its IPv4 address, or its /64 network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
