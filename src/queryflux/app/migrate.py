"""``queryflux migrate``: the tables of our own database, brought up to date or looked at."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from queryflux.app.stores import said_of
from queryflux.auth.hashes import check_password
from queryflux.config.loader import load_file
from queryflux.config.persistence import PostgresPersistence
from queryflux.model.errors import ConfigError
from queryflux.routing.regex import check_regex
from queryflux.runtime.clock import SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics

if TYPE_CHECKING:
    from queryflux.persistence.postgres.pools import Pools

Mode = Literal["apply", "dry-run", "status", "new-epoch"]
Say = Callable[[str], None]


def migrate_file(path: Path, environ: Mapping[str, str], mode: Mode, say: Say = print) -> bool:
    """Do it for the database that a configuration file names, and ``say`` what there is to know. Gives
    whether the database is as it was asked to be. Raises ConfigError for a file that is wrong, has no
    database, or whose database cannot be used."""
    process = load_file(path, environ, check_regex, check_password).config.queryflux
    persistence = process.persistence
    if process.role == "worker":
        raise ConfigError(
            f"{path}: a worker has no database, and nothing to migrate",
            hint="run it with the file of the control plane",
        )
    if not isinstance(persistence, PostgresPersistence):
        raise ConfigError(
            f"{path}: queryflux.persistence is not PostgreSQL: this process keeps nothing in a database that "
            "would need migrations",
            hint="set persistence.type: postgres and its url (SQLite brings its file up to date by itself)",
        )
    return asyncio.run(_migrate(persistence, mode, say))


async def _migrate(persistence: PostgresPersistence, mode: Mode, say: Say) -> bool:
    from queryflux.persistence.postgres.pools import Pools

    with said_of(persistence):
        pools = Pools.open(persistence, clock=SystemClock(), metrics=PrometheusMetrics(), instance="migrate")
        try:
            return await _WORK[mode](pools, say)
        finally:
            await pools.close()


async def _apply(pools: "Pools", say: Say) -> bool:
    from queryflux.persistence.postgres.migrate import bring_up_to_date, read_plan

    done = await bring_up_to_date(pools, SystemClock())
    newest = (await read_plan(pools)).applied[-1]
    lines = [f"applied {migration.file}" for migration in done]
    say("\n".join(lines) or f"the database is up to date: V{newest.version}")
    return True


async def _dry_run(pools: "Pools", say: Say) -> bool:
    from queryflux.persistence.postgres.migrate import read_plan

    found = await read_plan(pools)
    lines = [f"{migration.file} would be applied" for migration in found.pending]
    say("\n".join(lines) or f"the database is up to date: V{found.applied[-1].version}")
    return True


async def _status(pools: "Pools", say: Say) -> bool:
    from queryflux.persistence.postgres.migrate import load_migrations, plan, read_ledger

    migrations, found = load_migrations(), await read_ledger(pools)
    say("\n".join(found.listed(migrations)))
    return not plan(migrations, found.applied, found.foreign).pending


async def _new_epoch(pools: "Pools", say: Say) -> bool:
    from queryflux.persistence.postgres.migrate import new_epoch

    say(f"the database's epoch is now {await new_epoch(pools)}")
    return True


_WORK = {"apply": _apply, "dry-run": _dry_run, "status": _status, "new-epoch": _new_epoch}
