"""Patterns are RE2's, and a bad one is refused with its reason."""

import re

import pytest

from queryflux.routing.regex import check_regex, compile_regex


@pytest.mark.parametrize(
    "pattern", ["", "a", r"(?i)^\s*drop\s", r"\bclicks_\d+\b", "año|日本", "(a|b)*c", "(?s).*"]
)
def test_patterns_that_are_taken(pattern: str) -> None:
    assert check_regex(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a**b(", r"(?=look)", r"(a)\1", "a{100000}", "x" * 100_000, "(?<=x)y", "\ud800"]
)
def test_patterns_that_are_refused(pattern: str) -> None:
    reason = check_regex(pattern)
    assert reason
    assert len(reason) < 300
    with pytest.raises(ValueError, match=re.escape(reason)):
        compile_regex(pattern)


def test_a_pattern_that_never_ends_elsewhere_ends_here() -> None:
    # A backtracking engine would be at this for longer than the test run may last.
    assert compile_regex(r"(a*)*(a*)*b$").search(b"a" * 100_000) is None
