"""Ports and folders that several kits need."""

import os
import socket
from pathlib import Path


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cache_folder() -> Path:
    """Where tests keep what is costly to make or fetch, from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "queryflux-tests"
