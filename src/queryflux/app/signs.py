"""Signs of life of workers that their parent started: one whose loop hangs, or that was stopped, says nothing
any more, and neither ends nor hangs up by itself."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. A worker gives a sign every ``sign``. Without one for ``silent`` it does not count as ready;
    for ``dead``, or for ``last`` when its time to drain is over, it is killed."""

    sign: float = 2.0
    silent: float = 15.0
    dead: float = 60.0
    last: float = 5.0


@dataclass(slots=True)
class Signs:
    """What is heard of one worker. ``heard`` is monotonic; ``over`` says that none are to be expected any
    more."""

    name: str
    heard: float
    kill: Callable[[], None]
    silent: bool = False
    over: bool = False


class Attention:
    """Looks at them."""

    def __init__(self, patience: Patience, clock: Clock) -> None:
        self.patience = patience
        self._clock = clock
        self._ends_at: float | None = None

    def ending(self, seconds: float) -> None:
        """All are to have ended in so many seconds."""
        self._ends_at = self._clock.monotonic() + seconds

    def hear(self, worker: Signs) -> None:
        """One has said something, whatever it was."""
        now = self._clock.monotonic()
        if worker.silent:
            log.info("worker %s is heard of again after %.0f s", worker.name, now - worker.heard)
        worker.heard, worker.silent = now, False

    async def pay(self, workers: Callable[[], Iterable[Signs]]) -> None:
        """Look at all of them, again and again."""
        pause = self.patience.sign / 2
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(pause)
            now = self._clock.monotonic()
            late = max(0.0, now - before - pause)
            for worker in list(workers()):
                if not worker.over:
                    # While this process did not run itself, it could hear of nobody.
                    worker.heard = min(now, worker.heard + late)
                    self._look(worker, now)

    def _look(self, worker: Signs, now: float) -> None:
        patience, silence = self.patience, now - worker.heard
        late = self._ends_at is not None and now >= self._ends_at
        if silence >= (patience.last if late else patience.dead):
            worker.over = worker.silent = True
            log.error("worker %s has given no sign of life for %.0f s: it is killed", worker.name, silence)
            worker.kill()
        elif silence >= patience.silent and not worker.silent:
            worker.silent = True
            log.error(
                "worker %s has given no sign of life for %.0f s: it hangs or was stopped, does not count as "
                "ready, and is killed after %g s",
                *(worker.name, silence, patience.dead),
            )
