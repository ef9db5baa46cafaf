"""A Link for blocking tests: it runs in a thread of its own, and is pulled from the test's."""

import asyncio
import threading
from asyncio import StreamWriter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.kit.link import Link


class Cable:
    """A link with a loop of its own; its settings may be changed from any thread."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self.link = link
        self._loop = loop

    @property
    def port(self) -> int:
        """Where to connect instead."""
        return self.link.port

    def do(self, action: Callable[[], object]) -> None:
        """Run something on the link's loop, and wait."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def cut(self) -> None:
        """Reset every connection now."""
        self.do(self.link.cut)

    def cut_one(self, choose: Callable[[Sequence[StreamWriter]], StreamWriter]) -> None:
        """Reset one connection, if there is any."""

        def cut() -> None:
            if writers := sorted(self.link._writers, key=id):
                choose(writers).transport.abort()

        self.do(cut)


@contextmanager
def cable(host: str, port: int) -> Iterator[Cable]:
    """A cable to ``host:port``."""
    holder: list[Cable] = []
    up = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        end = asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(end.set))
        async with Link(host, port) as link:
            holder.append(Cable(link, loop))
            up.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="cable")
    thread.start()
    assert up.wait(10), "the link did not start"
    try:
        yield holder[0]
    finally:
        stop[0]()
        thread.join(10)
