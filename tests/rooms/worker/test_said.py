"""What headers say: what means nothing is None, whatever it is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, SEQUENCE
from queryflux.worker.order import Position, Seen
from queryflux.worker.port import Reply
from queryflux.worker.said import About, about

REVISION = "0123456789abcdef"
NAMES = ("etag", EPOCH.lower(), SEQUENCE.lower(), CONFIRMED_AGE.lower())


def said(etag: str = "", epoch: str = "", sequence: str = "", age: str = "") -> About:
    headers = dict(zip(NAMES, (etag, epoch, sequence, age), strict=True))
    return about(Reply(200, headers, b""), 100.0, 130.0)


def test_everything_said() -> None:
    told = said(f'"{REVISION}"', "e1", "7", "2.5")
    assert told == About(REVISION, Position("e1", 7), 2.5, Seen(97.5, 127.5))
    assert said(f'W/"{REVISION}"').revision == REVISION, "a proxy that compresses makes it weak"


def test_nothing_said() -> None:
    assert about(Reply(200, {}, b""), 1.0, 2.0) == About(None, None, None, Seen(1.0, 2.0))


@pytest.mark.parametrize("age", ["-1", "nan", "inf", "1e9", "1 ", "٣", "", "1" * 30])
def test_an_age_that_is_none(age: str) -> None:
    assert said(age=age).age is None


@pytest.mark.parametrize(
    ("epoch", "sequence"), [("", "1"), ("e", "-1"), ("e", "1.0"), ("e", "9" * 19), ("e", "")]
)
def test_a_position_that_is_none(epoch: str, sequence: str) -> None:
    assert said(epoch=epoch, sequence=sequence).position is None


@given(st.fixed_dictionaries({}, optional={name: st.text() for name in NAMES}))
def test_any_headers_can_be_read(headers: dict[str, str]) -> None:
    told = about(Reply(304, headers, b""), 0.0, 0.0)
    assert told.age is None or math.isfinite(told.age)
