"""What comes after what."""

from queryflux.worker.order import LEFT_SECS, Order, Position, Seen


def at(moment: float, doubt: float = 0.0) -> Seen:
    return Seen(moment - doubt, moment)


def heard(*positions: tuple[str, int, float]) -> Order:
    order = Order()
    for epoch, sequence, moment in positions:
        order.advance(Position(epoch, sequence), at(moment))
    return order


def test_within_an_epoch_the_sequence_decides() -> None:
    order = heard(("e", 5, 100))
    assert order.is_news(Position("e", 6), at(0)), "however old"
    assert not order.is_news(Position("e", 5), at(200))
    assert not order.is_news(Position("e", 4), at(200))
    assert order.may_confirm(Position("e", 5), at(0))
    assert not order.may_confirm(Position("e", 4), at(200))
    order.advance(Position("e", 4), at(200))
    assert order.position == Position("e", 5)


def test_between_epochs_the_store_that_was_seen_later_counts() -> None:
    order = heard(("e", 5, 100))
    assert not order.is_news(Position("f", 9), at(99))
    assert not order.is_news(Position("f", 9), at(101, doubt=2)), "it may have been before"
    assert order.is_news(Position("f", 1), at(101))
    order.advance(Position("e", 5), at(150))
    assert not order.is_news(Position("f", 1), at(101)), "the other has been confirmed since"


def test_nobody_goes_back_at_once() -> None:
    order = heard(("e", 5, 100), ("f", 1, 110))
    assert order.position == Position("f", 1)
    assert not order.is_news(Position("e", 6), at(110 + LEFT_SECS))
    assert order.is_news(Position("e", 6), at(111 + LEFT_SECS)), "nobody confirms the other any more"
    order.advance(Position("e", 6), at(111 + LEFT_SECS))
    assert order.position == Position("e", 6)


def test_whatever_comes_first_is_news() -> None:
    assert Order().is_news(Position("e", 0), at(-5))
