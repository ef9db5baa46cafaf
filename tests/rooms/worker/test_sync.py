"""A worker follows its control plane: plain GET, waits, order, strict activation, failures."""

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.telemetry.prometheus import PrometheusMetrics
from queryflux.worker.order import Position
from queryflux.worker.port import Reply, SecretRefused
from queryflux.worker.state import ConfigState
from queryflux.worker.sync import (
    LAST_RETRY_SECS,
    LISTEN_SECS,
    OLDER_SECS,
    POLL_SECS,
    SECRET_RETRY_SECS,
    Swap,
    Sync,
)
from tests.kit.clock import ManualClock, settle
from tests.kit.planes import EPOCH_1, EPOCH_2, Plane, about, document, sent, unchanged

POLL = 30.0
A, B, C = document("a", 5), document("b", 6), document("c", 7)
GONE = StoreUnavailable("control:9000: Connection refused")


class Follower:
    """A worker's configuration, and what is used of it."""

    def __init__(self, chance: float = 1.0) -> None:
        self.clock = ManualClock()
        self.plane = Plane()
        self.metrics = PrometheusMetrics()
        self.used: list[str] = []
        self.prepared: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.changes = 0
        self.sync = Sync(
            self.plane,
            self.prepare,
            self.clock,
            self.metrics,
            poll_secs=POLL,
            changed=self.changed,
            chance=lambda: chance,
        )

    async def prepare(self, snapshot: WorkerSnapshot) -> Swap:
        self.prepared.append(snapshot.revision)
        if snapshot.revision in self.broken:
            raise self.broken[snapshot.revision]
        return lambda: self.used.append(snapshot.revision)

    def changed(self) -> None:
        self.changes += 1

    def metric(self, name: str) -> float:
        text = self.metrics.render().decode()
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        return float(line.split()[-1])

    async def follow(self, first: WorkerSnapshot | None = None) -> None:
        self.sync.start()
        await settle()
        if first is not None:
            await self.plane.reply(sent(first))

    async def retry(self) -> None:
        """Until the next call, whatever the pause."""
        for _ in range(100):
            if not self.plane.idle:
                return
            await self.clock.advance(0.1)
        raise AssertionError("nothing is asked any more")

    async def retry_slowly(self) -> None:
        """As ``retry``, after a secret that was refused."""
        await self.clock.advance(SECRET_RETRY_SECS)
        assert not self.plane.idle


@pytest_asyncio.fixture
async def one() -> AsyncIterator[Follower]:
    follower = Follower()
    yield follower
    await follower.sync.close()


# The ordinary course.


async def test_a_plain_get_first_and_waits_after_it(one: Follower) -> None:
    await one.follow()
    asked = one.plane.asked
    assert (asked.method, asked.path, asked.params, asked.headers) == ("GET", CONFIG, {}, {})
    await one.plane.reply(sent(A, age=3))
    assert one.used == [A.revision]
    status = one.sync.status
    assert (status.state, status.revision, status.source) == (ConfigState.FRESH, A.revision, "controlPlane")
    assert (status.stale, status.confirmed_age, one.changes) == (False, 3.0, 1)
    asked = one.plane.asked
    assert (asked.method, asked.path) == ("GET", CONFIG_WAIT)
    assert asked.params == {
        "revision": A.revision,
        "epoch": EPOCH_1,
        "sequence": "5",
        "timeoutSecs": "30",
    }
    assert asked.seconds == POLL + LISTEN_SECS
    await one.plane.reply(sent(B))
    assert one.used == [A.revision, B.revision]
    assert one.plane.asked.params["revision"] == B.revision


