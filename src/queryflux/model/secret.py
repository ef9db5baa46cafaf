"""A string that does not show itself: not in repr, str, format, logs, pickles or JSON."""

import hmac
from typing import NoReturn

MASK = "******"


class Secret:
    """Holds a sensitive string. Only ``reveal`` gives it back; every other way of looking gives a mask."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself. Call it where the value is used, and never store what it returns."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Compare in time that does not depend on where the two differ."""
        return hmac.compare_digest(self._value.encode(), candidate.encode())

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; pass its source and read it again")
