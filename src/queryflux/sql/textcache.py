"""A cache of what was worked out from a text, bounded in bytes."""

import sys
from typing import Generic, TypeVar

V = TypeVar("V")

_ENTRY_OVERHEAD = 250


class TextCache(Generic[V]):
    """Keeps about ``max_bytes`` of texts and values. Two generations: what was not asked for while the young
    one filled up is dropped with the old one, so a hit costs one dictionary look-up and no reordering."""

    __slots__ = ("_half", "_old", "_size", "_young", "max_entry_bytes")

    def __init__(self, max_bytes: int, max_entry_bytes: int | None = None) -> None:
        """An entry over ``max_entry_bytes`` (default: an eighth of the whole) is not kept."""
        self._half = max_bytes // 2
        self.max_entry_bytes = min(max_entry_bytes or max_bytes // 8, self._half)
        self._young: dict[object, tuple[V, int]] = {}
        self._old: dict[object, tuple[V, int]] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def bytes_held(self) -> int:
        """Bytes of texts and values held now, overhead included; an upper bound."""
        return self._size + sum(size for _, size in self._old.values())

    def get(self, key: object) -> V | None:
        """The value, or None."""
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.pop(key, None)
            if entry is None:
                return None
            self._insert(key, entry)
        return entry[0]

    def put(self, key: object, value: V, *texts: str) -> None:
        """Keep ``value``; ``texts`` are the strings that key and value hold."""
        size = _ENTRY_OVERHEAD + sum(map(sys.getsizeof, texts))
        if size <= self.max_entry_bytes:
            self._insert(key, (value, size))

    def _insert(self, key: object, entry: tuple[V, int]) -> None:
        if self._size + entry[1] > self._half:
            self._old, self._young, self._size = self._young, {}, 0
        if key not in self._young:
            self._size += entry[1]
        self._young[key] = entry
