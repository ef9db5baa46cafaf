"""Configurations that come as data: the same checks as a file's, and secrets that stay inside."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from queryflux.config.candidate import check_document, read_sections
from queryflux.config.hooks import decode_hook
from queryflux.config.masking import MARKER, leftovers, masked, masked_untyped, restore, revealed
from queryflux.config.problems import ConfigProblems, Problem
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import Snapshot, revision_of
from tests.rooms.config.reading import load

SOUND: dict[str, Any] = {
    "clusters": {
        "east": {
            "engine": "trino",
            "endpoint": "https://trino:8443",
            "auth": {"type": "basic", "username": "svc", "password": "s3cr3t-1"},
            "maxRunningQueries": 5,
        }
    },
    "clusterGroups": {"bi": {"members": ["east"], "defaultTags": {"team": None}}},
    "routers": [{"type": "userGroup", "userToGroup": {"ann": "bi"}}],
    "routingFallback": "bi",
}


def fine(text: str) -> str | None:
    return None


def check(document: dict[str, Any]) -> Snapshot:
    return check_document(document, ProcessConfig(), fine, fine).snapshot


def problems(document: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(ConfigProblems) as caught:
        check(document)
    return caught.value.problems


def test_data_and_a_file_give_the_same_snapshot() -> None:
    written = json.dumps(SOUND)  # JSON is YAML
    assert revision_of(check(SOUND)) == revision_of(load(written).snapshot)
    assert revealed(check(SOUND)) == SOUND


def test_every_problem_at_once_each_with_its_path() -> None:
    document = {
        **SOUND,
        "clusters": {"east": {"engine": "trino", "endpont": "https://trino", "maxRunningQueries": -1}},
        "clusterGroups": {"bi": {"members": ["eest"]}},
        "routingFallback": "by",
    }
    found = {problem.path: (problem.message, problem.hint) for problem in problems(document)}
    assert found == {
        "clusters.east.endpont": ('unknown key "endpont"', "did you mean endpoint?"),
        "clusters.east.maxRunningQueries": ("must be at least 0", ""),
        "clusters.east.endpoint": ("engine trino needs endpoint", ""),
        "clusterGroups.bi.members[0]": ('there is no cluster "eest"', "did you mean east?"),
        "routingFallback": ('there is no cluster group "by"', "groups: bi"),
    }


def test_what_this_version_cannot_do_is_refused_by_name() -> None:
    (problem,) = problems({**SOUND, "auth": {"provider": "oidc"}})
    assert (problem.path, problem.hint) == ("auth.provider", "remove it, or set none or static")


def test_variables_stay_text_and_files_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("from a file")
    document = json.loads(json.dumps(SOUND))
    document["clusters"]["east"]["auth"]["password"] = "${HOME} costs $${5"
    assert check(document).clusters["east"].auth is not None
    assert revealed(check(document))["clusters"]["east"]["auth"]["password"] == "${HOME} costs $${5"
    auth = document["clusters"]["east"]["auth"]
    auth["passwordFile"] = str(secret)
    del auth["password"]
    (problem,) = problems(document)
    assert problem.path == "clusters.east.auth.passwordFile"
    assert problem.message.endswith("files are not read here; give the value itself")


def test_secrets_are_masked_and_the_marker_keeps_them() -> None:
    stored = check(SOUND)
    shown = masked(stored)
    assert "s3cr3t" not in json.dumps(shown)
    assert shown["clusters"]["east"]["auth"]["password"] == MARKER
    shown["clusters"]["east"]["maxRunningQueries"] = 7
    shown["clusters"]["west"] = shown["clusters"]["east"]
    document = restore(shown, revealed(stored), masked(stored))
    assert document["clusters"]["east"]["auth"]["password"] == "s3cr3t-1"
    (left,) = leftovers(document)
    assert left.path == "clusters.west.auth.password"


def test_the_marker_brings_back_nothing_but_secrets() -> None:
    stored = check(SOUND)
    document = masked(stored)
    document["clusters"]["east"]["endpoint"] = MARKER
    assert [left.path for left in leftovers(restore(document, revealed(stored), masked(stored)))] == [
        "clusters.east.endpoint"
    ]


def test_secrets_in_overrides_are_known_by_their_keys() -> None:
    variant = {"name": "big", "overrides": {"auth": {"password": "s3cr3t-2"}, "endpoint": "https://big"}}
    snapshot = load_unchecked({"clusters": {"east": {**SOUND["clusters"]["east"], "variants": [variant]}}})
    shown = masked(snapshot)["clusters"]["east"]["variants"][0]["overrides"]
    assert shown == {"auth": {"password": MARKER}, "endpoint": "https://big"}


def test_a_secret_stays_with_its_item_when_another_is_taken_out() -> None:
    def several(*items: dict[str, Any]) -> dict[str, Any]:
        return {"variants": list(items)}

    def at(name: str, password: str) -> dict[str, Any]:
        return {"name": name, "overrides": {"password": password}}

    stored = several(at("a", "s3cr3t-a"), at("b", "s3cr3t-b"))
    shown = several(at("a", MARKER), at("b", MARKER))
    assert restore(several(at("b", MARKER)), stored, shown) == several(at("b", "s3cr3t-b"))
    assert restore(several(at("b", MARKER), at("a", MARKER)), stored, shown) == several(
        at("b", "s3cr3t-b"), at("a", "s3cr3t-a")
    )
    assert len(leftovers(restore(several(at("c", MARKER), at("a", MARKER)), stored, shown))) == 1


@pytest.mark.parametrize("name", [[], {}, None, 7])
def test_a_name_that_is_none_is_left_for_the_checks(name: object) -> None:
    document = {"variants": [{"name": name, "overrides": {"password": MARKER}}]}
    assert restore(document, {"variants": [{"name": "a"}]}, {"variants": [{"name": []}]}) == document


def test_a_secret_of_an_item_without_a_name_is_found_by_the_rest_of_it() -> None:
    def hook(url: str, token: str) -> dict[str, Any]:
        return {"url": url, "headers": {"Authorization": token}}

    stored = [hook("https://a", "s3cr3t-a"), hook("https://b", "s3cr3t-b")]
    shown = [hook("https://a", MARKER), hook("https://b", MARKER)]
    assert restore(shown[1:], stored, shown) == stored[1:]
    edited = hook("https://c", MARKER)
    assert restore([shown[0], edited], stored, shown)[1] == hook("https://c", "s3cr3t-b")
    assert len(leftovers(restore([edited], stored, shown))) == 1, "which of the two it was is not said"


def test_what_no_type_describes_hides_more_rather_than_less() -> None:
    document = {
        "password": 12345,
        "api_keys": ["s3cr3t-1", {"token": "s3cr3t-2"}],
        "headers": {"Authorization": "s3cr3t-3", "X-Other": "s3cr3t-4"},
        "dbKwargs": {"username": "s3cr3t-5"},
        "uri": "snowflake://u:s3cr3t-6@host",
        "credentials": {"method": "api_key", "api_key": "s3cr3t-7", "token_endpoint": "https://idp"},
        "auth": {"allowPlaintextCredentials": True, "provider": "static", "password": None},
        "authorization": {"provider": "none"},
        "tokenEndpoint": "https://idp",
        "jwksUri": "https://idp/keys",
    }
    shown = masked_untyped(document)
    assert "s3cr3t" not in json.dumps(shown)
    assert shown["password"] == MARKER
    for key in ("auth", "authorization", "tokenEndpoint", "jwksUri"):
        assert shown[key] == document[key]
    assert shown["credentials"]["token_endpoint"] == "https://idp"


def load_unchecked(document: dict[str, Any]) -> Snapshot:
    return msgspec.convert(document, Snapshot, dec_hook=decode_hook)


def test_a_file_gives_the_sections_it_has(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cr3t-3\n")
    text = f"""
queryflux:
  adminApi: {{port: 9000}}
  queryHistory: {{redaction: none}}
clusters:
  pg:
    engine: postgres
    endpoint: ${{HOST}}:5432
    auth: {{type: basic, username: svc, passwordFile: {secret}}}
routers: []
"""
    assert read_sections(text.encode(), {"HOST": "db"}) == {
        "clusters": {
            "pg": {
                "engine": "postgres",
                "endpoint": "db:5432",
                "auth": {"type": "basic", "username": "svc", "password": "s3cr3t-3"},
            }
        },
        "routers": [],
        "queryHistory": {},
    }
    with pytest.raises(ConfigProblems, match="line 2, column 1: clutsers"):
        read_sections(b"\nclutsers: {}\n", {})
