"""What is checked of ``queryflux.persistence`` and of what stands or falls with it."""

import re

import pytest

from queryflux.config.problems import render_problems
from tests.rooms.config.reading import load, paths, problems, warnings

Q = "queryflux: {{ frontends: {{ postgresWire: {{ port: 0 }} }}, {} }}"
DATABASE = "persistence: { type: postgres, url: 'postgres://x/y' }"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("persistence: { type: postgres }", ["host", "user", "database"]),
        ("persistence: { type: postgres, url: ' ', host: h, user: u, database: ' ' }", ["database"]),
        ("persistence: { type: postgres, host: h, user: u, database: d }", []),
        ("persistence: { type: sqlite, path: '' }", ["path"]),
        ("persistence: { type: postgres, url: 'postgres://x/y', poolSize: 3 }", ["poolSize"]),
        ("persistence: { type: postgres, url: 'postgres://x/y', poolSize: 4 }", []),
    ],
)
def test_what_it_takes_to_connect(text: str, found: list[str]) -> None:
    assert paths(Q.format(text)) == [f"queryflux.persistence.{key}" for key in found]


@pytest.mark.parametrize(
    "url",
    [
        "postgres://qf:s3c/r3t@db/x",
        "postgres://qf:s3c#r3t@db/x",
        "postgres://qf:s3c?r3t@db/x",
        "postgres://qf:12/r3t@db/x",
        "postgres://qf:12?r3t@db/x",
        "postgres://qf:s3cr3t@[db/x",
        "postgres://qf:s3cr3t@db:port/x",
        "mysql://qf:s3cr3t@db/x",
        "qf:s3cr3t@db/x",
    ],
)
def test_a_url_that_cannot_be_taken_apart_is_refused_and_never_shown(url: str) -> None:
    found = problems(Q.format(f"persistence: {{ type: postgres, url: '{url}' }}"))
    assert [problem.path for problem in found] == ["queryflux.persistence.url"]
    assert not re.search("s3c|r3t|12|qf", render_problems(found))


@pytest.mark.parametrize(
    "url",
    [
        "postgres://db",
        "postgresql://qf:s3c%2Fr3t@db:5433/x?sslmode=require&application_name=a@b",
        "postgres://qf:p@ss@db/x",
        "postgres://qf:@h1:1,h2:2,h3/x",
        "postgres://qf@[::1]:5432/x",
        "postgresql:///x?host=/run/postgresql&user=qf",
    ],
)
def test_urls_that_will_do(url: str) -> None:
    assert paths(Q.format(f"persistence: {{ type: postgres, url: '{url}' }}")) == []


def test_pools_of_their_own_make_the_whole_size_useless() -> None:
    text = "persistence: { type: postgres, url: 'postgres://x/y', poolSize: 3, adminPoolSize: 1 }"
    assert warnings(Q.format(text)) == ["queryflux.persistence.poolSize"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("distributed: true", ["queryflux.distributed"]),
        ("distributed: true, persistence: { type: sqlite, path: x.db }", ["queryflux.distributed"]),
        ("distributed: true, workerApi: { enabled: true, secret: 0123456789abcdef-x }", []),
        (
            "distributed: false, workerApi: { enabled: true, secret: 0123456789abcdef-x }",
            ["queryflux.distributed"],
        ),
        (
            f"distributed: false, role: controlPlane, workerApi: {{ secret: {'x' * 16} }}, {DATABASE}",
            ["queryflux.distributed"],
        ),
        (f"distributed: true, {DATABASE}", []),
        (f"distributed: false, {DATABASE}", []),
        (
            f"coordination: {{ leaseRenewSecs: 101 }}, {DATABASE}",
            ["queryflux.coordination.leaseRenewSecs"],
        ),
        (f"coordination: {{ leaseRenewSecs: 1, leaseExpirySecs: 3 }}, {DATABASE}", []),
        (
            f"coordination: {{ claimRefreshSecs: 21 }}, {DATABASE}",
            ["queryflux.coordination.claimRefreshSecs"],
        ),
        (f"coordination: {{ claimRefreshSecs: 2, claimStaleSecs: 6 }}, {DATABASE}", []),
        *(
            (f"advertiseAddress: '{address}', {DATABASE}", ["queryflux.advertiseAddress"])
            for address in ("here", "host:port", "ftp://host:1", "http://", "http://host:1/path", ":8080")
        ),
        *(
            (f"advertiseAddress: '{address}', {DATABASE}", [])
            for address in ("10.0.0.7:8080", "qf-0.qf:8080", "https://qf-0.example", "http://[::1]:8080")
        ),
    ],
)
def test_what_it_takes_to_share_limits(text: str, found: list[str]) -> None:
    assert paths(Q.format(text)) == found


def test_coordination_without_others_is_told() -> None:
    assert warnings(Q.format("coordination: { leaseRenewSecs: 60 }")) == ["queryflux.coordination"]
    assert warnings(Q.format(f"coordination: {{ leaseRenewSecs: 60 }}, {DATABASE}")) == []
    text = f"distributed: false, coordination: {{ leaseRenewSecs: 60 }}, {DATABASE}"
    assert warnings(Q.format(text)) == ["queryflux.coordination"]


def test_credentials_are_not_shown() -> None:
    loaded = load(Q.format("persistence: { type: postgres, url: 'postgres://u:hush@x/y' }"))
    assert "hush" not in repr(loaded)


def test_an_address_that_nobody_asks_is_told() -> None:
    assert warnings(Q.format("advertiseAddress: '10.0.0.7:8080'")) == ["queryflux.advertiseAddress"]
    text = f"distributed: false, advertiseAddress: '10.0.0.7:8080', {DATABASE}"
    assert warnings(Q.format(text)) == ["queryflux.advertiseAddress"]
