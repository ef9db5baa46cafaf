"""Users' regular expressions: RE2 alone, whose time grows with the text and not with the pattern's tricks.

Found anywhere in the text, like the patterns of the configurations that users bring. No look-around and no
back-references; flags such as ``(?i)`` work; ``\\w``, ``\\d``, ``\\s`` and ``\\b`` know ASCII.
"""

import functools
from typing import Protocol

import re2

MAX_PATTERN = 64 * 1024


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: bytes) -> object | None:
        """Truthy when it is found in the UTF-8 text."""


def compile_regex(pattern: str) -> Pattern:
    """Compile once, search often. Raises ValueError with RE2's own reason."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")
    return _compile(pattern)


@functools.lru_cache(maxsize=256)
def _compile(pattern: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(_reason(error)) from None
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None
    return compiled


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unusable"
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return text if len(text) <= 200 else text[:200] + "..."


def check_regex(pattern: str) -> str | None:
    """What is wrong with a pattern; None when nothing is."""
    try:
        compile_regex(pattern)
    except ValueError as error:
        return str(error)
    return None
