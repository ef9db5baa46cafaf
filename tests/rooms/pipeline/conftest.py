"""Both ways of a query: its own lane, and the stages, which every query can take."""

import pytest

from queryflux.model.statement import Statement
from queryflux.pipeline import conversation
from queryflux.pipeline.conversation import Talk


def _declined(talk: Talk, statement: Statement) -> None:
    """Nothing is ordinary."""


@pytest.fixture
def by_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query takes the stages."""
    monkeypatch.setattr(conversation, "ordinary", _declined)


@pytest.fixture(params=["lane", "stages"])
def both_ways(request: pytest.FixtureRequest) -> None:
    """Run a test twice: ordinary queries in the lane, and by the stages."""
    if request.param == "stages":
        request.getfixturevalue("by_the_stages")
