"""The network of a fleet: hosts, and calls between them that are lost, late, cut, repeated or spoilt.

``ModelServer`` stands for the connections to one address (worker/client.py, ``Server``). A call is executed
by the host's own ASGI application, on its own loop; whoever calls learns what HTTP would tell: an answer, no
connection, or that it broke, when the call may have been done or may yet be.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from queryflux.fleet.paths import (
    ACQUIRE,
    CONFIG,
    CONFIG_WAIT,
    HEARTBEAT,
    HISTORY,
    PEER_CONFIG,
    REGISTER,
    RENEW,
)
from queryflux.model.errors import ProtocolViolation
from queryflux.runtime.clock import Clock
from queryflux.runtime.connections import Broken, Unreachable
from queryflux.wire.http1 import unpack
from queryflux.worker.client import CONNECT_SECONDS, MAX_BODY_BYTES, Address
from queryflux.worker.port import Reply
from tests.sim.road import SENDER, Weather
from tests.sim.world import ProcessLoop, World

MOST_WAY_SECS = 3.0
"""Nothing is on its way for longer."""
CONFIG_PATHS = frozenset((CONFIG, CONFIG_WAIT, PEER_CONFIG))
MAY_COME_LATE = CONFIG_PATHS | {ACQUIRE, RENEW, HISTORY, REGISTER, HEARTBEAT}
"""What may begin after its caller has given it up. A release must not: see docs/testing.md."""
SILENCE = 0.3
"""Part of what breaks that nobody tells of: the caller waits until its own time is over."""


class Host(ProcessLoop):
    """A process with an address. Whoever takes its place has the same name."""

    def __init__(
        self, network: "Network", name: str, rate: float = 1.0, offset: float = 0.0, *, rules: bool = False
    ) -> None:
        """``rules``: it is a control plane."""
        super().__init__(network.world, rate, offset)
        self.network = network
        self.name = name
        self.rules = rules
        self.app: ASGIApp | None = None
        """None: nobody listens."""
        self.schema_version = 1
        """The latest version of snapshots that it knows."""
        self.serving: dict[Letter, None] = {}
        self.told: set[str] = set()
        """Revisions that a control plane has named to it as the current one."""
        self.transit = 0.0
        """The longest that an answer about the configuration was on its way to it, or to whom it copied it
        from: nobody can tell that from its age."""
        self.config_calls = 0


@dataclass(eq=False)
class Letter:
    """A call, on its way there and back."""

    sender: Host
    to: str
    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    answer: "asyncio.Future[Answer]"
    has_gone: bool = False
    left: "asyncio.Future[None] | None" = None
    """Done when the callee hears that nobody waits any more."""

    @property
    def place(self) -> str:
        """The path without what is asked."""
        return self.path.partition("?")[0]

    @property
    def laggard(self) -> bool:
        """It may begin when nobody waits for it."""
        return self.place in MAY_COME_LATE


@dataclass
class Answer:
    """What came back, and when it was given."""

    status: int
    headers: dict[str, str]
    body: bytes
    given_at: float
    held_secs: float = 0.0
    """So long the callee was stopped while it made it."""


@dataclass
class Storm(Weather):
    """The network's weather."""

    spoilt: float = 0.0
    """A snapshot does not arrive as it was sent."""


