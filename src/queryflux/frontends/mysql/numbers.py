"""The numbers that connections have, which KILL calls them by. Each names the process that gave it."""

import zlib
from collections.abc import Callable

_COUNTER_BITS = 20


class ConnectionIds:
    """Connection ids of 31 bits, since some drivers read them with a sign: eleven stand for this process,
    twenty count and come round."""

    def __init__(self, process_tag: str) -> None:
        self._process = process_number(process_tag) << _COUNTER_BITS
        self._last = 0

    def next(self, taken: Callable[[int], bool]) -> int:
        """An id that is not ``taken``."""
        while True:
            self._last = self._last % ((1 << _COUNTER_BITS) - 1) + 1
            number = self._process | self._last
            if not taken(number):
                return number


def process_number(process_tag: str) -> int:
    """The eleven bits, never all zero, that stand for a process in the connection ids it gives."""
    return zlib.crc32(process_tag.encode()) % 2047 + 1


def is_from(process_tag: str, number: int) -> bool:
    """Whether a connection id was given by the process of that tag."""
    return number >> _COUNTER_BITS == process_number(process_tag)
