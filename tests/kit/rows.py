"""Comparing results of the same query from two places."""

import math
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]


def same_rows(got: list[Row], right: list[Row]) -> None:
    """The same rows in the same order, up to the order of ties: rows that no comparison can tell apart may
    stand anywhere in their run. Floats may differ in their last digits, decimals not at all."""
    assert len(got) == len(right)
    if all(same_row(one, other) for one, other in zip(got, right, strict=True)):
        return
    left = list(right)
    for position, row in enumerate(got):
        match = next((other for other in left if same_row(row, other)), None)
        assert match is not None, (
            f"row {position} is not among the right ones: {row}, there: {right[position]}"
        )
        left.remove(match)


def same_row(one: Row, other: Row) -> bool:
    """Whether two rows say the same."""
    return len(one) == len(other) and all(same_value(a, b) for a, b in zip(one, other, strict=True))


def same_value(one: Any, other: Any) -> bool:
    """Whether two values say the same; a decimal and a float may meet where engines differ in their type."""
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return one is not None and other is not None and Decimal(one) == Decimal(other)
    return bool(one == other)
