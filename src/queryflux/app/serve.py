"""Starting a process: configuration, log, loop, and the roles it can have."""

import logging
from collections.abc import Mapping
from pathlib import Path

import uvloop

from queryflux.app.folder import folder_config, free_ports
from queryflux.app.standalone import Standalone
from queryflux.config.loader import load_file
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import snapshot_of
from queryflux.routing.regex import check_regex
from queryflux.telemetry.logs import setup

log = logging.getLogger(__name__)


def serve_file(path: Path, environ: Mapping[str, str]) -> int:
    """Serve from a YAML file until a signal ends it. Raises ConfigError with every problem of the file."""
    loaded = load_file(path, environ, check_regex)
    setup(loaded.config.queryflux.logging.format, loaded.config.queryflux.logging.level)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return serve(loaded.config)


def serve_folder(directory: Path, host: str, wanted: Mapping[str, int | None]) -> int:
    """Serve a folder of data files until a signal ends it."""
    setup("console", "info")
    ports, notes = free_ports(host, dict(wanted))
    config = folder_config(directory, host, ports)
    for note in notes:
        log.warning("%s", note)
    return serve(config)


def serve(config: RootConfig) -> int:
    """Serve until a signal ends it."""
    uvloop.run(_serve(config))
    return 0


async def _serve(config: RootConfig) -> None:
    standalone = Standalone(config, snapshot_of(config))
    await standalone.start()
    log.info("ready")
    await standalone.run()