class Network:
    """All hosts, and the ways between them."""

    def __init__(self, world: World, weather: Storm) -> None:
        self.world = world
        self.weather = weather
        self.hosts: dict[str, Host] = {}
        """Those that live, or were the last of their names."""
        self.born: list[Host] = []
        self._cut: dict[frozenset[str], float] = {}

    def add(self, host: Host) -> None:
        """It takes the place of the one that had its name."""
        self.hosts[host.name] = host
        self.born.append(host)

    def cut(self, one: str, other: str, until: float) -> None:
        """Nothing comes through between the two."""
        self._cut[frozenset((one, other))] = until

    def mend(self) -> None:
        """Everything comes through."""
        self._cut.clear()

    def _is_cut(self, letter: Letter) -> bool:
        return self.world.now < self._cut.get(frozenset((letter.sender.name, letter.to)), 0.0)

    def _way(self) -> float:
        return min(MOST_WAY_SECS, self.world.chance.expovariate(1 / self.weather.way_secs))

    # There.

    def send(self, letter: Letter, connect_secs: float) -> None:
        """Let it begin."""
        chance, weather = self.world.chance, self.weather
        host = self.hosts.get(letter.to)
        if self._is_cut(letter):
            self._fail(letter, Unreachable(f"{letter.to} cannot be reached"), connect_secs)
        elif host is None or host.dead or host.app is None:
            self._fail(letter, Unreachable(f"{letter.to} refuses"), self._way())
        elif chance.random() < weather.lost_on_the_way:
            self._break(letter)
        else:
            cut = chance.random() < weather.cut
            way = self._way()
            if cut:
                self._fail(letter, Broken("cut on the way"), chance.uniform(0, 2 * way))
                way = min(MOST_WAY_SECS, way * chance.choice([1, 30]))
            self.world.at(way, partial(self._arrive, letter, host))

    def _break(self, letter: Letter) -> None:
        if self.world.chance.random() >= SILENCE:
            self._fail(letter, Broken("the connection was reset"), self._way())

    def _fail(self, letter: Letter, error: Exception, seconds: float) -> None:
        def tell() -> None:
            if not letter.answer.done():
                letter.answer.set_exception(error)

        self.world.at(seconds, lambda: letter.sender.call_soon(tell))

    def _arrive(self, letter: Letter, host: Host) -> None:
        if host.dead or self._is_cut(letter):
            self._break(letter)
        else:
            host.call_soon(self._begin, letter, host)

    def _begin(self, letter: Letter, host: Host) -> None:
        if host.app is None:
            self._fail(letter, Unreachable(f"{letter.to} refuses"), self._way())
        elif letter.laggard or not letter.has_gone:
            host.create_task(self._serve(letter, host, host.app))

    async def _serve(self, letter: Letter, host: Host, app: ASGIApp) -> None:
        SENDER.set(letter)
        host.serving[letter] = None
        letter.left = host.create_future()
        if letter.has_gone:
            letter.left.set_result(None)
        began, stops = self.world.now, host.stopped_secs
        answer = await ask(app, letter, host)
        twice = answer is not None and self.world.chance.random() < self.weather.twice
        if twice and (letter.laggard or not letter.has_gone):
            answer = await ask(app, letter, host)
        host.serving.pop(letter, None)
        if answer is not None:
            answer.held_secs = min(host.stopped_secs - stops, self.world.now - began)
            self._reply(letter, answer)

    # And back.

    def _reply(self, letter: Letter, answer: Answer) -> None:
        chance, weather = self.world.chance, self.weather
        answer.given_at = self.world.now
        if chance.random() < weather.lost_on_return or self._is_cut(letter):
            self._break(letter)
            return
        if letter.place in CONFIG_PATHS and answer.body and chance.random() < weather.spoilt:
            at = chance.randrange(len(answer.body))
            answer.body = answer.body[:at] + bytes([answer.body[at] ^ 1]) + answer.body[at + 1 :]

        def deliver() -> None:
            if not letter.answer.done():
                letter.answer.set_result(answer)

        self.world.at(self._way(), lambda: letter.sender.call_soon(deliver))

    def hang_up(self, letter: Letter) -> None:
        """Its sender waits no more; the callee hears of it later, if at all."""
        letter.has_gone = True
        host = self.hosts.get(letter.to)

        def hear() -> None:
            if letter.left is not None and not letter.left.done():
                letter.left.set_result(None)

        if host is not None and letter in host.serving and not self._is_cut(letter):
            self.world.at(self._way(), lambda: host.call_soon(hear))

    def lose(self, host: Host) -> None:
        """A host is no more: what it was asked breaks."""
        for letter in host.serving:
            self._break(letter)
        host.serving.clear()
        host.app = None


async def ask(app: ASGIApp, letter: Letter, host: Host) -> Answer | None:
    """One call of an application; None when it does not answer."""
    path, _, query = letter.path.partition("?")
    scope = {
        "type": "http",
        "method": letter.method,
        "path": unquote(path),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in letter.headers],
        "client": (letter.sender.name, 1),
    }
    messages: list[Message] = [{"type": "http.request", "body": letter.body}]
    said: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        assert letter.left is not None
        await asyncio.shield(letter.left)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        said.append(message)

    await app(scope, receive, send)
    if not said:
        return None
    start, *bodies = said
    headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in bodies), 0.0)


class ModelServer:
    """Stands for ``queryflux.worker.client.Server``."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self._clock = clock

    async def call(
        self, method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]], until: float
    ) -> Reply:
        """As Server."""
        host = asyncio.get_running_loop()
        assert isinstance(host, Host)
        network = host.network
        answer: asyncio.Future[Answer] = host.create_future()
        letter = Letter(host, self.address.host, method, path, headers, body or b"", answer)
        left = max(0.01, until - self._clock.monotonic())

        def late() -> None:
            if not answer.done():
                answer.set_exception(Broken(f"there was no answer within {left:.0f} s", late=True))

        if letter.place in CONFIG_PATHS:
            host.config_calls += 1
        network.send(letter, min(CONNECT_SECONDS, left))
        timer = host.call_later(left, late)
        try:
            came = await answer
        finally:
            timer.cancel()
            network.hang_up(letter)
        return _received(letter, came)

    def close(self) -> None:
        """There is nothing to close."""


def _received(letter: Letter, answer: Answer) -> Reply:
    host = letter.sender
    if letter.place in CONFIG_PATHS:
        callee = host.network.hosts[letter.to]
        copied = 0.0 if callee.rules else callee.transit
        host.transit = max(host.transit, host.world.now - answer.given_at + answer.held_secs + copied)
        if callee.rules and answer.status in (200, 304):
            host.told.add(answer.headers.get("etag", "").strip('"'))
    try:
        body = unpack(answer.body, answer.headers.get("content-encoding"), MAX_BODY_BYTES)
    except ProtocolViolation as error:
        raise Broken(error.message) from error
    return Reply(answer.status, answer.headers, body)
