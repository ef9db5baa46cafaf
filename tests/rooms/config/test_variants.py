"""Variants: one cluster of a file, several at run time."""

from typing import Any

import pytest

from queryflux.config.candidate import check_content, check_document
from queryflux.config.clusters import ClusterConfig
from queryflux.config.process import ProcessConfig
from queryflux.config.rows import document_over, updated
from queryflux.config.snapshot import Snapshot, content_of, revision_of, revision_of_json
from queryflux.config.tables import Tables
from queryflux.config.variants import expanded
from tests.rooms.config.reading import load, only, paths

PG = """
clusters:
  pg:
    engine: postgres
    endpoint: db:5432
    poolSize: 4
    maxRunningQueries: 9
    auth: { type: basic, username: u, password: base-secret }
    variants:
      - { name: small, overrides: { poolSize: 2, auth: { password: small-secret } } }
      - { name: big, overrides: { database: big }, maxRunningQueries: 3 }
      - { name: free }
clusterGroups:
  pool: { members: ["pg::small", "pg::big", "pg::free"] }
routingFallback: pool
"""


def made() -> dict[str, ClusterConfig]:
    return dict(expanded(load(PG).snapshot.clusters))


def test_each_variant_is_a_cluster_and_their_cluster_is_none() -> None:
    assert list(made()) == ["pg::small", "pg::big", "pg::free"]
    assert all(not cluster.variants for cluster in made().values())


def test_overrides_are_merged_deeply() -> None:
    small, big, free = made().values()
    assert (small.pool_size, big.pool_size, free.pool_size) == (2, 4, 4)
    assert small.auth is not None
    assert big.auth is not None
    assert small.auth.password is not None
    assert big.auth.password is not None
    assert (small.auth.username, small.auth.password.reveal()) == ("u", "small-secret")
    assert big.auth.password.reveal() == "base-secret"
    assert (small.max_running_queries, big.max_running_queries) == (9, 3)
    assert (small.database, big.database) == (None, "big")
    assert "small-secret" not in repr(small)


def test_clusters_without_variants_are_left_as_they_are() -> None:
    clusters = {"a": ClusterConfig(engine="duckDb")}
    assert expanded(clusters) is clusters


@pytest.mark.parametrize(
    ("variants", "path"),
    [
        ("[{ name: '' }]", "clusters.c.variants[0].name"),
        ("[{ name: 'a::b' }]", "clusters.c.variants[0].name"),
        ("[{ name: a }, { name: a }]", "clusters.c.variants[1].name"),
        ("[{ name: a, overrides: { pool_sise: 1 } }]", "clusters.c.variants[0].overrides.pool_sise"),
        ("[{ name: a, overrides: { tls: { caFle: x } } }]", "clusters.c.variants[0].overrides.tls.caFle"),
        ("[{ name: a, overrides: { threads: many } }]", "clusters.c.variants[0].overrides"),
        ("[{ name: a, overrides: { endpoint: x } }]", "clusters.c.variants[0].overrides.endpoint"),
        ("[{ name: a, overrides: { engine: athena } }]", "clusters.c.variants[0].overrides.engine"),
        ("[{ name: a, overrides: { variants: [] } }]", "clusters.c.variants[0].overrides.variants"),
    ],
)
def test_what_is_wrong_with_a_variant_is_said_where_it_stands(variants: str, path: str) -> None:
    group = "clusterGroups: { pool: { members: ['c::a'] } }"
    assert path in paths(f"clusters: {{ c: {{ engine: duckDb, variants: {variants} }} }}\n{group}")


def test_a_group_lists_variants_and_not_their_cluster() -> None:
    problem = only(PG.replace('"pg::free"', '"pg"'))
    assert problem.path == "clusterGroups.pool.members[2]"
    assert "pg::small" in problem.hint
    missing = only(PG.replace('"pg::free"', '"pg::fre"'))
    assert "there is no cluster" in missing.message
    assert "pg::free" in missing.hint


def test_a_name_of_a_file_has_no_place_for_variants_of_its_own() -> None:
    assert only("clusters: { 'a::b': { engine: duckDb } }\nclusterGroups: { g: { members: [] } }").path


def fine(text: str) -> None:
    return None


def test_variants_travel_as_the_clusters_that_they_are() -> None:
    snapshot = load(PG).snapshot
    content = content_of(snapshot)
    assert list(content["clusters"]) == ["pg::small", "pg::big", "pg::free"]
    received = check_content(content, ProcessConfig(), fine, fine).snapshot
    assert dict(received.clusters) == made()
    assert revision_of(received) == revision_of(snapshot) == revision_of_json(content)


def test_variants_survive_their_rows() -> None:
    snapshot = load(PG).snapshot
    document, notes = document_over(updated(Tables(), snapshot), Snapshot())
    again: Any = check_document(document, ProcessConfig(), fine, fine).snapshot
    assert notes == []
    assert again.clusters == snapshot.clusters
    assert again.cluster_groups == snapshot.cluster_groups
