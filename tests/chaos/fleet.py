"""The processes of a run: the engine, four of the fleet, one of an older version; each behind a cable of
its own.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.worker import Settings
from tests.kit.cable import Cable, cable
from tests.kit.databases import Database

PROCESSES = 4
OLDER = "older"
CLIENTS = 64
OLDER_CLIENTS = 6
ROOT = Path(__file__).parents[2]


class CountingEngine:
    """The engine's process, and a connection to it for whoever makes faults. For any thread."""

    def __init__(self, caps: Mapping[str, int]) -> None:
        self._process = _python("tests.chaos.engine", json.dumps(dict(caps)))
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._file = self._socket.makefile("rw")
        self._lock = threading.Lock()

    def tell(self, *words: object) -> None:
        """Returns when it has heard."""
        with self._lock:
            self._ask(" ".join(map(str, words)))

    def excuse(self, cause: str, instance: str, until: float) -> None:
        """See Judge.excuse."""
        self.tell("excuse", cause, instance, until)

    def state(self) -> dict[str, Any]:
        """What it has counted."""
        with self._lock:
            state: dict[str, Any] = json.loads(self._ask("state"))
            return state

    def _ask(self, line: str) -> str:
        self._file.write(line + "\n")
        self._file.flush()
        return self._file.readline()

    def close(self) -> None:
        """End it."""
        self._file.close()
        self._socket.close()
        _end(self._process)


class Member:
    """One process of the fleet. It is given commands by one thread."""

    def __init__(self, module: str, settings: Settings, link: Cable) -> None:
        self.instance = settings.instance
        self.link = link
        self._process = _python(module, json.dumps(asdict(settings)))
        self._ready = False

    def wait_ready(self) -> None:
        """Until its clients are at work."""
        if not self._ready:
            self._read()
            self._ready = True

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.instance} ended by itself with status {self._process.wait(10)}")
        return line

    def ask(self, *words: object) -> Callable[[], dict[str, Any]]:
        """Give a command; the result waits for its answer."""
        self.wait_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return lambda: dict(json.loads(self._read()))

    def signal(self, number: int) -> None:
        """Send it a signal; returns when a stop has taken effect."""
        self._process.send_signal(number)
        while number == signal.SIGSTOP and _state(self._process.pid) != "T":
            time.sleep(0.001)

    def end(self, kill: bool = True) -> None:
        """Let go of it."""
        _end(self._process, kill=kill)


def _state(pid: int) -> str:
    """The letter that the kernel gives it."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]


def _python(module: str, argument: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", module, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _end(process: "subprocess.Popen[str]", *, kill: bool = True) -> None:
    if kill:
        process.kill()
    process.wait(30)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Fleet:
    """All of them."""

    def __init__(
        self, database: Database, engine: CountingEngine, caps: Mapping[str, int], seed: int
    ) -> None:
        self.database = database
        self.engine = engine
        self.caps = dict(caps)
        self.members: dict[str, Member] = {}
        self._seed = seed
        self._born: dict[str, int] = {}
        self._links = contextlib.ExitStack()
        self.reports: list[dict[str, Any]] = []

    @property
    def new(self) -> list[str]:
        """The names of those that are not of an older version."""
        return [name for name in self.members if name != OLDER]

    @property
    def links(self) -> list[Cable]:
        """The cables of all."""
        return [member.link for member in self.members.values()]

    def start(self) -> None:
        """All processes, each with a cable; returns when they are at work."""
        server = self.database.server
        for name in [*(f"p{number}" for number in range(PROCESSES)), OLDER]:
            self.spawn(name, self._links.enter_context(cable(server.host, server.port)))
        for member in self.members.values():
            member.wait_ready()

    def spawn(self, name: str, link: Cable) -> None:
        """A new process in a place, over the cable of the one before."""
        born = self._born[name] = self._born.get(name, 0) + 1
        older = name == OLDER
        settings = Settings(
            instance=f"{name}.{born}",
            dsn=f"postgresql://trusted@127.0.0.1:{link.port}/{self.database.name}?sslmode=disable",
            engine=self.engine.port,
            caps=self.caps,
            clients=OLDER_CLIENTS if older else CLIENTS,
            seed=f"{self._seed}/{name}/{born}",
        )
        module = "tests.chaos.older" if older else "tests.chaos.worker"
        self.members[name] = Member(module, settings, link)

    def kill(self, name: str) -> None:
        """Without a word; another one takes its place."""
        member = self.members[name]
        member.end()
        self.spawn(name, member.link)

    def retire(self, name: str) -> None:
        """In good order; its place is empty."""
        member = self.members.pop(name)
        self.reports.append(member.ask("end")())
        member.end(kill=False)

    def set_cap(self, name: str, value: int) -> None:
        """Tell everybody."""
        self.engine.tell("cap", name, value)
        self.caps[name] = value
        for answer in [member.ask("cap", name, value) for member in self.members.values()]:
            answer()
        self.engine.tell("settled", name, time.monotonic())

    def rest(self) -> None:
        """Clients stop; returns when no query is left."""
        for answer in [member.ask("rest") for member in self.members.values()]:
            answer()

    def close(self) -> None:
        """Whatever still runs ends now."""
        for member in self.members.values():
            member.end()
        self._links.close()


@contextlib.contextmanager
def fleet(database: Database, caps: Mapping[str, int], seed: int) -> Iterator[Fleet]:
    """A fleet at work."""
    engine = CountingEngine(caps)
    made = Fleet(database, engine, caps, seed)
    try:
        made.start()
        yield made
    finally:
        made.close()
        engine.close()
