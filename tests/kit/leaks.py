"""What a running QueryFlux holds, counted before and after: nothing may be left behind."""

import asyncio
import contextlib
import gc
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kit.serving import Serving

KEPT = {"log writer": 1, "mysql-rows": 4, "trino-http": 1, "duckdb-duck": 8, "duckdb-one": 8}
"""Threads that a door or an engine starts when it first needs them and keeps: their name, and how many at
most."""


@dataclass
class Held:
    """Counts at one moment, of the whole process where a thing cannot be told apart (threads, sockets)."""

    queries: int = 0
    slots: int = 0
    waiting: int = 0
    conversations: int = 0
    sockets: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    threads: Counter[str] = field(default_factory=Counter)

    def beyond(self, before: "Held", *, sockets: bool = True) -> dict[str, object]:
        """What is held now and was not before."""
        more: dict[str, object] = {}
        for name in ("queries", "slots", "waiting", "conversations", *(["sockets"] if sockets else [])):
            if (extra := getattr(self, name) - getattr(before, name)) > 0:
                more[name] = extra
        if extra := self.tasks - before.tasks:
            more["tasks"] = dict(extra)
        threads = self.threads - before.threads
        if extra := Counter(
            {name: n for name, n in threads.items() if self.threads[name] > KEPT.get(name, 0)}
        ):
            more["threads"] = dict(extra)
        return more


async def _look(running: Serving) -> Held:
    standalone = running.standalone
    generation = standalone.generation
    me = asyncio.current_task()
    return Held(
        queries=len(standalone.pipeline.running),
        slots=sum(cluster.member.running for cluster in generation.clusters.values()),
        waiting=sum(len(plan.admission.waiters) for plan in generation.groups.values()),
        conversations=len(standalone.pipeline._talks),
        sockets=_sockets(),
        tasks=Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks() if task is not me),  # type: ignore[union-attr]
        threads=Counter(
            re.sub(r"-\d+$", "", thread.name)  # a pool's threads are numbered, and replaced
            for thread in threading.enumerate()
            if not isinstance(thread, threading._DummyThread)  # gRPC's own, which come and go
        ),
    )


def _sockets() -> int:
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return count


def held(running: Serving) -> Held:
    """What it holds now."""
    return running.call(_look, running)


@contextlib.contextmanager
def nothing_left(running: Serving, *, seconds: float = 15, sockets: bool = True) -> Iterator[Held]:
    """Whatever the body does, soon after it no more is held than before. Clients must be closed in it;
    ``sockets`` is for clients that close theirs (ADBC's Go driver keeps those of a log-in that failed)."""
    gc.collect()
    before = held(running)
    yield before
    deadline = time.monotonic() + seconds
    while more := held(running).beyond(before, sockets=sockets):
        assert time.monotonic() < deadline, f"left behind: {more}"
        gc.collect()
        time.sleep(0.02)
