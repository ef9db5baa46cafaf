"""A real HAProxy before several control planes, as an operator would put it there."""

import contextlib
import ctypes
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kit.doors import HOST
from tests.kit.places import free_port

FILE = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 1s
    timeout client 90s
    timeout server 90s
    option redispatch
    retries 3
frontend fleet
    bind {host}:{port}
    default_backend planes
backend planes
    balance roundrobin
    option httpchk GET /readyz
    default-server check inter 200ms fastinter 100ms downinter 200ms fall 2 rise 1
{servers}
"""


@contextlib.contextmanager
def haproxy(folder: Path, servers: Mapping[str, int]) -> Iterator[int]:
    """The port of a balancer over operator ports by name; those that are not ready get nothing. Skips the
    test where there is no HAProxy."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("no haproxy (apt-get install haproxy)")
    port = free_port()
    lines = "\n".join(f"    server {name} {HOST}:{at}" for name, at in servers.items())
    path = folder / "haproxy.cfg"
    path.write_text(FILE.format(host=HOST, port=port, servers=lines), encoding="utf-8")
    with (folder / "haproxy.log").open("wb") as log:
        running = subprocess.Popen(
            [program, "-db", "-f", str(path)], stdout=log, stderr=log, preexec_fn=_die_with_parent
        )
    try:
        yield port
        assert running.poll() is None, (folder / "haproxy.log").read_text()
    finally:
        running.kill()
        running.wait(10)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
