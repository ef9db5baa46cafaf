"""A Snapshot goes to rows and comes back the same, whatever it holds."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from queryflux.config.hooks import decode_hook
from queryflux.config.rows import document_over, seeded, updated
from queryflux.config.slices import routers_of, rows_of
from queryflux.config.snapshot import Snapshot, revision_of
from queryflux.config.tables import RoutingRow, Tables
from queryflux.model.secret import Secret
from tests.kit.snapshots import snapshots
from tests.rooms.config.reading import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def read(document: dict[str, Any]) -> Snapshot:
    """Through JSON, as every store keeps it."""
    return msgspec.convert(json.loads(json.dumps(document)), Snapshot, dec_hook=decode_hook)


@given(snapshots())
def test_every_snapshot_survives(snapshot: Snapshot) -> None:
    document, notes = document_over(updated(Tables(), snapshot), Snapshot())
    assert revision_of(read(document)) == revision_of(snapshot)
    assert notes == []


@given(snapshots(), snapshots())
def test_what_is_stored_beats_the_file(stored: Snapshot, file: Snapshot) -> None:
    guards = stored.guardrails if stored.guardrails is not None else file.guardrails  # none stored: no rows
    document, _ = document_over(updated(Tables(), stored), file)
    assert revision_of(read(document)) == revision_of(msgspec.structs.replace(stored, guardrails=guards))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_survive(path: Path) -> None:
    text = path.read_text()
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "word") | {"DATABASE_URL": "postgres://db/x"}
    snapshot = load(text, environ).snapshot
    document, _ = document_over(updated(Tables(), snapshot), Snapshot())
    assert revision_of(read(document)) == revision_of(snapshot)


def tables(document: dict[str, Any]) -> Tables:
    return updated(Tables(), read(document))


TWO = {
    "clusters": {"a": {"engine": "duckDb"}, "b": {"engine": "duckDb", "maxRunningQueries": 4}},
    "clusterGroups": {"g": {"members": ["b", "a"]}, "h": {"members": ["a"]}},
    "routers": [{"type": "userGroup", "userToGroup": {"ann": "g", "bob": "h", "cid": "g"}}],
    "routingFallback": "h",
}


def test_a_file_adds_only_what_is_missing() -> None:
    stored = tables({"clusters": {"a": {"engine": "duckDb", "maxRunningQueries": 9}}})
    after = seeded(stored, read(TWO))
    assert [(row.name, row.max_running_queries) for row in after.clusters] == [("a", 9), ("b", 4)]
    assert [row.name for row in after.groups] == ["g", "h"]
    assert seeded(after, read(TWO)) is after


def test_a_files_rules_count_until_others_are_stored() -> None:
    seeds = seeded(Tables(), read(TWO))
    assert not seeds.routing.active
    document, _ = document_over(seeds, read(TWO))
    assert document["routers"] == TWO["routers"]
    changed = read({**TWO, "routers": [], "routingFallback": "g"})
    document, _ = document_over(updated(seeds, changed, {"routers"}), read(TWO))
    assert (document["routers"], document["routingFallback"]) == ([], "g")


def test_one_section_is_changed_and_the_others_are_not_touched() -> None:
    before = tables({**TWO, "accessControl": {"enabled": False}})
    after = updated(before, read({**TWO, "clusters": {"a": {"engine": "trino"}}}), {"clusters"})
    assert [row.engine_key for row in after.clusters] == ["trino"]
    assert msgspec.structs.replace(after, clusters=before.clusters) == before


def test_a_new_name_keeps_its_row() -> None:
    before = msgspec.structs.replace(
        tables(TWO),
        clusters=tuple(msgspec.structs.replace(row, id=at) for at, row in enumerate(tables(TWO).clusters, 7)),
    )
    renamed = read({"clusters": {"b": {"engine": "duckDb"}, "east": {"engine": "duckDb"}}})
    after = updated(before, renamed, {"clusters"}, {"east": "a"})
    assert [(row.id, row.name) for row in after.clusters] == [(7, "east"), (8, "b")]


def test_rules_follow_their_group_to_its_new_name() -> None:
    rows = [
        msgspec.structs.replace(row, target_group="new" if row.target_group == "g" else row.target_group)
        for row in rows_of(TWO["routers"])  # type: ignore[arg-type]
    ]
    assert [row.target_group for row in rows] == ["new", "h"]
    (router,) = routers_of(rows)
    assert router["userToGroup"] == {"ann": "new", "bob": "h", "cid": "new"}


def test_rules_of_one_router_keep_their_order_among_groups() -> None:
    rules: list[dict[str, Any]] = [
        {"regex": "1", "targetGroup": "g"},
        {"regex": "2", "action": "deny"},
        {"regex": "3", "targetGroup": "h"},
        {"regex": "4", "targetGroup": "g"},
    ]
    rows = rows_of([{"type": "queryRegex", "rules": rules}])
    assert [row.target_group for row in rows] == ["g", None, "h"]
    assert routers_of(rows) == [{"type": "queryRegex", "rules": rules}]


def test_an_engine_of_a_later_version_is_left_out_with_its_members() -> None:
    stored = tables(TWO)
    stored = msgspec.structs.replace(
        stored,
        clusters=tuple(
            msgspec.structs.replace(row, engine_key="quantum") if row.name == "a" else row
            for row in stored.clusters
        ),
    )
    document, notes = document_over(stored, Snapshot())
    assert notes == ["cluster a is left out: this version has no engine 'quantum'"]
    assert list(document["clusters"]) == ["b"]
    assert document["clusterGroups"]["g"]["members"] == ["b"]


def test_rows_do_not_show_secrets() -> None:
    secret = {"engine": "postgres", "auth": {"type": "basic", "username": "u", "password": "hush"}}
    stored = tables(
        {"clusters": {"pg": secret}, "auth": {"staticUsers": {"users": {"u": {"password": "hush"}}}}}
    )
    assert "hush" not in repr(stored)
    assert "hush" not in repr(stored.clusters)
    assert stored.clusters[0].config["auth"]["password"] == "hush"
    assert Secret("hush").matches(stored.security["static_users"]["users"]["u"]["password"])


def test_nothing_stored_for_security_leaves_the_file_alone() -> None:
    file = read({"auth": {"provider": "static", "required": True}})
    assert revision_of(read(document_over(Tables(routing=RoutingRow()), file)[0])) == revision_of(file)
    stored = updated(Tables(), Snapshot(), {"auth"})
    assert read(document_over(stored, file)[0]).auth.provider == "none"
