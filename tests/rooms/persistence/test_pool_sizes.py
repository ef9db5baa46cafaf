"""How many connections each pool may have."""

import pytest

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import ConfigError
from queryflux.persistence.postgres.pools import PoolSizes, pool_sizes


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, (6, 8, 2)),
        ({"pool_size": 10}, (7, 1, 1)),
        ({"pool_size": 20}, (13, 3, 3)),
        ({"pool_size": 4}, (1, 1, 1)),
        ({"coordination_pool_size": 16}, (6, 16, 2)),
        ({"query_pool_size": 3, "admin_pool_size": 1}, (3, 8, 1)),
        ({"pool_size": 40, "admin_pool_size": 5}, (6, 8, 5)),
    ],
)
def test_sizes(keys: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert pool_sizes(PostgresPersistence(**keys)) == PoolSizes(*expected)  # type: ignore[arg-type]


def test_a_pool_size_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 4"):
        pool_sizes(PostgresPersistence(pool_size=3))
