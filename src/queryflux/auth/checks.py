"""Slow password checks: on threads of their own, each (user, password) once, remembered while it is used.

A client that sends HTTP Basic with every request pays for bcrypt once; the requests that arrive meanwhile
wait for the same check. A success is remembered under a keyed hash of user and password, never the password.
A failure is not remembered.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from queryflux.model.errors import Unavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.threads import LaneThread

REMEMBER_SECONDS = 60.0
MAX_REMEMBERED = 4096
MAX_WAITING = 512
THREADS = 2


class PasswordChecks:
    """Runs and remembers the checks of one authenticator. It owns threads only while checks run."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, float] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._turn = asyncio.Semaphore(THREADS)

    def remembered(self, user: str, password: bytes) -> bool:
        """Whether this pair was right less than a minute ago; saying so keeps it for another minute."""
        key = self._digest(user, password)
        ends = self._good.get(key)
        if ends is None:
            return False
        now = self._clock.monotonic()
        if ends <= now:
            del self._good[key]
            return False
        self._good[key] = now + REMEMBER_SECONDS
        self._good.move_to_end(key)
        return True

    async def check(self, user: str, password: bytes, accepts: Callable[[bytes], bool]) -> bool:
        """Run ``accepts(password)`` on a thread. Raises Unavailable when too many checks are waiting."""
        key = self._digest(user, password)
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= MAX_WAITING:
                raise Unavailable("too many passwords are being checked at this moment", hint="try again")
            work = self._check(key, password, accepts)
            running = asyncio.get_running_loop().create_task(work, name="password-check")
            self._running[key] = running
        return await asyncio.shield(running)

    async def _check(self, key: bytes, password: bytes, accepts: Callable[[bytes], bool]) -> bool:
        try:
            async with self._turn:
                lane = LaneThread("password-check")
                try:
                    right = await lane.run(accepts, password)
                finally:
                    lane.close()
            if right:
                self._remember(key)
            return right
        finally:
            del self._running[key]

    def _remember(self, key: bytes) -> None:
        while len(self._good) >= MAX_REMEMBERED:
            self._good.popitem(last=False)
        self._good[key] = self._clock.monotonic() + REMEMBER_SECONDS

    def _digest(self, user: str, password: bytes) -> bytes:
        name = user.encode(errors="surrogatepass")
        message = b"%d:%b%b" % (len(name), name, password)
        return hashlib.blake2b(message, key=self._key, digest_size=32).digest()
