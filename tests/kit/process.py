"""``queryflux serve`` as a process of its own, which tests can kill."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kit.doors import HOST

_LISTENS = re.compile(r'(?:INFO +|")(operator port|\w+) listens on [\d.]+:(\d+)')
_SAMPLE = re.compile(r"^(\w+)(?:\{.*\})? (\S+)$", re.M)


class Process:
    """One process. ``lines`` is its log."""

    def __init__(self, folder: Path, yaml: str, environ: Mapping[str, str], *options: str) -> None:
        path = folder / "queryflux.yaml"
        path.write_text(yaml, encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "queryflux.cli", "serve", "-c", str(path), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        )
        self.lines: list[str] = []
        self._ports: dict[str, int] = {}
        self._reader = threading.Thread(target=self._read, name="log reader")
        self._reader.start()
        self.until(lambda: "operator port" in self._ports)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if found := _LISTENS.search(line):
                self._ports[found[1]] = int(found[2])

    def port(self, door: str) -> int:
        """Where a door listens, once it has said so: a worker opens them after its ``operator port``."""
        self.until(lambda: door in self._ports)
        return self._ports[door]

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        """Return when ``what`` is true; fails with the log when the process ends before or takes longer."""
        deadline = time.monotonic() + seconds
        while not what():
            assert self._process.poll() is None or what(), "".join(self.lines)
            assert time.monotonic() < deadline, "".join(self.lines)
            time.sleep(0.01)

    def metrics(self) -> dict[str, float]:
        """What /metrics says, the labels of each metric added up."""
        url = f"http://{HOST}:{self.port('operator port')}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        sums: dict[str, float] = {}
        for name, value in _SAMPLE.findall(text):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 60) -> int:
        """Its exit status, once it has ended."""
        status = self._process.wait(seconds)
        self._reader.join(10)
        return status

    def end(self) -> None:
        """Kill it if it still runs, and let go of it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def process(
    folder: Path, yaml: str, environ: Mapping[str, str] | None = None, *options: str
) -> Iterator[Process]:
    """A process that serves ``yaml`` from ``folder``, with further ``options``; it is gone when the block
    ends."""
    made = Process(folder, yaml, environ or {}, *options)
    try:
        yield made
    finally:
        made.end()
