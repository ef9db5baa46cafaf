"""The machinery under catalog queries."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.metadata.functions import array_items, array_text, matches, plain_functions


@given(st.lists(st.none() | st.text(max_size=8)))
def test_arrays_survive(items: list[Any]) -> None:
    assert array_items(array_text(items)) == items


@given(st.text(max_size=20))
def test_any_text_is_read_as_an_array_or_none(text: str) -> None:
    array_items(text)


@pytest.mark.parametrize(
    ("text", "pattern", "ignore", "found"),
    [
        ("orders", "^(orders)$", False, 1),
        ("Orders", "^(orders)$", False, 0),
        ("Orders", "^(orders)$", True, 1),
        (None, "x", False, None),
        ("x", None, False, None),
        ("x", "(", False, 0),
        ("a" * 3000, "(a*)*b", False, 0),
    ],
)
def test_patterns(text: Any, pattern: Any, ignore: bool, found: int | None) -> None:
    assert matches(text, pattern, ignore) == found


def test_functions_take_null() -> None:
    for name, (_, body) in plain_functions().items():
        if name in ("json_build_object", "now"):
            continue
        with contextlib.suppress(TypeError):  # another number of arguments
            body(None, None)
        with contextlib.suppress(TypeError):
            body(None)
