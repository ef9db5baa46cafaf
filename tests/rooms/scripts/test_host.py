"""Scripts in their child process, with everything that can go wrong in one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from queryflux.config.scripts import Script, ScriptKind
from queryflux.model.errors import ConfigError
from queryflux.runtime.clock import SystemClock
from queryflux.scripts.host import ScriptFailed, ScriptHost
from queryflux.scripts.limits import COMMAND, LENGTH, MIB, Limits, Text, first_message, framed
from queryflux.telemetry.prometheus import PrometheusMetrics

ROUTE = "def route(query, ctx):\n    "
QUICK = Limits(call_secs=0.5, compile_secs=5)


def texts(*bodies: str, kind: ScriptKind = "routing") -> list[Text]:
    return [Text(f"routers[{number}].script", Script(kind, body)) for number, body in enumerate(bodies)]


@asynccontextmanager
async def running(
    *bodies: str, limits: Limits = QUICK, metrics: PrometheusMetrics | None = None
) -> AsyncIterator[ScriptHost]:
    host = ScriptHost(texts(*bodies), SystemClock(), metrics, limits=limits)
    await host.start()
    try:
        yield host
    finally:
        await host.close()


async def failure(host: ScriptHost, script: int, *arguments: object) -> ScriptFailed:
    with pytest.raises(ScriptFailed) as caught:
        await host.call(script, *(arguments or ("q", {})))
    return caught.value


async def test_a_call_gives_what_the_function_gives() -> None:
    async with running(ROUTE + "return ctx['user'] + query", ROUTE + "return None") as host:
        assert await host.call(0, "ß\ud800", {"user": "änn"}) == "ännß\ud800"
        assert await host.call(1, "q", {}) is None


async def test_each_script_is_a_module_of_its_own_and_keeps_its_globals() -> None:
    counting = "import json\nn = 0\ndef helper():\n    global n\n    n += 1\n    return str(n)\n"
    body = counting + ROUTE + "return helper()"
    async with running(body, body) as host:
        assert [await host.call(0, "", {}), await host.call(0, "", {}), await host.call(1, "", {})] == [
            "1",
            "2",
            "1",
        ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def route(query, ctx)\n    pass", "routers[0].script: line 1: SyntaxError"),
        ("x = 1\n", "routers[0].script: it defines no function route"),
        ("route = 5", "routers[0].script: it defines no function route"),
        ("def route(query): pass", "its function route does not take 2 arguments"),
        ("def route(query, ctx, more): pass", "its function route does not take 2 arguments"),
        ("\nimport no_such_module_at_all\n", "line 2: ModuleNotFoundError: No module named"),
        ("def route(q, c): pass\n1 / 0", "line 2: ZeroDivisionError"),
        ("import os\nos._exit(3)", "ended the script process (with status 3)"),
        ("raise SystemExit", "line 1: SystemExit"),
        ("import time\ntime.sleep(60)", "compiling them took longer than 0.5 s"),
        ("x = bytearray(4 << 30)", "MemoryError"),
    ],
)
async def test_a_script_that_cannot_be_used_is_named_with_its_line(body: str, said: str) -> None:
    host = ScriptHost(texts(body), SystemClock(), limits=Limits(compile_secs=0.5 if "longer" in said else 10))
    with pytest.raises(ConfigError) as caught:
        await host.start()
    assert said in caught.value.message
    await host.close()


@pytest.mark.parametrize("signature", ["query, ctx, more=1", "*both", "query, *rest, x=1", "q, c, **more"])
async def test_a_function_may_take_more_than_it_is_given(signature: str) -> None:
    async with running(f"def route({signature}):\n    return 'a'") as host:
        assert await host.call(0, "", {}) == "a"


async def test_every_script_that_cannot_be_used_is_named() -> None:
    host = ScriptHost(texts("x", ROUTE + "return 'a'", "("), SystemClock())
    with pytest.raises(ConfigError) as caught:
        await host.start()
    assert "routers[0].script: line 1: NameError" in caught.value.message
    assert "routers[2].script: line 1: SyntaxError" in caught.value.message


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        ("while True: pass", "timeout", "it took longer than 0.5 s"),
        ("import time; time.sleep(30)", "timeout", "it took longer than 0.5 s"),
        ("import os; os._exit(7)", "crashed", "(with status 7)"),
        ("import ctypes; ctypes.string_at(0)", "crashed", "(by signal 11)"),
        ("x = bytearray(4 << 30)", "memory", "MemoryError"),
        ("return 'x' * (2 << 20)", "raised", "its result is larger than 1048576 bytes"),
        ("return route(query, ctx)", "raised", "line 2: RecursionError"),
        ("return ctx['nothing']", "raised", "line 2: KeyError: 'nothing'"),
        ("return {1, 2}", "raised", "TypeError"),
        ("raise SystemExit(1)", "raised", "SystemExit"),
        ("import os; os.fork()", "raised", "scripts may not start processes"),
        ("import subprocess; subprocess.run(['true'])", "raised", "scripts may not start processes"),
    ],
)
async def test_a_call_that_fails_says_why_and_the_next_one_is_answered(
    body: str, reason: str, said: str
) -> None:
    metrics = PrometheusMetrics()
    limits = Limits(call_secs=0.5 if reason == "timeout" else 10, max_result=1 << 20)
    async with running(ROUTE + body, ROUTE + "return 'fine'", limits=limits, metrics=metrics) as host:
        failed = await failure(host, 0)
        assert failed.reason == reason
        assert said in str(failed)
        assert str(failed).startswith("routers[0].script: ")
        assert await host.call(1, "", {}) == "fine"
    labels = {"kind": "routing", "reason": reason}
    assert metrics.registry.get_sample_value("queryflux_script_failures_total", labels) == 1
    seconds = "queryflux_script_duration_seconds_count"
    assert metrics.registry.get_sample_value(seconds, {"kind": "routing"}) == 2


async def test_memory_that_a_script_keeps_is_given_back_when_it_has_too_much() -> None:
    body = "kept = []\n" + ROUTE + "kept.append(bytearray(30 << 20)); return str(len(kept))"
    async with running(body, limits=Limits(call_secs=10, memory_bytes=128 * MIB)) as host:
        assert await host.call(0, "", {}) == "1"
        outcomes = await asyncio.gather(*(host.call(0, "", {}) for _ in range(9)), return_exceptions=True)
        failed = next(one for one in outcomes if isinstance(one, ScriptFailed))
        assert failed.reason == "memory"
        assert outcomes[outcomes.index(failed) + 1] == "1"


async def test_what_is_printed_is_bounded_and_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="queryflux.scripts.host")
    body = ROUTE + "print('y' * 100_000_000 + 'end'); import os; os.write(1, b'noise'); return 'fine'"
    async with running(body, limits=Limits(call_secs=5)) as host:
        assert await host.call(0, "", {}) == "fine"
    (line,) = [record.getMessage() for record in caplog.records if "printed" in record.getMessage()]
    assert "yyy" in line
    assert len(line) < 10_000


async def test_a_hang_delays_other_scripts_by_its_time_limit_and_no_more() -> None:
    limits = Limits(call_secs=0.5)
    async with running(ROUTE + "while True: pass", ROUTE + "return 'fine'", limits=limits) as host:
        hung = [asyncio.ensure_future(host.call(0, "", {})) for _ in range(20)]
        await asyncio.sleep(0)
        assert await host.call(1, "", {}) == "fine"
        assert sum(one.done() for one in hung) <= 2  # one time limit and one start, not twenty
        for one in hung:
            one.cancel()
        await asyncio.gather(*hung, return_exceptions=True)


async def test_a_call_that_waits_too_long_for_its_turn_fails() -> None:
    limits = Limits(call_secs=10, queue_secs=0.1)
    async with running(ROUTE + "import time; time.sleep(0.6); return 'slow'", limits=limits) as host:
        first = asyncio.ensure_future(host.call(0, "", {}))
        await asyncio.sleep(0)
        assert (await failure(host, 0)).reason == "queue"
        assert await first == "slow"


async def test_the_loop_goes_on_while_a_script_hangs() -> None:
    async with running(ROUTE + "while True: pass") as host:
        hung = asyncio.ensure_future(host.call(0, "", {}))
        turns = 0
        while not hung.done():
            await asyncio.sleep(0.005)
            turns += 1
        assert hung.exception() is not None
        assert turns > 5


async def test_a_caller_that_goes_away_leaves_the_others_their_answers() -> None:
    async with running(ROUTE + "import time; time.sleep(0.05); return query") as host:
        calls = [asyncio.ensure_future(host.call(0, str(number), {})) for number in range(4)]
        await asyncio.sleep(0.02)
        calls[0].cancel()
        calls[2].cancel()
        assert await calls[1] == "1"
        assert await calls[3] == "3"


async def test_the_child_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERYFLUX_ADMIN_PASSWORD", "s3cret")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    look = (
        "import os; "
        "fds = [n for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)]; "
        "return [dict(os.environ), fds, os.getpgrp() == os.getpid(), os.getpid()]"
    )
    try:
        async with running(ROUTE + look) as host:
            environment, fds, leads, pid = await host.call(0, "", {})
        assert set(environment) <= {"LC_ALL", "LC_CTYPE"}
        assert str(write_end) not in [fd for fd in fds if int(fd) > 5]
        assert len(fds) <= 6
        assert leads
        await _until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        os.close(read_end)
        os.close(write_end)


def test_what_its_parent_leaves_open_is_closed() -> None:
    read_end, write_end = os.pipe()
    look = "import os; return sorted(int(n) for n in os.listdir('/proc/self/fd'))"
    began = first_message(texts(ROUTE + look), QUICK) + framed((0, ("", {})))
    try:
        run = subprocess.run(COMMAND, input=began, stdout=-1, pass_fds=(write_end,), check=True, timeout=20)
    finally:
        os.close(read_end)
        os.close(write_end)
    (size,) = LENGTH.unpack_from(run.stdout)
    # Nothing, the conversation, and the folder it looks into.
    assert json.loads(run.stdout[2 * LENGTH.size + size :])["value"] == [0, 1, 2, 3, 4, 5]


async def _until(fine: Callable[[], bool]) -> None:
    for _ in range(500):
        if fine():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it is still there")


async def test_without_scripts_there_is_no_child() -> None:
    async with running() as host:
        assert host.pid is None


@pytest.mark.parametrize(
    "hang",
    [
        "while True: pass",
        pytest.param(
            "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)\\n    while True: pass",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it then"),
        ),
    ],
    ids=["plainly", "for-good"],
)
async def test_the_child_ends_with_its_parent_also_while_it_hangs(tmp_path: Path, hang: str) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import asyncio, sys\n"
        "from queryflux.config.scripts import Script\n"
        "from queryflux.runtime.clock import SystemClock\n"
        "from queryflux.scripts.host import ScriptHost\n"
        "from queryflux.scripts.limits import Limits, Text\n"
        f"body = 'def route(query, ctx):\\n    {hang}'\n"
        "async def main():\n"
        "    host = ScriptHost([Text('a', Script('routing', body))], SystemClock(),\n"
        "                      limits=Limits(call_secs=1))\n"
        "    await host.start()\n"
        "    print(host.pid, flush=True)\n"
        "    await host.call(0, '', {})\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    await asyncio.sleep(0.1)
    parent.kill()
    await parent.wait()
    try:
        await _until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_a_thousand_calls_are_answered_each_with_its_own() -> None:
    body = ROUTE + "return f'{query} {ctx[\"user\"]}'"
    async with running(body, limits=Limits(call_secs=5, queue_secs=60)) as host:
        answers: list[str] = []
        for ten in range(10):
            calls = (host.call(0, f"SELECT {ten * 100 + one}", {"user": "ann"}) for one in range(100))
            answers += await asyncio.gather(*calls)
    assert answers == [f"SELECT {number} ann" for number in range(1000)]


async def test_a_child_that_ended_unasked_costs_no_call() -> None:
    async with running(ROUTE + "return 'fine'") as host:
        assert host.pid is not None
        before = host.pid
        os.kill(before, signal.SIGKILL)
        process = host._process
        assert process is not None
        await process.wait()
        assert await host.call(0, "", {}) == "fine"
        assert host.pid != before


@pytest.mark.parametrize(
    "noise", [b"nonsense" * 9, b"\0\0\0\2[]", b"\0\0\0\2{}"], ids=["text", "list", "empty"]
)
async def test_a_script_that_writes_where_its_process_answers_is_found_out(noise: bytes) -> None:
    writes = f"import os; os.write(4, {noise!r})"
    async with running(ROUTE + writes, ROUTE + "return 'fine'") as host:
        failed = await failure(host, 0)
        assert failed.reason == "crashed"
        assert "a script wrote where its process answers" in str(failed)
        assert await host.call(1, "", {}) == "fine"
    host = ScriptHost(texts(writes), SystemClock(), limits=QUICK)
    with pytest.raises(ConfigError, match="a script wrote where its process answers"):
        await host.start()
    assert host.pid is None
