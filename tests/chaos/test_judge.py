"""The judge itself: what it lets pass, what it explains, what it does not."""

import pytest

from tests.chaos.judge import FOREVER, Judge


@pytest.fixture
def judge() -> Judge:
    return Judge({"c": 2, "d": 1}, grace_secs=3)


def run(judge: Judge, *ids: str, instance: str = "p", began: float = 10, cluster: str = "c") -> None:
    """These start."""
    for query_id in ids:
        judge.start(cluster, query_id, instance, began)


def test_as_many_as_the_cap_and_no_more(judge: Judge) -> None:
    run(judge, "a", "b")
    run(judge, "x", cluster="d")
    judge.end("a")
    run(judge, "e")
    assert judge.violations == []
    run(judge, "f", instance="q")
    assert judge.violated == 1
    assert "3 queries run on c under a cap of 2" in judge.violations[0]
    assert judge.clusters["c"].most == 3


def test_what_dates_from_before_a_loss_is_left_out_and_told_apart(judge: Judge) -> None:
    run(judge, "a", "b")
    judge.excuse("lost", None, FOREVER)
    judge.excuse("lost", None, 12)
    run(judge, "e", "f", began=13)
    assert judge.violations == []
    assert judge.over == {"lost": 2}
    assert judge.clusters["c"].most_counted == 2
    run(judge, "g", began=13)
    assert judge.violated == 1, "those that came after it keep to the cap among themselves"


def test_only_the_process_that_was_away_is_excused(judge: Judge) -> None:
    run(judge, "a", instance="away")
    judge.excuse("stopped", "away", FOREVER)
    run(judge, "b", "e")
    assert (judge.violated, judge.over) == (0, {"stopped": 1})
    run(judge, "f")
    assert judge.violated == 1


def test_one_query_may_be_excused(judge: Judge) -> None:
    run(judge, "a", "b")
    judge.excuse_one("a", "expired")
    judge.excuse_one("unknown", "expired")
    run(judge, "e")
    assert (judge.violated, judge.over) == (0, {"expired": 1})


def test_an_older_cap_counts_until_everybody_has_the_new_one_and_calls_under_way_are_over(
    judge: Judge,
) -> None:
    judge.cap("c", 1)
    run(judge, "a", "b", began=20)
    judge.settled("c", 21)
    judge.end("b")
    run(judge, "e", began=24)
    assert judge.violations == []
    judge.end("e")
    run(judge, "f", began=24.1)
    assert judge.violated == 1, "2 under a cap of 1"


def test_a_query_starts_and_ends_once(judge: Judge) -> None:
    run(judge, "a", "a")
    judge.end("a")
    judge.end("a")
    assert judge.violated == 2
    assert judge.running == 0
