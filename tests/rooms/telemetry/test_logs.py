"""Log lines: one per query, collected, written in order, parseable."""

import io
import json
import logging
import threading

import pytest

from queryflux.model.secret import Secret
from queryflux.telemetry.logs import MAX_PENDING, ConsoleFormatter, JsonFormatter, QueryLine, QueryLog, setup
from queryflux.telemetry.writer import LineWriter
from tests.kit.clock import ManualClock


def query_line(query_id: str = "q1", **fields: object) -> QueryLine:
    given = {"user": "ann", "protocol": "TrinoHttp", "queued_ms": 0.0, "ms": 1.5, **fields}
    return QueryLine(ended_at=0.25, id=query_id, status="Success", reason="completed", **given)  # type: ignore[arg-type]


async def test_lines_are_written_together_after_a_moment() -> None:
    clock, stream = ManualClock(), io.StringIO()
    log = QueryLog("json", clock, LineWriter(stream))
    log.add(query_line("q1"))
    log.add(query_line("q2", message='broken "quote"\nand line'))
    assert stream.getvalue() == ""
    await clock.advance(1)
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["id"] for line in lines] == ["q1", "q2"]
    assert lines[0]["time"] == "1970-01-01T00:00:00.250Z"
    assert lines[1]["message"] == 'broken "quote"\nand line'
    assert "error" not in lines[0]


async def test_flush_writes_what_waits_and_nothing_twice() -> None:
    clock, stream = ManualClock(), io.StringIO()
    log = QueryLog("console", clock, LineWriter(stream))
    log.add(query_line(user="two words"))
    log.flush()
    log.flush()
    await clock.advance(5)
    log.close()
    assert stream.getvalue() == (
        '1970-01-01T00:00:00.250Z INFO    query id=q1 status=Success reason=completed user="two words"'
        " protocol=TrinoHttp queued_ms=0.0 ms=1.5\n"
    )


async def test_a_newline_in_a_name_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    log = QueryLog("console", ManualClock(), LineWriter(stream))
    log.add(query_line(user="eve\n2027-01-01T00:00:00.000Z INFO    query id=forged"))
    log.close()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("odd", ["\x1b[31m", "\x9b31m", "\x7f", "\x00", "\u202e", "\u2066", "\nb\r"])
async def test_a_name_does_nothing_to_a_terminal(odd: str) -> None:
    stream = io.StringIO()
    log = QueryLog("console", ManualClock(), LineWriter(stream))
    log.add(query_line(user=f"eve{odd}"))
    log.close()
    record = logging.getLogger().makeRecord("x", logging.INFO, "f", 1, "refused: %s", (f"eve{odd}",), None)
    said = ConsoleFormatter().format(record)
    for text in (stream.getvalue().removesuffix("\n"), said):
        assert text.isprintable()
        assert "eve\\" in text


async def test_many_lines_do_not_pile_up() -> None:
    stream = io.StringIO()
    log = QueryLog("json", ManualClock(), LineWriter(stream))
    for _ in range(MAX_PENDING):
        log.add(query_line())
    log.close()
    assert stream.getvalue().count("\n") == MAX_PENDING


async def test_a_log_that_is_off_keeps_nothing() -> None:
    clock, stream = ManualClock(), io.StringIO()
    log = QueryLog("json", clock, LineWriter(stream), enabled=False)
    log.add(query_line())
    log.close()
    assert stream.getvalue() == ""
    assert clock.pending == 0


@pytest.mark.parametrize("style", ["json", "console"])
def test_secrets_stay_masked_in_both_styles(style: str) -> None:
    stream, root = io.StringIO(), logging.getLogger()
    kept, level = root.handlers[:], root.level
    try:
        writer = LineWriter(stream)
        setup(style, "info", writer)
        logging.getLogger("queryflux.test").warning("password %s of %r", Secret("hunter2"), Secret("hunter2"))
        writer.close()
    finally:
        root.handlers[:] = kept
        root.setLevel(level)
    assert "hunter2" not in stream.getvalue()
    assert "******" in stream.getvalue()


def test_an_exception_is_one_json_line() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        record = logging.getLogger().makeRecord("x", logging.ERROR, "f", 1, "failed", (), None)
        import sys

        record.exc_info = sys.exc_info()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: boom" in json.loads(line)["exception"]


class StuckStream(io.StringIO):
    """A pipe that nobody reads until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, text: str) -> int:
        self.go.wait()
        return super().write(text)


def test_a_stuck_stream_stops_nobody_and_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.telemetry.writer.MAX_WAITING_CHARS", 100)
    stream = StuckStream()
    writer = LineWriter(stream)
    for number in range(50):
        writer.write(f"line {number:04d}\n")
    stream.go.set()
    writer.close()
    writer.write("the last\n")
    writer.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "line 0000"
    assert lines[-1] == "the last"
    kept = sum(line.startswith("line") for line in lines)
    assert f"... {50 - kept} log lines were dropped" in lines[-2]
