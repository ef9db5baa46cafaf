"""The process that keeps the demo's PostgreSQL: it needs nothing but the standard library.

It is given the server's folder of binaries. It makes a database in a new folder that only its user may enter,
with a Unix socket in it and no TCP port; says so in one line of JSON on standard output, or what failed; and
when its standard input ends it ends the server and removes the folder. So both go whatever way the demo ends.
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

USER = "queryflux"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
PORT = 5432
"""Part of the socket's name; nobody listens on it."""
_LOOK_SECONDS = 0.02
_PATH_BYTES = 80
"""Longest path of the folder: an operating system takes about a hundred bytes of a socket's."""
_OTHERS_MAY_PASS = 0o001

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "max_connections": "50",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
    # The database ends with the demo: nothing need reach the disk.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class Failed(Exception):
    """PostgreSQL cannot run here; says why."""


def main(binaries: Path) -> int:
    """Keep a server until standard input ends; gives the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the end of standard input counts, and nothing else
    folder = None
    server: subprocess.Popen[bytes] | None = None
    try:
        somebody = somebody_else()
        folder = private_folder(somebody)
        binaries = runnable(binaries, folder, somebody)
        server = start(binaries, folder, somebody)
        tell({"folder": str(folder), "port": PORT, "user": USER})
        sys.stdin.buffer.read()
    except (Failed, OSError) as error:
        tell({"failure": str(error)})
        return 1
    finally:
        if server is not None:
            stop(server)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def tell(what: dict[str, object]) -> None:
    """Say it to the demo, if that is still there."""
    try:
        print(json.dumps(what), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def somebody_else() -> dict[str, Any]:
    """Arguments for subprocess to run as another user when this one is root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Failed("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def private_folder(somebody: dict[str, Any]) -> Path:
    """A new folder that is the server's user's alone, where that user can reach it and with a path short
    enough for a socket in it."""
    usual = Path(tempfile.gettempdir()).resolve()
    short = len(os.fsencode(usual)) <= _PATH_BYTES - len("/queryflux-demo-12345678")
    if short and (not somebody or others_may_pass(usual)):
        folder = Path(tempfile.mkdtemp(prefix="queryflux-demo-", dir=usual))
    else:
        folder = Path(tempfile.mkdtemp(prefix="queryflux-demo-", dir="/tmp"))
    if somebody:
        os.chown(folder, somebody["user"], somebody["group"])
    return folder


def others_may_pass(folder: Path) -> bool:
    """Whether any user can go through it."""
    return all(place.stat().st_mode & _OTHERS_MAY_PASS for place in (folder, *folder.parents))


def runnable(binaries: Path, folder: Path, somebody: dict[str, Any]) -> Path:
    """The binaries where the server's user can run them: a copy when they are in a home that others may not
    enter. The libraries that they share with the whole package lie beside it or in it, as systems have it."""
    if not somebody or others_may_pass(binaries.resolve()):
        return binaries
    copy, package = folder / "installed", binaries.parent.parent
    libraries = [package.with_name(f"{package.name}.libs"), package / ".dylibs"]
    for needed in [binaries.parent, *(it for it in libraries if it.is_dir())]:
        there = copy / needed.relative_to(package.parent)
        shutil.copytree(needed, there, symlinks=True, ignore=shutil.ignore_patterns("include"))
    for made in (copy, *copy.rglob("*")):
        os.chown(made, somebody["user"], somebody["group"], follow_symlinks=False)
    return copy / binaries.relative_to(package.parent)


def start(binaries: Path, folder: Path, somebody: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Make the database, start the server, and return when it answers."""
    data = folder / "data"
    how: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}, **somebody}
    initdb = [str(binaries / "initdb"), f"--pgdata={data}", f"--username={USER}", "--auth=trust"]
    initdb += ["--encoding=UTF8", "--locale=C", "--no-sync"]
    made = subprocess.run(initdb, capture_output=True, text=True, check=False, **how)
    if made.returncode != 0:
        raise Failed(f"initdb failed: {made.stderr.strip() or made.stdout.strip() or made.returncode}")
    settings = {**SETTINGS, "unix_socket_directories": str(folder)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    log = folder / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(data), *options],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            **how,
        )
    deadline = time.monotonic() + START_SECONDS
    while not answers(data):
        if server.poll() is not None:
            raise Failed(f"postgres ended: {log.read_text(errors='replace').strip() or server.returncode}")
        if time.monotonic() > deadline:
            stop(server)
            raise Failed(f"postgres does not answer within {START_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return server


def answers(data: Path) -> bool:
    """Whether the server has written down that it takes connections."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"


def stop(server: "subprocess.Popen[bytes]") -> None:
    """End it: its sessions are cut."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(number)
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
