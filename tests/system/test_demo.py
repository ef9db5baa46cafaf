"""``queryflux demo --check`` on free ports: every answer right, exit status 0."""

import socket
import subprocess
import sys
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_demo_is_right(tmp_path: Path) -> None:
    flags = [f"--{name}-port={free_port()}" for name in ("trino", "postgres", "mysql", "flight", "admin")]
    done = subprocess.run(
        [sys.executable, "-m", "queryflux.cli", "demo", "--check", f"--dir={tmp_path}", *flags],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 answers, 0 wrong." in done.stdout
    assert "WRONG" not in done.stdout
    assert "psql -h 127.0.0.1" in done.stdout
