"""Bearer tokens of ours: 32 random bytes, kept as hashes, forgotten when they lie idle."""

import hashlib
import secrets
from collections import OrderedDict

from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.clock import Clock

IDLE_SECONDS = 8 * 3600.0
MAX_TOKENS = 10_000
MAX_TOKEN_LENGTH = 256


class Tokens:
    """The live tokens of one process, the longest unused first."""

    __slots__ = ("_clock", "_live", "_most")

    def __init__(self, clock: Clock, most: int = MAX_TOKENS) -> None:
        """``most`` tokens live at once; a further one ends the longest unused."""
        self._clock = clock
        self._most = most
        self._live: OrderedDict[bytes, tuple[VerifiedIdentity, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._live)

    def issue(self, identity: VerifiedIdentity) -> str:
        """A new token that stands for ``identity`` until it has been idle for eight hours."""
        now = self._clock.monotonic()
        while self._live:
            oldest, (_, ends) = next(iter(self._live.items()))
            if ends > now and len(self._live) < self._most:
                break
            del self._live[oldest]
        token = secrets.token_urlsafe(32)
        self._live[_hash(token)] = (identity, now + IDLE_SECONDS)
        return token

    def find(self, token: str) -> VerifiedIdentity | None:
        """Whose token it is; using it keeps it alive. None for anything else."""
        if len(token) > MAX_TOKEN_LENGTH:
            return None
        key = _hash(token)
        entry = self._live.get(key)
        if entry is None:
            return None
        now = self._clock.monotonic()
        if entry[1] <= now:
            del self._live[key]
            return None
        self._live[key] = (entry[0], now + IDLE_SECONDS)
        self._live.move_to_end(key)
        return entry[0]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
