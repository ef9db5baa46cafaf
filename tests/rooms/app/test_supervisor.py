"""What becomes of workers that end in ways of their own. Each is a small program that speaks on the line."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queryflux.app import supervisor as module
from queryflux.app.seat import Failure
from queryflux.app.signs import Patience
from queryflux.app.supervisor import Supervisor
from queryflux.config.listeners import FrontendsConfig, ListenerConfig
from queryflux.config.process import ProcessConfig
from queryflux.model.errors import ConfigError, NotConfigured
from queryflux.runtime.clock import Clock, SystemClock
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics

HOST = ProcessConfig(frontends=FrontendsConfig(trino_http=ListenerConfig(host="127.0.0.1", port=0)))
SAYS = """
import os, signal, socket, struct, sys, time
line = socket.socket(fileno=int(sys.argv[-1]))
def say(kind, content=b""):
    line.sendall(struct.pack(">cI", kind, len(content)) + content)
def ready():
    say(b"U", bytes([0x80]))
    say(b"R")
def until(*kinds):
    while line.recv(5, socket.MSG_WAITALL)[:1] not in kinds:
        pass
size = struct.unpack(">cI", line.recv(5, socket.MSG_WAITALL))[1]
line.recv(size, socket.MSG_WAITALL)
"""


@asynccontextmanager
async def supervised(
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    gone: Callable[[str], Any] | None = None,
    patience: Patience | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Supervisor]:
    monkeypatch.setattr(module, "_like_this_one", lambda: ["-S", "-c", SAYS + program])

    async def nothing(_instance: str) -> None:
        pass

    made = Supervisor(
        *(HOST, ["w-1"], clock or SystemClock(), lambda *_: HOST, gone or nothing, NoMetrics()),
        patience=patience,
    )
    try:
        yield made
    finally:
        async with asyncio.timeout(20):
            await made.close()


async def until(what: Callable[[], bool]) -> None:
    """Return when it is true; TimeoutError after long."""
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - processes have no event
            await asyncio.sleep(0.001)


async def another(made: Supervisor, than: int) -> int:
    """The process id of the next one."""
    async with asyncio.timeout(20):
        while (child := made._children.get(0)) is None or child.process.pid == than or not child.ready:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return child.process.pid


def first(made: Supervisor) -> int:
    return made._children[0].process.pid


def state(pid: int) -> str:
    """As the letter in ps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_what_fails_as_a_worker_is_buried_keeps_nobody_from_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(_instance: str) -> None:
        raise OSError("the store is on fire")

    async with supervised(monkeypatch, "ready(); until(b'N', b'X')", gone) as made:
        await made.start()
        pid = first(made)
        os.kill(pid, 9)
        await another(made, pid)
    assert "the store is on fire" in caplog.text


async def test_a_worker_that_hangs_up_and_stays_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.3)
    async with supervised(monkeypatch, "ready(); time.sleep(0.2); line.close(); time.sleep(60)") as made:
        await made.start()
        pid = first(made)
        await another(made, pid)
        assert not is_there(pid)


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("say(b'U', b'?!')", msgspec.DecodeError),
        ("line.sendall(struct.pack('>cI', b'U', 0xffffffff))", ConnectionAbortedError),
    ],
)
async def test_why_a_worker_is_heard_no_more_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, says: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.3)
    async with supervised(monkeypatch, f"ready(); time.sleep(0.2); {says}; time.sleep(60)") as made:
        await made.start()
        await another(made, first(made))
    said, *_ = [record for record in caplog.records if "not understood" in record.message]
    assert "worker w-1" in said.message
    assert said.exc_info is not None
    assert said.exc_info[0] is error


async def test_a_worker_that_ends_in_good_order_was_understood(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised(monkeypatch, "ready(); until(b'N', b'X')") as made:
        await made.start()
        made.hurry()
    assert "not understood" not in caplog.text


async def test_a_worker_that_ends_is_replaced_though_another_process_has_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    says = f"""
if (other := os.fork()) == 0:
    time.sleep(60)
open({str(file)!r}, "a").write(f"{{other}} ")
ready()
until(b"N", b"X")
"""
    async with supervised(monkeypatch, says) as made:
        await made.start()
        pid = first(made)
        os.kill(pid, signal.SIGKILL)
        try:
            await another(made, pid)  # long before the other one ends
        finally:
            for other in file.read_text().split():
                os.kill(int(other), signal.SIGKILL)


async def test_what_a_worker_says_before_it_ends_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    says = f"say(b'X', {msgspec.msgpack.encode(Failure('why'))!r}); os._exit(1)"
    for _ in range(5):
        async with supervised(monkeypatch, says) as made:
            with pytest.raises(ConfigError, match="worker w-1 cannot serve: why"):
                await made.start()


async def test_a_worker_that_ends_for_nothing_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.3)
    async with supervised(monkeypatch, "ready(); signal.signal(15, signal.SIG_IGN); time.sleep(60)") as made:
        await made.start()
        pid = first(made)
    assert not is_there(pid)


async def test_a_worker_that_gives_no_sign_of_life_is_not_ready_and_then_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says = "ready()\nwhile True: say(b'A'); time.sleep(0.01)"
    monkeypatch.setattr(module, "LAST_SECONDS", 0.3)
    clock = ManualClock()
    async with supervised(
        monkeypatch, says, patience=Patience(sign=2, silent=15, dead=60), clock=clock
    ) as made:
        await made.start()
        pid, signs = first(made), made._children[0].signs
        for _ in range(40):
            await clock.advance(2)
            await until(lambda: signs.heard == clock.monotonic())
        made.check_ready()
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: state(pid) == "T")
        await settle()  # what it has said before is heard
        await clock.advance(20)
        assert is_there(pid)
        with pytest.raises(NotConfigured, match="w-1: it gives no sign of life"):
            made.check_ready()
        await clock.advance(41)
        await until(lambda: not is_there(pid))
        async with asyncio.timeout(20):
            while 0 not in made._children or first(made) == pid:
                await clock.advance(0.05)
                await asyncio.sleep(0.001)
        await another(made, pid)


async def test_nothing_stays_open_of_a_worker_that_cannot_be_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = set(os.listdir("/proc/self/fd"))
    async with supervised(monkeypatch, "") as made:
        with pytest.raises(ConfigError, match="no worker can be started: No such file"):
            await made.start()
    assert len(os.listdir("/proc/self/fd")) <= len(before)
