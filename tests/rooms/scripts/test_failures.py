"""A script that fails on every query says so with the first one's id, and then no more than it has to."""

import pytest

from queryflux.scripts.failures import QUIET_SECS, FailureLog
from tests.kit.clock import ManualClock


async def test_a_line_names_script_reason_and_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    failures = FailureLog(clock)
    for number in range(5):
        failures.tell(0, "routers[0].script: line 4: KeyError", f"q{number}")
    failures.tell(1, "scripts.fix.body gave no statement", "")
    await clock.advance(QUIET_SECS)
    failures.tell(0, "routers[0].script: it took longer than 0.25 s", "q9")
    await clock.advance(QUIET_SECS)
    failures.tell(0, "routers[0].script: line 4: KeyError", "q10")
    assert [record.getMessage() for record in caplog.records] == [
        "a script failed for q0: routers[0].script: line 4: KeyError",
        "a script failed for a statement to be described: scripts.fix.body gave no statement",
        "a script failed for q9: routers[0].script: it took longer than 0.25 s; "
        "4 failures of it since the last such line are left out",
        "a script failed for q10: routers[0].script: line 4: KeyError",
    ]
