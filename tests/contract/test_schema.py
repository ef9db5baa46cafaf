"""docs/schema.sql is the schema, on every version; and it has what the rooms and the documents name."""

import re
from pathlib import Path

import pytest

from tests.kit.databases import DATABASES, Database, database, new_database

__all__ = ["database"]

PAGE = Path(__file__).parents[2] / "docs" / "schema.sql"
TABLES = {
    "cache_entries",
    "cluster_capacity_counters",
    "cluster_capacity_leases",
    "cluster_configs",
    "cluster_group_configs",
    "cluster_snapshots",
    "config_revision",
    "executing_queries",
    "guardrails",
    "proxy_settings",
    "query_digest_stats",
    "query_records",
    "queryflux_meta",
    "queryflux_migrations",
    "queued_queries",
    "routing_rules",
    "routing_settings",
    "security_settings",
    "sweep_locks",
    "user_scripts",
    "worker_registry",
}
FUNCTIONS = {
    "queryflux_capacity_lock",
    "queryflux_capacity_recount",
    "queryflux_capacity_try_acquire",
    "queryflux_capacity_try_acquire_many",
    "queryflux_notify_config_revision",
}
TRIGGERS = {
    ("cluster_capacity_leases", "cluster_capacity_leases_deleted"),
    ("cluster_capacity_leases", "cluster_capacity_leases_inserted"),
    ("cluster_capacity_leases", "cluster_capacity_leases_updated"),
    ("config_revision", "config_revision_changed"),
}


@pytest.mark.parametrize("kind", DATABASES)
def test_the_page_is_the_schema(kind: str) -> None:
    with new_database(kind) as database:
        assert database.dump() == PAGE.read_text(), "docs/schema.sql is not up to date: run make schema"


def test_every_table_function_and_trigger_is_there(database: Database) -> None:
    tables = {row[0] for row in database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert tables >= TABLES
    functions = database.rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'"
    )
    assert {row[0] for row in functions} >= FUNCTIONS
    triggers = database.rows("SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal")
    assert {tuple(row) for row in triggers} == TRIGGERS


def test_every_table_is_described_for_operators(database: Database) -> None:
    page = (PAGE.parent / "persistence.md").read_text()
    told = set(re.findall(r"`(\w+)`", page))
    tables = {row[0] for row in database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert tables <= told
