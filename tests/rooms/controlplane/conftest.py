"""An operator port over a store that holds a small configuration."""

import pytest

from tests.kit.operators import Port, make_port


@pytest.fixture
async def port() -> Port:
    return await make_port()
