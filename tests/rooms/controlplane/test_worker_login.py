"""The secret of workers: several at a time, apart from operators', and what wrong ones cost."""

import hmac
import logging
from itertools import pairwise

import pytest

from queryflux.controlplane import worker_login as module
from queryflux.controlplane.attempts import FORGET_SECS, FREE_FAILURES
from queryflux.controlplane.errors import TooManyAttempts
from queryflux.controlplane.worker_login import MAX_NAMES_LOGGED, WorkerLogin
from queryflux.model.errors import AuthenticationFailed
from queryflux.model.secret import Secret
from tests.kit.clock import ManualClock

OLD, NEW, EXTRA = "old-secret-of-workers", "new-secret-of-workers", "schlüssel-der-arbeiter"
HERE, THERE = "203.0.113.7", "203.0.113.8"


class Bench:
    def __init__(self, *secrets: str) -> None:
        self.clock = ManualClock()
        self.login = WorkerLogin([Secret(text) for text in secrets or (OLD, NEW, EXTRA)], self.clock)

    def says(self, secret: str, peer: str = HERE) -> str:
        """What a call with a secret comes to."""
        header = f"Bearer {secret}".encode().decode("latin-1")
        try:
            self.login(peer, header)
        except AuthenticationFailed:
            return "wrong"
        except TooManyAttempts:
            return "wait"
        return "in"


@pytest.mark.parametrize("secret", [OLD, NEW, EXTRA])
def test_each_of_several_secrets_is_accepted(secret: str) -> None:
    assert Bench().says(secret) == "in"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {OLD}",
        OLD,
        f"Bearer {OLD[:-1]}",
        f"Bearer {OLD}x",
        f"Bearer {OLD.upper()}",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer \u20ac",
    ],
)
def test_anything_else_is_not(header: str) -> None:
    with pytest.raises(AuthenticationFailed):
        Bench().login(HERE, header)


def test_the_scheme_is_read_as_http_says() -> None:
    bench = Bench()
    bench.login(HERE, f"bearer   {OLD} ")


@pytest.mark.parametrize("secret", ["", "  "])
def test_an_empty_secret_opens_nothing(secret: str) -> None:
    bench = Bench(secret)
    assert bench.says(secret) == "wrong"
    assert bench.says("") == "wrong"


def test_what_is_presented_is_compared_with_every_secret_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)
        digest = staticmethod(hmac.digest)

    monkeypatch.setattr(module, "hmac", Watched)
    for secret in (OLD, NEW, "x", "x" * 1000):
        compared.clear()
        bench.says(secret, THERE)
        assert compared == [(32, 32)] * 3


def test_a_wrong_secret_is_logged_once_for_each_peer_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    with caplog.at_level(logging.DEBUG):
        for peer in (HERE, THERE):
            for _ in range(3):
                assert bench.says("a-wrong-secret", peer) == "wrong"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert HERE in caplog.text
    assert THERE in caplog.text
    assert "a-wrong-secret" not in caplog.text
    assert OLD not in caplog.text
    with caplog.at_level(logging.DEBUG):
        assert bench.says(OLD) == "in"
        assert bench.says("a-wrong-secret") == "wrong"
    assert len(caplog.records) == 3, "who was right in between is logged again"


def test_workers_of_one_address_are_named_each(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for name in ("east", "west", "east", "we\nst"):
        with pytest.raises(AuthenticationFailed):
            bench.login(HERE, "Bearer wrong", name)
    said = [f'from {HERE}, as worker "{name}" (logged once)' for name in ("east", "west", "we?st")]
    assert [message[-len(end) :] for message, end in zip(caplog.messages, said, strict=True)] == said


def test_a_caller_that_gives_ever_new_names_is_logged_a_few_times_and_keeps_nobody_else_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PEERS", 10)
    monkeypatch.setattr(module, "Attempts", lambda clock: Patient())
    bench = Bench()
    assert bench.says("wrong", THERE) == "wrong"
    for number in range(50):
        with pytest.raises(AuthenticationFailed):
            bench.login(HERE, "Bearer wrong", f"w{number}")
    assert len(caplog.messages) == 1 + MAX_NAMES_LOGGED
    assert bench.says("wrong", THERE) == "wrong"
    assert len(caplog.messages) == 1 + MAX_NAMES_LOGGED, "it is still remembered"


def test_a_right_secret_forgets_all_names_of_its_network(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for _ in range(2):
        with pytest.raises(AuthenticationFailed):
            bench.login(HERE, "Bearer wrong", "east")
        bench.login(HERE, f"Bearer {NEW}", "west")
    assert len(caplog.messages) == 2


class Patient:
    """Attempts that are never too many."""

    def begin(self, peer: str) -> None:
        pass

    def end(self, peer: str, *, right: bool) -> None:
        pass


def test_guessing_is_slowed_down() -> None:
    bench = Bench()
    assert [bench.says(f"guess {n}") for n in range(FREE_FAILURES)] == ["wrong"] * FREE_FAILURES
    assert bench.says("another") == "wait"
    assert bench.says(OLD) == "wait", "a peer that was never right learns nothing meanwhile"
    assert bench.says("another", THERE) == "wrong"


async def test_a_neighbour_that_was_not_told_the_new_secret_does_not_lock_out_the_others() -> None:
    bench = Bench()
    assert bench.says(NEW) == "in"
    for _ in range(50):
        bench.says("forgotten")
    assert bench.says("forgotten") == "wait"
    assert bench.says(NEW) == "in"
    assert bench.says(OLD) == "in"
    await bench.clock.advance(FORGET_SECS + 1)
    for _ in range(50):
        bench.says("forgotten")
    assert bench.says(NEW) == "wait", "nobody right has called from here for long"


async def test_the_wait_ends() -> None:
    bench = Bench()
    for _ in range(50):
        bench.says("forgotten")
    await bench.clock.advance(61)
    assert bench.says(NEW) == "in"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PEERS", 10)
    bench = Bench()
    for number in range(100):
        bench.says("wrong", f"10.0.0.{number}")
        bench.says(OLD, f"10.0.1.{number}")
    assert len(bench.login._logged) == len(bench.login._right) == 10
    assert all(a < b for a, b in pairwise(map(_last, bench.login._right)))


def _last(address: str) -> int:
    return int(address.rpartition(".")[2])


def test_what_a_refusal_says() -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        Bench().login(HERE, "Bearer wrong-secret")
    assert "secretFile" in caught.value.hint
    assert "wrong-secret" not in caught.value.message + caught.value.hint