async def test_not_modified_is_no_answer_to_a_worker_that_has_nothing(
    one: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    await one.follow()
    await one.plane.reply(unchanged(A.revision, 5))
    status = one.sync.status
    assert (status.state, status.failures) == (ConfigState.UNCONFIGURED, 1)
    assert "304" in status.failure
    assert [it.levelno for it in caplog.records if "304" in it.getMessage()] == [logging.ERROR]
    assert one.plane.idle, "it rests first"
    await one.retry()
    await one.plane.reply(unchanged(A.revision, 5))
    assert one.sync.status.failures == 2
    await one.retry()
    await one.plane.reply(sent(A))
    assert (one.used, one.sync.status.failure) == ([A.revision], "")


async def test_a_wait_without_news_confirms_as_far_as_the_control_plane_is_confirmed(one: Follower) -> None:
    await one.follow(A)
    await one.clock.advance(27)
    assert one.sync.confirmed_age == 27
    await one.plane.reply(unchanged(A.revision, 5, age=4))
    assert one.sync.confirmed_age == 4
    assert one.plane.asked.path == CONFIG_WAIT
    await one.clock.advance(27)
    await one.plane.reply(unchanged(A.revision, 5, age=600))
    assert one.sync.confirmed_age == 31, "its last good one is not confirmed anew"
    assert one.used == [A.revision]


async def test_the_bytes_that_came_are_kept_with_what_a_later_version_put_in(one: Follower) -> None:
    later = document("a", 5, anythingNew={"x": [1, 2]})
    await one.follow(later)
    assert one.sync.active is not None
    assert one.sync.active.data == later.data
    assert b"anythingNew" in one.sync.active.data


async def test_a_wait_that_comes_back_at_once_is_not_repeated_without_a_pause(one: Follower) -> None:
    await one.follow(A)
    await one.plane.reply(unchanged(A.revision, 5))
    assert one.plane.idle
    await one.clock.advance(1)
    assert one.plane.asked.path == CONFIG_WAIT


# Order.


@pytest.mark.parametrize(
    "late", [document("x", 4), document("x", 5), document("a", 4)], ids=["lower", "same", "itself lower"]
)
async def test_what_is_not_later_changes_nothing_and_confirms_nothing(
    one: Follower, late: WorkerSnapshot
) -> None:
    await one.follow(A)
    await one.clock.advance(20)
    await one.plane.reply(sent(late))
    assert (one.used, one.sync.confirmed_age) == ([A.revision], 20)
    assert one.sync.position == Position(EPOCH_1, 5)
    assert ("is behind" in one.sync.status.behind) == (late.sequence < 5)


async def test_a_control_plane_that_lags_confirms_nothing_and_is_said_to_be_behind(one: Follower) -> None:
    await one.follow(B)
    await one.clock.advance(30)
    await one.plane.reply(unchanged(A.revision, 5))
    assert (one.sync.status.revision, one.sync.confirmed_age) == (B.revision, 30)
    assert "at 5" in one.sync.status.behind
    assert "migrate --new-epoch" in one.sync.status.behind
    await one.clock.advance(30)
    await one.plane.reply(unchanged(B.revision, 6))
    assert (one.sync.status.behind, one.sync.confirmed_age) == ("", 0)


@pytest.mark.parametrize("reply", [unchanged("00000000000000ab", 5), sent(document("x", 5))])
async def test_another_configuration_at_the_same_place_is_told(
    one: Follower, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that was restored, and edited again."""
    await one.follow(A)
    for _ in range(3):
        await one.clock.advance(30)
        await one.plane.reply(reply)
    assert "another configuration at 5" in one.sync.status.behind
    assert "migrate --new-epoch" in one.sync.status.behind
    assert [it for it in caplog.messages if "another configuration" in it] == [one.sync.status.behind]
    await one.clock.advance(30)
    await one.plane.reply(unchanged(A.revision, 5))
    assert one.sync.status.behind == ""


async def test_what_was_only_spoken_of_is_still_asked_for(one: Follower) -> None:
    """A wait may end just as there is news: the answer names it, and does not bring it."""
    await one.follow(A)
    await one.clock.advance(30)
    await one.plane.reply(unchanged(B.revision, 6))
    assert one.plane.asked.params["sequence"] == "5"
    await one.plane.reply(sent(B))
    assert one.used == [A.revision, B.revision]


async def test_an_earlier_configuration_comes_back_under_a_higher_sequence(one: Follower) -> None:
    await one.follow(A)
    await one.plane.reply(sent(B))
    await one.plane.reply(sent(document("a", 7)))
    assert one.used == [A.revision, B.revision, A.revision]


async def test_an_edit_that_was_taken_back_moves_the_order_on(one: Follower) -> None:
    """Else a control plane that lags at the edit in between would bring it back."""
    await one.follow(A)
    await one.clock.advance(1)
    await one.plane.reply(unchanged(A.revision, 7))
    assert one.plane.asked.params["sequence"] == "7"
    await one.plane.reply(sent(B))
    assert one.used == [A.revision]


async def test_a_new_epoch_is_taken_when_its_store_was_seen_later(
    one: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    await one.follow(C)
    restored = document("r", 2, EPOCH_2)
    await one.clock.advance(10)
    await one.plane.reply(unchanged(C.revision, 7))
    await one.clock.advance(1)
    await one.plane.reply(sent(restored, age=30))
    assert one.used == [C.revision], "of a control plane that has not heard of this epoch yet"
    assert "behind" in one.sync.status.behind
    await one.clock.advance(POLL_SECS)
    await one.plane.reply(sent(restored, age=1))
    assert one.used == [C.revision, restored.revision]
    assert one.sync.status.behind == ""
    assert any(f"epoch {EPOCH_2}, and was {EPOCH_1}" in it for it in caplog.messages)


async def test_an_epoch_that_was_left_is_over(one: Follower) -> None:
    await one.follow(C)
    await one.clock.advance(10)
    await one.plane.reply(unchanged(C.revision, 7))
    await one.plane.reply(sent(document("r", 2, EPOCH_2)))
    await one.clock.advance(POLL_SECS)
    await one.plane.reply(sent(document("r", 2, EPOCH_2)))
    for _ in range(8):
        await one.clock.advance(POLL_SECS)
        await one.plane.reply(sent(document("d", 9)))
    assert len(one.used) == 2, "two stores under one address do not make it go to and fro"
    await one.clock.advance(POLL_SECS)
    await one.plane.reply(sent(document("s", 3, EPOCH_2)))
    assert len(one.used) == 3


# Strict activation.


async def test_a_snapshot_that_cannot_be_used_changes_nothing_and_is_not_fetched_again(
    one: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    one.broken[B.revision] = ConfigError("clusters.b.endpoint: no")
    await one.follow(A)
    await one.plane.reply(sent(B))
    status = one.sync.status
    assert (one.used, status.state, status.revision) == ([A.revision], ConfigState.REJECTED, A.revision)
    assert status.rejected == (B.revision, "clusters.b.endpoint: no")
    assert one.metric("queryflux_config_reload_failures_total") == 1
    assert one.changes == 2
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert B.revision in told.getMessage()
    assert f"{A.revision} stays in use" in told.getMessage()
    asked = one.plane.asked
    assert (asked.params["revision"], asked.params["rejected"]) == (A.revision, B.revision)
    await one.clock.advance(30)
    await one.plane.reply(unchanged(B.revision, 6))
    assert one.sync.state is ConfigState.REJECTED
    assert one.sync.confirmed_age == 30, "what is in use is not what there is"
    await one.plane.reply(sent(B))
    assert one.prepared == [A.revision, B.revision], "it was compiled once"
    await one.clock.advance(POLL_SECS)
    await one.plane.reply(sent(C))
    assert one.used == [A.revision, C.revision]
    assert one.sync.status.rejected is None


async def test_the_active_revision_coming_back_clears_the_rejection(one: Follower) -> None:
    one.broken[B.revision] = ConfigError("no")
    await one.follow(A)
    await one.plane.reply(sent(B))
    await one.clock.advance(2)
    await one.plane.reply(unchanged(A.revision, 7))
    assert (one.sync.state, one.sync.status.rejected) == (ConfigState.FRESH, None)


async def test_what_is_in_use_stands_where_it_was_confirmed_and_not_where_another_was_refused(
    one: Follower,
) -> None:
    one.broken[B.revision] = ConfigError("no")
    await one.follow(A)
    assert one.sync.stands == (EPOCH_1, 5)
    await one.plane.reply(sent(B))
    assert (one.sync.position, one.sync.stands) == ((EPOCH_1, 6), (EPOCH_1, 5))
    await one.clock.advance(2)
    await one.plane.reply(unchanged(A.revision, 7))
    assert one.sync.stands == (EPOCH_1, 7)


async def test_a_control_plane_that_lags_does_not_clear_a_rejection(one: Follower) -> None:
    one.broken[B.revision] = ConfigError("no")
    await one.follow(A)
    await one.plane.reply(sent(B))
    await one.clock.advance(2)
    await one.plane.reply(unchanged(A.revision, 5))
    assert one.sync.state is ConfigState.REJECTED


async def test_a_first_snapshot_that_cannot_be_used_leaves_the_worker_without_one(one: Follower) -> None:
    one.broken[A.revision] = ConfigError("no")
    await one.follow(A)
    assert (one.used, one.sync.state) == ([], ConfigState.UNCONFIGURED)
    asked = one.plane.asked
    assert asked.path == CONFIG_WAIT
    assert "revision" not in asked.params
    assert asked.params["rejected"] == A.revision
    await one.plane.reply(sent(B))
    assert one.used == [B.revision]


async def test_a_fault_of_ours_in_preparing_is_a_rejection_too(one: Follower) -> None:
    one.broken[B.revision] = RuntimeError("secret detail")
    await one.follow(A)
    await one.plane.reply(sent(B))
    rejected = one.sync.status.rejected
    assert rejected is not None
    assert rejected.error == "internal error: RuntimeError"


# Versions.


async def test_an_unknown_schema_version_keeps_the_configuration_and_says_why(one: Follower) -> None:
    await one.follow(A)
    later = Reply(200, about("0123456789abcdef", EPOCH_1, 6), b'{"schemaVersion":2,"new":"shape"}')
    await one.plane.reply(later)
    status = one.sync.status
    assert (one.used, status.state) == ([A.revision], ConfigState.REJECTED)
    assert status.rejected is not None
    assert status.rejected.revision == "0123456789abcdef"
    assert "schema version 2; this worker knows 1 (upgrade this worker)" in status.rejected.error
    assert one.metric("queryflux_config_reload_failures_total") == 1
    assert one.plane.asked.params["rejected"] == "0123456789abcdef"
    await one.plane.reply(sent(C))
    assert one.used == [A.revision, C.revision]


@pytest.mark.parametrize("body", [b"<html>", A.data.replace(b'"a"', b'"z"'), b""])
async def test_what_was_spoilt_on_its_way_is_asked_for_again(one: Follower, body: bytes) -> None:
    await one.follow()
    await one.plane.reply(Reply(200, about(A.revision, EPOCH_1, 5), body))
    assert one.sync.status.rejected is None
    assert one.sync.status.failure
    await one.retry()
    await one.plane.reply(sent(A))
    assert one.used == [A.revision]


async def test_an_older_control_plane_without_waits_is_polled(one: Follower) -> None:
    await one.follow(A)
    await one.plane.reply(Reply(404, {}, b""))
    asked = one.plane.asked
    assert (asked.path, asked.headers) == (CONFIG, {"If-None-Match": f'"{A.revision}"'})
    await one.plane.reply(unchanged(A.revision, 5))
    assert one.plane.idle
    await one.clock.advance(POLL_SECS)
    await one.plane.reply(sent(B))
    assert one.used == [A.revision, B.revision]
    await one.clock.advance(OLDER_SECS)
    await one.plane.reply(unchanged(B.revision, 6))
    assert one.plane.asked.path == CONFIG_WAIT, "it may have been upgraded"


# Failures.


async def test_an_outage_is_told_once_and_keeps_what_is_in_use(
    one: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    await one.follow(A)
    pauses = []
    await one.plane.fail(GONE)
    for _ in range(8):
        began = one.clock.monotonic()
        await one.retry()
        pauses.append(round(one.clock.monotonic() - began))
        await one.plane.fail(GONE)
    assert pauses == sorted(pauses)
    assert pauses[0] <= 1
    assert pauses[-1] == LAST_RETRY_SECS
    status = one.sync.status
    assert (status.state, status.revision, status.failures) == (ConfigState.FRESH, A.revision, 9)
    assert status.failure == GONE.message
    assert status.failing_secs is not None
    assert status.failing_secs > 10
    assert sum("does not give the configuration" in line for line in caplog.messages) == 1
    await one.retry()
    assert one.plane.asked.path == CONFIG, "asked in a way that is answered at once"
    changes = one.changes
    await one.plane.reply(unchanged(A.revision, 5))
    assert (one.sync.status.failure, one.sync.status.failing_secs) == ("", None)
    assert one.changes == changes + 1, "it is reported at once that the control plane answers"
    assert one.plane.asked.path == CONFIG_WAIT


async def test_workers_do_not_come_back_together() -> None:
    pauses = set()
    for chance in (0.0, 0.3, 0.6, 0.9):
        follower = Follower(chance)
        await follower.follow(A)
        for _ in range(5):
            await follower.plane.fail(GONE)
            began = follower.clock.monotonic()
            await follower.retry()
        pauses.add(round(follower.clock.monotonic() - began, 1))
        await follower.sync.close()
    assert len(pauses) == 4
    assert LAST_RETRY_SECS / 2 <= min(pauses) < max(pauses) <= LAST_RETRY_SECS


async def test_a_worker_without_a_configuration_asks_every_second(one: Follower) -> None:
    await one.follow()
    for _ in range(20):
        await one.plane.fail(GONE)
        await one.clock.advance(1)
    assert len(one.plane.calls) > 20
    await one.plane.reply(sent(A))
    assert one.used == [A.revision]


async def test_a_wrong_secret_is_told_once_and_tried_slowly(
    one: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    await one.follow()
    for _ in range(3):
        await one.plane.fail(SecretRefused("control:9000: the shared secret is refused (401)"))
        await one.clock.advance(SECRET_RETRY_SECS - 1)
        assert one.plane.idle
        await one.clock.advance(1)
    assert sum("refused" in line for line in caplog.messages) == 1
    assert "refused" in one.sync.status.failure


@pytest.mark.parametrize("status", [400, 404, 418, 500])
async def test_an_answer_that_means_nothing_here_is_a_failure(one: Follower, status: int) -> None:
    await one.follow()
    await one.plane.reply(Reply(status, {}, b"?"))
    assert str(status) in one.sync.status.failure
    await one.retry()
    await one.plane.reply(sent(A))
    assert one.used == [A.revision]


async def test_closing_ends_a_wait(one: Follower) -> None:
    await one.follow(A)
    await one.sync.close()
    assert one.plane.calls[-1].answer.cancelled()
    assert one.clock.pending == 0
