"""Other workers as a source of a first configuration, for when no control plane answers.

The name of ``peerBootstrap.address`` stands for any number of workers, each with an address of its own; all
of them are asked in turn, in an order that differs from worker to worker. What a worker gives is what it
received itself, byte by byte, and how long ago a control plane confirmed it: a duration, so clocks need not
agree.
"""

import asyncio
import logging
import random
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from queryflux.config.fleet import PeerBootstrapConfig, peer_address
from queryflux.fleet.paths import PEER_CONFIG
from queryflux.fleet.snapshot import SnapshotRefused
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import Broken, Unreachable
from queryflux.worker.client import Address, Caller, Server, caller_context
from queryflux.worker.offer import Offer, received
from queryflux.worker.order import Position
from queryflux.worker.port import Reply
from queryflux.worker.said import about

log = logging.getLogger(__name__)

_SECONDS = re.compile(r"\b\d+ s\b")

ASK_SECS = 10.0
RESOLVE_SECS = 5.0
MOST_PEERS = 64
ROUND_SECS = 20.0
"""After so long no further peer is asked: the control plane may be back, and the next round has another
order."""

Resolve = Callable[[str, int], Awaitable[Sequence[tuple[str, int]]]]
"""The addresses, and ports, of a name. Raises OSError."""


async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
    """All that the machine's resolver knows, in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((str(item[4][0]), int(item[4][1])) for item in found))


class Peers:
    """Implements ``PeerSource``."""

    def __init__(
        self,
        config: PeerBootstrapConfig,
        caller: Caller,
        clock: Clock,
        *,
        resolve: Resolve = resolve,
        shuffle: Callable[[list[tuple[str, int]]], None] = random.shuffle,
    ) -> None:
        """Raises ConfigError when the files of ``config.tls`` cannot be used. ``shuffle`` puts the addresses
        into the order in which they are asked."""
        address = peer_address(config.address)
        assert address is not None, "the configuration was checked"
        self._name = address
        self._tls = caller_context(config.tls) if config.tls is not None else None
        self._server_name = (config.tls.server_name if config.tls is not None else None) or address.host
        self._headers = caller.headers()
        self._clock = clock
        self._resolve = resolve
        self._shuffle = shuffle
        self.max_age_secs = float(config.max_age_secs)
        self.refusals: list[str] = []
        self._told: list[str] = []

    async def offers(self) -> AsyncGenerator[Offer, None]:
        """As PeerSource."""
        self.refusals = []
        until = self._clock.monotonic() + ROUND_SECS
        for host, port in await self._addresses():
            if self._clock.monotonic() >= until:
                self.refusals.append("there was no time to ask the others")
                break
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            offer = await self._ask(host, port, name)
            if offer is not None:
                yield offer
        told = sorted(_SECONDS.sub("", refusal) for refusal in self.refusals)
        if told != self._told:  # an age grows, and is no news
            self._told = told
            log.warning("no peer gives a configuration: %s", "; ".join(self.refusals))

    def refuse(self, offer: Offer, why: str) -> None:
        """As PeerSource."""
        self.refusals.append(f"{offer.peer}: {why}")

    async def _addresses(self) -> list[tuple[str, int]]:
        try:
            async with asyncio.timeout(RESOLVE_SECS):
                found = list(await self._resolve(self._name.host, self._name.port))
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            said = str(error) or "no answer in time"
            self.refusals.append(f"the name {self._name.host} has no address: {said}")
            return []
        self._shuffle(found)
        return found[:MOST_PEERS]

    async def _ask(self, host: str, port: int, name: str) -> Offer | None:
        """What one peer has; None, and a refusal, when that is nothing that can be read."""
        authority = f"{self._name.host}:{self._name.port}"
        server = Server(Address(host, port, authority, "", self._tls, self._server_name), self._clock)
        try:
            asked_at = self._clock.monotonic()
            reply = await server.call("GET", PEER_CONFIG, None, self._headers, asked_at + ASK_SECS)
            return await self._read(reply, name, asked_at)
        except (Unreachable, Broken) as error:
            self.refusals.append(f"{name}: {error}" if isinstance(error, Broken) else f"{name} is not there")
        except SnapshotRefused as error:
            self.refusals.append(f"{name}: {error.message}")
        finally:
            server.close()
        return None

    async def _read(self, reply: Reply, name: str, asked_at: float) -> Offer | None:
        """Raises SnapshotRefused."""
        if reply.status != 200:
            said = {401: "it refuses the shared secret", 503: "it has no configuration or is not ready"}
            self.refusals.append(f"{name}: {said.get(reply.status, f'it answers {reply.status}')}")
            return None
        told = about(reply, asked_at, self._clock.monotonic())
        if told.age is None:
            self.refusals.append(f"{name}: it does not say how old its configuration is")
            return None
        snapshot = await received(reply.body)
        position = Position(snapshot.epoch, snapshot.sequence)
        if told.position is not None and told.position.epoch == position.epoch:
            position = max(position, told.position)
        return Offer(snapshot, position, told.age, told.seen, name)
