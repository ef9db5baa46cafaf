"""What the headers of an answer say about the configuration that it speaks of."""

import re
from typing import NamedTuple

from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, MAX_EPOCH_LENGTH, MAX_SEQUENCE, SEQUENCE
from queryflux.worker.order import Position, Seen
from queryflux.worker.port import Reply

_TAG = re.compile(r'(?:W/)?"([0-9a-f]{16})"\Z')
_WHOLE = re.compile(r"[0-9]{1,19}\Z")
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")


class About(NamedTuple):
    """What is not said, or not in a form that means something, is None. ``age``: seconds since the store was
    last seen to say this, up to when the answer was made; ``seen`` is when that was."""

    revision: str | None
    position: Position | None
    age: float | None
    seen: Seen


def about(reply: Reply, asked_at: float, came_at: float) -> About:
    """What an answer says."""
    headers = reply.headers
    tag = _TAG.match(headers.get("etag", ""))
    epoch, sequence = headers.get(EPOCH.lower(), ""), headers.get(SEQUENCE.lower(), "")
    position = None
    if 0 < len(epoch) <= MAX_EPOCH_LENGTH and _WHOLE.match(sequence) and int(sequence) <= MAX_SEQUENCE:
        position = Position(epoch, int(sequence))
    seconds = headers.get(CONFIRMED_AGE.lower(), "")
    age = float(seconds) if _SECONDS.match(seconds) else None
    seen = Seen(asked_at - (age or 0.0), came_at - (age or 0.0))
    return About(tag[1] if tag is not None else None, position, age, seen)
