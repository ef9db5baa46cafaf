"""Query ids. Each names the process that made it, so that any process can tell whose query it is."""

import itertools
import secrets
from collections.abc import Callable
from datetime import UTC, datetime

PROCESS_TAG_LENGTH = 5
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


def new_process_tag() -> str:
    """Five random characters that stand for this process in every id it makes."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(PROCESS_TAG_LENGTH))


def process_tag_of(query_id: str) -> str:
    """The tag of the process that made ``query_id``; empty when it is not one of our ids."""
    head, _, tag = query_id.rpartition("_")
    return tag if head and len(tag) == PROCESS_TAG_LENGTH else ""


class QueryIds:
    """Makes ids of the form ``20261129_213144_00042_k3f9z``: UTC time, counter, process tag.

    The form is that of a Trino query id, because Trino clients show it and accept only such characters.
    """

    __slots__ = ("_count", "_now", "_second", "_stamp", "tag")

    def __init__(self, tag: str, now: Callable[[], float]) -> None:
        """``now`` gives seconds since the epoch."""
        self.tag = tag
        self._now = now
        self._count = itertools.count(1)
        self._second = -1
        self._stamp = ""

    def next(self) -> str:
        """A new id, unique in this process."""
        second = int(self._now())
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).strftime("%Y%m%d_%H%M%S")
        return f"{self._stamp}_{next(self._count):05d}_{self.tag}"
