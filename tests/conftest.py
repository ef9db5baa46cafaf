"""Options of the whole suite, and fixtures that every kind of test shares."""

import pytest
from hypothesis import HealthCheck, settings

# As in CI: how long an example takes says something of the machine only.
PROFILE = settings.get_profile(settings.get_current_profile_name())
settings.register_profile("patient", PROFILE, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="long; run with make test FULL=1")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
