"""What is decided about a database, without one."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queryflux.model.errors import SchemaRefused
from queryflux.persistence.postgres.migrate import Applied, Migration, load_migrations, plan

WHEN = datetime(2026, 11, 30, 4, 30, tzinfo=UTC)


def migration(version: int, compatible: int = 1, sql: str = "SELECT 1;") -> Migration:
    return Migration(version, f"step_{version}", compatible, sql)


def applied(one: Migration) -> Applied:
    return Applied(one.version, one.name, one.checksum, one.lowest_compatible, WHEN)


KNOWN = tuple(migration(version) for version in range(1, 6))
DONE = tuple(applied(one) for one in KNOWN)


def test_a_new_database_lacks_everything() -> None:
    assert plan(KNOWN, ()).pending == KNOWN


def test_what_was_applied_is_not_applied_again() -> None:
    assert plan(KNOWN, DONE[:3]).pending == KNOWN[3:]
    assert plan(KNOWN, DONE).pending == ()


def test_an_edited_migration_is_named() -> None:
    edited = (*KNOWN[:2], replace(KNOWN[2], sql="SELECT 2;"), *KNOWN[3:])
    with pytest.raises(SchemaRefused, match=r"V3__step_3\.sql .* applied .* 2026-11-30 04:30 UTC"):
        plan(edited, DONE)


def test_a_newer_database_is_used_where_it_says_that_it_can_be() -> None:
    later = applied(migration(6, compatible=5)), applied(migration(7, compatible=4))
    assert plan(KNOWN, (*DONE, *later)).newer == later


def test_a_newer_database_is_refused_where_it_cannot_be_used() -> None:
    later = applied(migration(6, compatible=5)), applied(migration(7, compatible=6))
    with pytest.raises(SchemaRefused, match=r"V7__step_7\.sql.* knows only V5") as caught:
        plan(KNOWN, (*DONE, *later))
    assert caught.value.hint == "upgrade this process"


def test_a_gap_is_not_filled() -> None:
    with pytest.raises(SchemaRefused, match=r"V2__step_2\.sql was never applied"):
        plan(KNOWN, (DONE[0], DONE[2]))


def test_tables_of_somebody_else_are_not_taken_over() -> None:
    with pytest.raises(SchemaRefused, match=r"cluster_configs, query_records") as caught:
        plan(KNOWN, (), ["cluster_configs", "query_records"])
    assert "empty database" in caught.value.hint


def test_our_migrations_are_numbered_without_gaps_and_say_who_can_use_them() -> None:
    ours = load_migrations()
    assert [one.version for one in ours] == list(range(1, len(ours) + 1))
    for one in ours:
        assert 1 <= one.lowest_compatible <= one.version
    names = {one.version: one.name for one in ours}
    expected = {
        18: "worker_registry",
        19: "query_records_worker",
        20: "worker_registry_status",
        21: "capacity_lease_counter",
    }
    assert {version: names[version] for version in expected} == expected


def test_no_migration_ends_its_transaction() -> None:
    for one in load_migrations():
        words = one.sql.upper().replace(";", " ").split()
        assert not {"COMMIT", "ROLLBACK", "VACUUM", "CONCURRENTLY"} & set(words), one.file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("V1_one.sql", "-- lowest compatible version: 1\n"),
        ("V01__one.sql", "-- lowest compatible version: 1\n"),
        ("one.sql", "-- lowest compatible version: 1\n"),
        ("V1__one.sql", "CREATE TABLE t ();\n"),
    ],
)
def test_a_file_that_is_no_migration_is_told(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        load_migrations(tmp_path)


def test_two_migrations_of_one_version_are_told(tmp_path: Path) -> None:
    for name in ("V1__one.sql", "V1__other.sql"):
        (tmp_path / name).write_text("-- lowest compatible version: 1\n")
    with pytest.raises(ValueError, match="one version"):
        load_migrations(tmp_path)


def test_how_lines_end_does_not_change_a_checksum(tmp_path: Path) -> None:
    text = b"-- lowest compatible version: 1\nSELECT 1;\n"
    sums = set()
    for ending in (b"\n", b"\r\n"):
        (tmp_path / "V1__one.sql").write_bytes(text.replace(b"\n", ending))
        sums.add(load_migrations(tmp_path)[0].checksum)
    assert len(sums) == 1
