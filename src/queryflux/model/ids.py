"""Query ids. Each names the process that made it, so that any process can tell whose query it is."""

import itertools
import secrets
import socket
from collections.abc import Callable
from datetime import UTC, datetime

PROCESS_TAG_LENGTH = 5
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


def new_process_tag() -> str:
    """Five random characters that stand for this process in every id it makes."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(PROCESS_TAG_LENGTH))


def new_instance_id() -> str:
    """A name for this process among those that share a database: its host, and eight hexadecimal digits."""
    return f"qf-{socket.gethostname()}-{secrets.token_hex(4)}"


def process_tag_of(query_id: str) -> str:
    """The tag of the process that made ``query_id``; empty when it is not one of our ids."""
    head, _, tag = query_id.rpartition("_")
    return tag if head and len(tag) == PROCESS_TAG_LENGTH else ""


class QueryIds:
    """Makes ids of the form ``20261129_213144_00042_k3f9z``: UTC time, counter, process tag.

    The form is that of a Trino query id, because Trino clients show it and accept only such characters.
    """

    __slots__ = ("_count", "_form", "_now", "_second", "tag")

    def __init__(self, tag: str, now: Callable[[], float]) -> None:
        """``now`` gives seconds since the epoch."""
        self.tag = tag
        self._now = now
        self._count = itertools.count(1)
        self._second = -1
        self._form = ""

    def next(self) -> str:
        """A new id, unique in this process."""
        return self.at(self._now())

    def at(self, now: float) -> str:
        """The same for whoever knows the time already: ``now``, in seconds since the epoch."""
        second = int(now)
        if second != self._second:
            self._second = second
            stamp = datetime.fromtimestamp(second, UTC).strftime("%Y%m%d_%H%M%S")
            self._form = f"{stamp}_%05d_{self.tag}"
        return self._form % next(self._count)
