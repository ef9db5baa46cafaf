"""What the log says of scripts that fail: which one, why, and for which query; not once for each query."""

import logging

from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)

QUIET_SECS = 10.0
"""A script has one line in so long."""


class FailureLog:
    """The lines of one host's scripts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until: dict[int, float] = {}
        self._left_out: dict[int, int] = {}

    def tell(self, script: int, why: str, query_id: str) -> None:
        """Say that a script failed. ``why`` names it, and quotes no data: logs travel further than traces,
        where the whole reason is. ``query_id`` is empty for a statement that is only described."""
        now = self._clock.monotonic()
        if now < self._quiet_until.get(script, 0.0):
            self._left_out[script] = self._left_out.get(script, 0) + 1
            return
        self._quiet_until[script] = now + QUIET_SECS
        before = self._left_out.pop(script, 0)
        more = f"; {before} failures of it since the last such line are left out" if before else ""
        log.warning("a script failed for %s: %s%s", query_id or "a statement to be described", why, more)
