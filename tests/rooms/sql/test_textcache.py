"""The cache holds what is asked for, within its bytes."""

from queryflux.sql.textcache import TextCache


def test_a_value_is_found_again() -> None:
    cache: TextCache[str] = TextCache(10_000)
    cache.put("a", "1", "a", "1")
    assert cache.get("a") == "1"
    assert cache.get("b") is None


def test_it_stays_within_its_bytes_and_keeps_what_is_used() -> None:
    cache: TextCache[int] = TextCache(40_000)
    cache.put("hot", 0, "hot")
    for number in range(1000):
        text = f"{number:0500d}"
        cache.put(text, number, text)
        assert cache.get("hot") == 0
        assert cache.bytes_held <= 40_000
    assert cache.get(f"{0:0500d}") is None
    assert cache.get(f"{999:0500d}") == 999


def test_one_large_entry_does_not_push_out_the_rest() -> None:
    cache: TextCache[int] = TextCache(40_000)
    cache.put("small", 1, "small")
    cache.put("large", 2, "x" * 6000)
    assert cache.get("large") is None
    assert cache.get("small") == 1


def test_putting_twice_counts_once() -> None:
    cache: TextCache[int] = TextCache(40_000)
    for _ in range(1000):
        cache.put("same", 1, "same")
    assert cache.bytes_held < 1000
