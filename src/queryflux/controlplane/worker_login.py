"""The secret that workers share: several are accepted while it is being changed.

What was presented is compared with all of them, in time that tells neither which one it was near to nor how
long they are. A wrong one is logged once for each name that workers of a network give, and for a few names of
each network: callers may call themselves anything. Wrong ones make their peer wait, as operators' do
(attempts.py), with one exception: where workers with a right secret have called from lately, others with a
right one are let in at once, for many workers may share an address with one that was not told the new secret.
"""

import hmac
import logging
import secrets as randomness
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from queryflux.config.problems import show
from queryflux.controlplane.attempts import FORGET_SECS, Attempts, network_of
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.secret import Secret
from queryflux.runtime.clock import Clock

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_PEERS = 10_000
MAX_NAME = 200
MAX_NAMES_LOGGED = 8
"""Of one network; further ones are not."""
SCHEME = "bearer"


class WorkerLogin:
    """Checks the Authorization header of workers' calls: a WorkerGuard."""

    def __init__(self, secrets: Iterable[Secret], clock: Clock) -> None:
        self._key = randomness.token_bytes(32)
        texts = [secret.reveal().strip() for secret in secrets]
        self._accepted = [self._digest(text.encode()) for text in texts if text]
        self._clock = clock
        self._attempts = Attempts(clock)
        self._right: OrderedDict[str, float] = OrderedDict()
        """When a right secret last came from where."""
        self._logged: OrderedDict[str, set[str]] = OrderedDict()
        """Names that were logged, by network."""

    def __call__(self, peer: str, authorization: str, worker: str = "") -> None:
        """Raises AuthenticationFailed, TooManyAttempts."""
        right = self._is_right(authorization)
        where = network_of(peer)
        if right and self._was_right(where):
            _note(self._right, where, self._clock.monotonic())
            return
        self._attempts.begin(peer)
        self._attempts.end(peer, right=right)
        if right:
            _note(self._right, where, self._clock.monotonic())
            self._logged.pop(where, None)
            return
        if self._is_new(where, worker[:MAX_NAME]):
            who = f", as worker {show(worker)}" if worker else ""
            log.warning(
                "a call to the worker API came without a right secret, from %s%s (logged once)", peer, who
            )
        raise AuthenticationFailed(
            "this is for workers with the right secret",
            hint="set queryflux.controlPlane.secretFile of the worker to what queryflux.workerApi has here",
        )

    def _is_new(self, where: str, name: str) -> bool:
        """Whether it is to be logged; it is taken as done."""
        names = self._logged.get(where, set())
        if name in names or len(names) >= MAX_NAMES_LOGGED:
            return False
        _note(self._logged, where, names | {name})
        return True

    def _is_right(self, authorization: str) -> bool:
        scheme, _, presented = authorization.partition(" ")
        digest = self._digest(presented.strip().encode("latin-1", "replace"))
        right = False
        for accepted in self._accepted:
            right |= hmac.compare_digest(digest, accepted)
        return right and scheme.lower() == SCHEME

    def _was_right(self, where: str) -> bool:
        return self._clock.monotonic() - self._right.get(where, -FORGET_SECS) < FORGET_SECS

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")


def _note(peers: OrderedDict[str, T], where: str, what: T) -> None:
    """Remember it of a peer; the longest silent are forgotten."""
    peers[where] = what
    peers.move_to_end(where)
    while len(peers) > MAX_PEERS:
        peers.popitem(last=False)
