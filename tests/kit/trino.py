"""A real Trino for tests: one server for all test processes of this machine's user, stopped by the last one.

``shared_server`` finds or fetches the tarball (io.trino:trino-server:476 through Maven), unpacks it once
under the user's cache folder, and boots it on a free port with the catalogs ``tpch`` (standard names,
decimals) and ``memory``. It takes about 20 seconds and 2 GB. Where it cannot be had the test is skipped with
the reason.
"""

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.places import cache_folder, free_port

VERSION = "476"
MINIMUM_JAVA = 24
BOOT_SECONDS = 120
FETCH_SECONDS = 600

_CONFIG = {
    "node.properties": (
        "node.environment=test\nnode.id=queryflux-tests\nnode.bind-ip=127.0.0.1\nnode.data-dir={data}\n"
    ),
    "jvm.config": (
        "-server\n-Xmx2G\n-XX:+UseG1GC\n-XX:+ExitOnOutOfMemoryError\n-XX:ReservedCodeCacheSize=256M\n"
        "-Djdk.attach.allowAttachSelf=true\n-Dfile.encoding=UTF-8\n--add-modules=jdk.incubator.vector\n"
    ),
    "config.properties": (
        "coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        "discovery.uri=http://127.0.0.1:{port}\nnode.internal-address=127.0.0.1\ncatalog.management=static\n"
    ),
    "log.properties": "io.trino=WARN\n",
    "catalog/tpch.properties": (
        "connector.name=tpch\ntpch.column-naming=STANDARD\ntpch.double-type-mapping=DECIMAL\n"
    ),
    "catalog/memory.properties": "connector.name=memory\n",
}


@dataclass(frozen=True)
class TrinoServer:
    """Where it listens, without TLS or authentication."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The endpoint as configuration writes it."""
        return f"http://{self.host}:{self.port}"


def find_java() -> Path | None:
    """The home of a JDK that is new enough, the one of JAVA_HOME first."""
    homes = [Path(home) for home in [os.environ.get("JAVA_HOME", "")] if home]
    homes += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)
    for home in homes:
        java = home / "bin" / "java"
        if java.exists() and java_version(java) >= MINIMUM_JAVA:
            return home
    return None


def java_version(java: Path) -> int:
    """The feature release, 0 when it does not say."""
    found = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    quoted = found.stderr.partition('"')[2].partition('"')[0]
    head = quoted.partition(".")[0].partition("-")[0]
    return int(head) if head.isdigit() else 0


def _tarball() -> Path | None:
    name = f"trino-server-{VERSION}.tar.gz"
    path = Path.home() / ".m2" / "repository" / "io" / "trino" / "trino-server" / VERSION / name
    if not path.exists() and shutil.which("mvn"):
        artifact = f"-Dartifact=io.trino:trino-server:{VERSION}:tar.gz"
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:get", artifact, "-Dtransitive=false"],
            timeout=FETCH_SECONDS,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return path if path.exists() else None


def _unpacked(cache: Path) -> Path | None:
    home = cache / f"trino-server-{VERSION}"
    if (home / "bin").is_dir():
        return home
    tarball = _tarball()
    if tarball is None:
        return None
    partial = cache / f"unpacking-{os.getpid()}"
    with tarfile.open(tarball) as archive:
        archive.extractall(partial, filter="tar")
    (partial / home.name).rename(home)
    partial.rmdir()
    return home


def ready(port: int) -> bool:
    """Whether a coordinator answers there and has started."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/info", timeout=5) as answer:
            return json.load(answer).get("starting") is False
    except (urllib.error.URLError, OSError, ValueError):
        return False


def serves(port: int) -> bool:
    """Whether a query that reads a table goes well there: for some seconds after the start no node is
    counted as present, and such queries fail."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/statement",
        data=b"SELECT count(*) FROM tpch.tiny.nation",
        headers={"X-Trino-User": "boot"},
    )
    try:
        while True:
            with urllib.request.urlopen(request, timeout=30) as answer:
                page = json.load(answer)
            if "nextUri" not in page:
                return "error" not in page
            request = urllib.request.Request(page["nextUri"])
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[None]:
    with (cache / "trino.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Shared:
    """The server's pid and port, and the pids that use it, in files under one lock."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.state = cache / "trino.json"
        self.users = cache / "trino-users"

    def read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self.state.read_text())
        except (OSError, ValueError):
            return None
        return found if _alive(found["pid"]) else None

    def join(self) -> None:
        self.users.mkdir(exist_ok=True)
        (self.users / str(os.getpid())).touch()

    def leave(self) -> None:
        """Take this process off the list, and stop the server if nobody is left on it."""
        with _locked(self.cache):
            (self.users / str(os.getpid())).unlink(missing_ok=True)
            others = [entry for entry in self.users.iterdir() if _alive(int(entry.name))]
            running = self.read()
            if others or running is None:
                return
            stop(running["pid"], Path(running["folder"]))
            self.state.unlink(missing_ok=True)


def stop(pid: int, folder: Path) -> None:
    """End the server that this kit started, and remove its data."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while _alive(pid) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.1)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _boot(cache: Path, home: Path, java: Path) -> dict[str, Any]:
    port = free_port()
    folder = cache / f"trino-run-{port}"
    for name, text in _CONFIG.items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(data=folder / "data", port=port))
    environment = os.environ | {"JAVA_HOME": str(java), "PATH": f"{java}/bin:{os.environ.get('PATH', '')}"}
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "launcher"), "run", "--etc-dir", str(folder / "etc")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    _booted.append(process)
    deadline = time.monotonic() + BOOT_SECONDS
    while not (ready(port) and serves(port)):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = (folder / "log.txt").read_text(errors="replace")[-2000:]
            stop(process.pid, folder)
            pytest.skip(f"Trino did not start: {tail}")
        time.sleep(0.25)
    return {"pid": process.pid, "port": port, "folder": str(folder)}


_booted: list[subprocess.Popen[bytes]] = []
"""Kept: a Popen that is collected complains that its process still runs."""
_server: TrinoServer | None = None


def shared_server() -> TrinoServer:
    """The server, booted on first use. Skips the test where there can be none."""
    global _server
    if _server is not None:
        return _server
    java = find_java()
    if java is None:
        pytest.skip(f"Trino needs a JDK of {MINIMUM_JAVA} or newer")
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    shared = _Shared(cache)
    with _locked(cache):
        running = shared.read()
        if running is None or not ready(running["port"]):
            home = _unpacked(cache)
            if home is None:
                pytest.skip(f"Trino {VERSION} is not here, and mvn cannot fetch it")
            running = _boot(cache, home, java)
            shared.state.write_text(json.dumps(running))
        shared.join()
    atexit.register(shared.leave)
    _server = TrinoServer("127.0.0.1", running["port"])
    return _server
