"""Every table takes a row, every function does its work, every trigger fires, on every version."""

import psycopg
import pytest

from tests.kit.databases import Database, database

__all__ = ["database"]

VALUES = {
    "text": "something",
    "bigint": 1,
    "integer": 1,
    "boolean": True,
    "double precision": 1.5,
    "jsonb": "{}",
    "uuid": "00000000-0000-0000-0000-000000000001",
    "bytea": b"x",
    "timestamp with time zone": "2026-01-01T00:00:00Z",
}
CHOSEN = {("user_scripts", "kind"): "guard", ("query_records", "status"): "Success"}
"""Values that a check asks for."""

CALLS: dict[str, tuple[str, object]] = {
    "queryflux_capacity_try_acquire": ("('east', 'one', 'q1', 2)", True),
    "queryflux_capacity_try_acquire_many": (
        "('east', 'two', ARRAY['q2', 'q3'], ARRAY[2, 2]::bigint[], '{}')",
        [True, False],
    ),
    "queryflux_capacity_lock": ("('east')", None),
    "queryflux_capacity_renew": ("('one', ARRAY['q1', 'q9'])", "q1"),
    "queryflux_capacity_publish_running": ("('east', 7)", None),
    "queryflux_capacity_waits": ("('east', 'two', false)", None),
    "queryflux_capacity_ahead": ("('east', 'three')", 0),
    "queryflux_capacity_served": ("('east', 'two')", None),
    "queryflux_capacity_adjust": ("('east', 1)", None),
    "queryflux_capacity_settle": ("('east')", ("3", "3")),
    "queryflux_capacity_recount": ("('east')", 2),
    "queryflux_capacity_expire": ("('1 hour')", 0),
    "queryflux_capacity_require_read_committed": ("()", None),
}
"""What each function is called with, in this order on one database, and what it gives: q3 is one too many;
the counter that was put one too high is seen by the first look and mended by the recount."""
TRIGGER_FUNCTIONS = {
    "queryflux_capacity_leases_deleted",
    "queryflux_capacity_leases_inserted",
    "queryflux_capacity_leases_updated",
    "queryflux_notify_config_revision",
}


def test_every_table_takes_a_row(database: Database) -> None:
    tables = [row[0] for row in database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    assert len(tables) > 20
    for table in tables:
        wanted = database.rows(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
            " AND table_name = %s AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'",
            table,
        )
        columns = [name for name, _ in wanted]
        values = [CHOSEN.get((table, name), VALUES[kind]) for name, kind in wanted]
        places = ", ".join("%s" for _ in values)
        row = f"({', '.join(columns)}) VALUES ({places})" if columns else "DEFAULT VALUES"
        database.rows(f"INSERT INTO {table} {row} ON CONFLICT DO NOTHING RETURNING 1", *values)
        assert database.rows(f"SELECT count(*) FROM {table}")[0][0] >= 1, table


def test_every_function_does_its_work(database: Database) -> None:
    known = database.rows("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    assert {row[0] for row in known} == CALLS.keys() | TRIGGER_FUNCTIONS
    for name, (arguments, given) in CALLS.items():
        ((found,),) = database.rows(f"SELECT {name}{arguments}")
        assert (None if found == "" else found) == given, name  # nothing is told in two ways


def test_every_trigger_fires(database: Database) -> None:
    database.rows(
        "INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id)"
        " VALUES ('a', 'east', 'one'), ('b', 'east', 'one') RETURNING 1"
    )
    assert database.counters() == {"east": 2}
    database.rows("UPDATE cluster_capacity_leases SET cluster_name = 'west' WHERE query_id = 'b' RETURNING 1")
    assert database.counters() == {"east": 1, "west": 1}
    database.rows("DELETE FROM cluster_capacity_leases RETURNING 1")
    assert set(database.counters().values()) <= {0}
    with psycopg.connect(database.dsn, autocommit=True) as listening:
        listening.execute("LISTEN config_revision_changed")
        ((revision,),) = database.rows(
            "UPDATE config_revision SET revision = revision + 1 RETURNING revision"
        )
        (told,) = listening.notifies(timeout=10, stop_after=1)
    assert told.payload == str(revision)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_counting_is_refused_where_it_would_see_the_past(database: Database, level: str) -> None:
    with psycopg.connect(database.dsn) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.Error, match="READ COMMITTED"):
            connection.execute("SELECT queryflux_capacity_require_read_committed()")
