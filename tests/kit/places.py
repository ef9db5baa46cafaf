"""Ports and folders that several kits need."""

import contextlib
import os
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_given: set[int] = set()
_dice = random.SystemRandom()  # others set the seed of the usual one, the same in every test process

NOBODY = 1
"""A port of loopback that nobody listens on and no process is given by chance, as a free one may be."""


def free_port() -> int:
    """A port of loopback that is free, and was not given before. Where there are such, it is none of those
    that the system gives to sockets that ask for any: one of them could have it before it is used."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    for _ in range(1000):
        port = _dice.randrange(_LOWEST, first) if first > _LOWEST + 1000 else 0
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            port = int(probe.getsockname()[1])
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no port is free")


def cache_folder() -> Path:
    """Where tests keep what is costly to make or fetch, from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "queryflux-tests"
