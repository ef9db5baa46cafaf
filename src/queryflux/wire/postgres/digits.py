"""Numbers as decimal digits, many at a time: eight digits are one 64-bit word, first digit at its low end."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from queryflux.wire.postgres.cells import Mask, Numbers, Slots, records, slots

MINUS = np.uint64(ord("-"))
POINT = np.uint64(ord("."))
_BYTE = np.uint64(8)
_WORD = np.uint64(64)
_TEN_4, _TEN_8, _TEN_16 = 10**4, 10**8, 10**16
MAX_INTEGER = _TEN_16
"""Integers from here on do not fit into two words."""
MAX_SCALE = 7
MAX_WHOLE = 10**7
"""Before a decimal point: seven digits, a point, and eight bytes with the rest are two words."""


@cache
def _four() -> Numbers:
    """The four digits of each number below 10000, zero-padded, as a word."""
    numbers = np.arange(_TEN_4)
    shown = np.stack([numbers // 1000, numbers // 100 % 10, numbers // 10 % 10, numbers % 10], axis=1)
    words: Numbers = (shown + ord("0")).astype(np.uint8).view("<u4").reshape(_TEN_4).astype(np.uint64)
    return words


@cache
def _count() -> Numbers:
    """How many digits each number below 10000 has; 1 for zero."""
    numbers = np.arange(_TEN_4)
    counts: Numbers = (1 + (numbers > 9) + (numbers > 99) + (numbers > 999)).astype(np.uint64)
    return counts


@cache
def _fraction() -> tuple[Numbers, Numbers]:
    """A point and up to four decimals of n/10000 without trailing zeros, as a word and its length."""
    numbers = np.arange(_TEN_4)
    kept = np.select(
        [numbers == 0, numbers % 1000 == 0, numbers % 100 == 0, numbers % 10 == 0], [0, 1, 2, 3], 4
    )
    words = (_four() << _BYTE) | POINT
    sizes = np.where(kept == 0, 0, kept + 1).astype(np.uint64)
    return words & _mask(sizes), sizes


def _mask(sizes: Numbers) -> Numbers:
    """Words whose first ``sizes`` bytes (at most 7) are ones."""
    made: Numbers = (np.uint64(1) << (sizes * _BYTE)) - np.uint64(1)
    return made


def padded(values: Numbers) -> Numbers:
    """Eight digits with leading zeros, of values below 10**8."""
    high = values // np.uint64(_TEN_4)
    low = values - high * np.uint64(_TEN_4)
    words: Numbers = _four()[high] | (_four()[low] << np.uint64(32))
    return words


def aligned(values: Numbers) -> tuple[Numbers, Numbers]:
    """The digits without leading zeros, and their number, of values below 10**8."""
    high = values // np.uint64(_TEN_4)
    low = values - high * np.uint64(_TEN_4)
    sizes = np.where(high > 0, _count()[high] + np.uint64(4), _count()[low])
    words = _four()[high] | (_four()[low] << np.uint64(32))
    return words >> ((_BYTE - sizes) * _BYTE), sizes


def join(first: Numbers, size: Numbers, second: Numbers) -> tuple[Numbers, Numbers]:
    """Two words for ``second`` behind the ``size`` bytes of ``first``; size is 1 to 8."""
    return first | (second << (size * _BYTE)), second >> (_WORD - size * _BYTE)


def magnitude(values: Numbers) -> tuple[Numbers, Mask | None]:
    """Absolute values, unsigned, and where they are negative; None when none is."""
    negative: Mask | None = values < 0
    assert negative is not None
    if not negative.any():
        return values.astype(np.uint64), None
    return np.where(negative, np.uint64(0) - values.astype(np.uint64), values.astype(np.uint64)), negative


def _signed(
    first: Numbers, second: Numbers, sizes: Numbers, negative: Mask
) -> tuple[Numbers, Numbers, Numbers]:
    """A minus before those that are negative; fifteen bytes at most go in."""
    shift = negative.astype(np.uint64) * _BYTE
    carried = np.where(negative, first >> np.uint64(56), np.uint64(0))
    moved = (first << shift) | np.where(negative, MINUS, np.uint64(0))
    return moved, (second << shift) | carried, sizes + negative


def _two_words(first: Numbers, second: "Numbers | None", sizes: Numbers, nulls: Mask | None) -> Slots:
    wide: list[tuple[str, str]] = [("first", "<u8")] + ([("second", "<u8")] if second is not None else [])
    made = records(len(first), *wide)
    made["first"] = first
    if second is not None:
        made["second"] = second
    return slots(made, sizes.astype(np.int64), nulls)


def integers(values: Numbers, nulls: Mask | None) -> Slots | None:
    """Integers in decimal; None when one of them has more than 15 digits."""
    if nulls is not None:
        values = np.where(nulls, values.dtype.type(0), values)
    numbers, negative = magnitude(values)
    highest = int(numbers.max())
    if highest >= MAX_INTEGER // 10:
        return None
    second: Numbers | None
    if highest < _TEN_8:
        first, sizes = aligned(numbers)
        second = None if negative is None else np.zeros(len(first), np.uint64)
    else:
        first, second, sizes = _long(numbers)
    if negative is not None and second is not None:
        first, second, sizes = _signed(first, second, sizes, negative)
    return _two_words(first, second, sizes, nulls)


def _long(numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    high = numbers // np.uint64(_TEN_8)
    low = numbers - high * np.uint64(_TEN_8)
    first, sizes = aligned(high)
    with_high, second = join(first, sizes, padded(low))
    sizes = sizes + _BYTE
    short = high == 0
    if short.any():
        alone, alone_sizes = aligned(low)
        with_high = np.where(short, alone, with_high)
        second = np.where(short, np.uint64(0), second)
        sizes = np.where(short, alone_sizes, sizes)
    return with_high, second, sizes


def decimals(values: Numbers, scale: int, nulls: Mask | None) -> Slots | None:
    """Integers that stand for ``value / 10**scale``; None when they do not fit: a scale over 7 or more than
    seven digits before the point."""
    if scale == 0:
        return integers(values, nulls)
    if not 0 < scale <= MAX_SCALE:
        return None
    if nulls is not None:
        values = np.where(nulls, np.int64(0), values)
    numbers, negative = magnitude(values)
    unit = np.uint64(10**scale)
    whole = numbers // unit
    if int(whole.max()) >= MAX_WHOLE:
        return None
    fraction = padded(numbers - whole * unit) >> np.uint64(8 * (8 - scale))
    tail = (fraction << _BYTE) | POINT
    head, sizes = aligned(whole)
    first, second = join(head, sizes, tail)
    sizes = sizes + np.uint64(scale + 1)
    if negative is not None:
        first, second, sizes = _signed(first, second, sizes, negative)
    return _two_words(first, second, sizes, nulls)


def floats(values: Numbers, digits: int, nulls: Mask | None) -> Slots | None:
    """Floats that are exactly some number of ten-thousandths, as ``digits`` significant digits can tell; None
    when one is not. Any decimal of so few digits is the shortest that reads back as the same float."""
    if nulls is not None:
        values = np.where(nulls, values.dtype.type(0), values)
    size = np.abs(values)
    highest = float(size.max())
    if not highest < min(MAX_WHOLE, 10.0 ** (digits - 4)):
        return None
    scaled = np.rint(size.astype(np.float64) * 1e4)
    if not ((scaled / 1e4).astype(values.dtype) == size).all():
        return None
    numbers = scaled.astype(np.uint64)
    whole = numbers // np.uint64(_TEN_4)
    tails, tail_sizes = _fraction()
    rest = numbers - whole * np.uint64(_TEN_4)
    head, sizes = aligned(whole)
    first, second = join(head, sizes, tails[rest])
    sizes = sizes + tail_sizes[rest]
    negative: npt.NDArray[Any] = np.signbit(values)
    if negative.any():
        first, second, sizes = _signed(first, second, sizes, negative)
    return _two_words(first, second, sizes, nulls)


def warm() -> None:
    """Build the tables."""
    _four()
    _count()
    _fraction()
