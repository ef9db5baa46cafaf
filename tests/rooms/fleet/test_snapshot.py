"""The document that carries a configuration: what it looks like, and which ones are refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from queryflux.config.candidate import check_content
from queryflux.config.problems import ConfigProblems
from queryflux.config.process import ProcessConfig
from queryflux.config.scripts import ScriptConfig
from queryflux.config.snapshot import Snapshot, content_of, revision_of, revision_of_json
from queryflux.fleet import snapshot as wire
from queryflux.fleet.snapshot import Refusal, SnapshotRefused, WorkerSnapshot, build, read
from tests.kit.snapshots import snapshots
from tests.rooms.config.reading import load

MADE, CONFIRMED = 1_800_000_000.5, 1_799_999_990.0
YAML = """
clusters:
  east: {engine: trino, endpoint: "https://t:8443", auth: {type: basic, username: svc, password: "pw${X}"}}
  files: {engine: duckDb}
clusterGroups: {bi: {members: [east, files], maxRunningQueries: 0}}
routers: [{type: userGroup, userToGroup: {ann: bi}}]
routingFallback: bi
translation: {mode: strict}
auth: {required: true, provider: static, staticUsers: {users: {ann: {password: secret-of-ann}}}}
"""


def file() -> Snapshot:
    return load(YAML.replace("${X}", "$${X}")).snapshot


def made(snapshot: Snapshot | None = None) -> bytes:
    snapshot = file() if snapshot is None else snapshot
    return build(snapshot, epoch="e1", sequence=7, generated_at=MADE, confirmed_at=CONFIRMED)[1]


def changed(change: Callable[[dict[str, Any]], object], *, honest: bool = True) -> bytes:
    """A document with a change in it; ``honest``: whoever made it also said the revision that comes of it."""
    document = json.loads(made())
    change(document)
    if honest:
        content = {key: value for key, value in document.items() if key not in wire.ENVELOPE}
        document["revision"] = revision_of_json(content)
    return json.dumps(document).encode()


def used(received: WorkerSnapshot) -> Snapshot:
    return check_content(received.content, ProcessConfig(), lambda text: None, lambda text: None).snapshot


def refusal(data: bytes) -> SnapshotRefused:
    with pytest.raises(SnapshotRefused) as caught:
        read(data)
    return caught.value


def test_it_looks_as_the_design_says() -> None:
    document = json.loads(made())
    assert list(document)[:7] == [
        "schemaVersion",
        "revision",
        "epoch",
        "sequence",
        "generatedAt",
        "confirmedAt",
        "credentials",
    ]
    assert document["schemaVersion"] == 1
    assert (document["epoch"], document["sequence"]) == ("e1", 7)
    assert document["generatedAt"] == "2027-01-15T08:00:00.500Z"
    assert document["credentials"] == "embedded"
    assert document["clusters"]["east"]["auth"]["password"] == "pw${X}"
    assert document["settings"]["security"]["auth"]["required"] is True
    assert "routingFallback" in document
    assert "auth" not in document
    assert document["revision"] == revision_of(file())


def test_what_is_made_can_be_read_back() -> None:
    received = read(made())
    assert (received.revision, received.epoch, received.sequence) == (revision_of(file()), "e1", 7)
    assert (received.generated_at, received.confirmed_at) == (MADE, CONFIRMED)
    assert received.data == made()
    assert used(received) == file()
    assert revision_of(used(received)) == received.revision
    assert "secret-of-ann" not in repr(received)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshots())
def test_any_configuration_travels_also_settings_of_later_features(snapshot: Snapshot) -> None:
    revision, data = build(snapshot, epoch="e", sequence=0, generated_at=MADE, confirmed_at=MADE)
    received = read(data)
    assert received.revision == revision == revision_of(snapshot)
    assert received.content == json.loads(json.dumps(content_of(snapshot)))


def test_fields_of_a_later_version_are_passed_over_at_every_level_and_count() -> None:
    def later(document: dict[str, Any]) -> None:
        document["priorities"] = [1, {"a": None}]
        document["settings"]["quotas"] = {"x": 1.0}
        document["settings"]["security"]["audit"] = True
        document["settings"]["security"]["auth"]["sessions"] = {}
        document["clusters"]["east"]["warm_up"] = {"max_running_queries": 3}
        document["clusters"]["east"]["auth"]["realm"] = "r"
        document["routers"][0]["note"] = "why"

    received = read(changed(later))
    assert used(received) == file()
    assert received.revision != revision_of(file())
    changed_again = json.loads(received.data)
    changed_again["clusters"]["east"]["warm_up"]["max_running_queries"] = 4
    assert refusal(json.dumps(changed_again).encode()).reason is Refusal.REVISION


def test_all_checks_of_a_configuration_apply() -> None:
    def broken(document: dict[str, Any]) -> None:
        document["routingFallback"] = "gone"
        document["clusters"]["east"]["maxRunningQueries"] = -1
        document["guardrails"] = "not where they travel"

    with pytest.raises(ConfigProblems) as caught:
        used(read(changed(broken)))
    assert [problem.path for problem in caught.value.problems] == [
        "clusters.east.maxRunningQueries",
        "routingFallback",
    ]


@pytest.mark.parametrize(
    ("place", "value", "what"),
    [
        (("guardrails",), {"global": [{"kind": "built_in", "name": "read_only"}]}, "guardrails"),
        (("catalog",), {"type": "trino"}, "catalogProvider"),
        (("accessControl",), {"defaultConnection": "x", "connections": {}}, "accessControl"),
        (("security", "authorization"), {"provider": "openfga"}, "authorization"),
    ],
)
def test_what_this_version_cannot_do_is_refused_unless_it_is_off(
    place: tuple[str, ...], value: Any, what: str
) -> None:
    def on(document: dict[str, Any]) -> None:
        *path, key = place
        block = document["settings"]
        for name in path:
            block = block[name]
        block[key] = value

    with pytest.raises(ConfigProblems) as caught:
        used(read(changed(on)))
    assert any(problem.path.startswith(what) for problem in caught.value.problems)


def test_scripts_travel_and_those_of_guards_are_among_the_settings() -> None:
    scripts = {
        "fix": ScriptConfig(kind="translation_fixup", body="def transform(sql, src, dst): return sql"),
        "no": ScriptConfig(kind="guard", body="def check(query): return None", description="why"),
    }
    received = read(made(replace(file(), scripts=scripts)))
    assert list(received.content["scripts"]) == ["fix"]
    assert list(received.content["settings"]["guardScripts"]) == ["no"]
    assert used(received).scripts == scripts
    only_guards = read(made(replace(file(), scripts={"no": scripts["no"]})))
    assert "scripts" not in only_guards.content
    assert list(used(only_guards).scripts) == ["no"]
    with pytest.raises(ConfigProblems, match="guardScripts is not an object"):
        used(read(changed(lambda it: it["settings"].update(guardScripts=[1]))))


@pytest.mark.parametrize("name", ["settings", "security"])
def test_a_block_that_is_none_is_a_problem(name: str) -> None:
    def flat(document: dict[str, Any]) -> None:
        block = document if name == "settings" else document["settings"]
        block[name] = 5

    with pytest.raises(ConfigProblems, match="is not an object"):
        used(read(changed(flat)))


def test_files_of_secrets_are_not_read() -> None:
    def named(document: dict[str, Any]) -> None:
        auth = document["clusters"]["east"]["auth"]
        del auth["password"]
        auth["passwordFile"] = "/etc/passwd"

    with pytest.raises(ConfigProblems, match="files are not read here"):
        used(read(changed(named)))


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_schema_is_refused_whatever_else_is_in_it(version: int) -> None:
    error = refusal(json.dumps({"schemaVersion": version, "revision": 5}).encode())
    assert (error.reason, error.schema_version) == (Refusal.SCHEMA, version)
    assert f"schema version {version}" in error.message
    assert "upgrade" in error.hint


@pytest.mark.parametrize("mode", ["stripped", "vault", None, 5, ["embedded"]])
def test_another_way_of_credentials_is_refused(mode: Any) -> None:
    assert refusal(changed(lambda it: it.update(credentials=mode))).reason is Refusal.CREDENTIALS


@pytest.mark.parametrize("signature", ["ed25519:abc", {}, False, ""])
def test_any_signature_is_refused_for_nobody_here_can_check_it(signature: Any) -> None:
    assert refusal(changed(lambda it: it.update(signature=signature))).reason is Refusal.SIGNATURE


def test_the_revision_is_checked() -> None:
    error = refusal(changed(lambda it: it.update(routingFallback="other"), honest=False))
    assert error.reason is Refusal.REVISION
    assert "changed on its way" in error.message


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.pop("revision"),
        lambda it: it.update(revision=it["revision"].upper() + "0"),
        lambda it: it.pop("epoch"),
        lambda it: it.update(epoch=""),
        lambda it: it.update(epoch="x" * 101),
        lambda it: it.update(sequence=-1),
        lambda it: it.update(sequence=True),
        lambda it: it.update(sequence=1.5),
        lambda it: it.update(sequence=2**63),
        lambda it: it.update(generatedAt="yesterday"),
        lambda it: it.update(confirmedAt=1_800_000_000),
        lambda it: it.update(confirmedAt="2027-02-31T00:00:00Z"),
        lambda it: it.update(confirmedAt="2027-01-15T08:00:00"),
        lambda it: it.pop("schemaVersion"),
        lambda it: it.update(schemaVersion=True),
        lambda it: it.update(schemaVersion="1"),
    ],
)
def test_an_envelope_that_says_nonsense_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(made())
    change(document)
    assert refusal(json.dumps(document).encode()).reason is Refusal.MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        b"[]",
        b"\xff\xfe{}",
        made()[:-1],
        made() + b"x",
        b'{"schemaVersion":1,"credentials":"embedded","a":NaN}',
        b'{"schemaVersion":1,"credentials":"embedded","revision":"0000000000000000","a":1e999}',
        b'{"schemaVersion":1,"credentials":"embedded","revision":"0000000000000000","a":"\\ud800"}',
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 70 + b"]" * 70 + b"}",
    ],
)
def test_what_is_no_document_is_refused(data: bytes) -> None:
    assert refusal(data).reason is Refusal.MALFORMED


def test_a_document_that_is_too_large_is_neither_made_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made()
    monkeypatch.setattr(wire, "MAX_BYTES", len(data) - 1)
    assert refusal(data).reason is Refusal.TOO_LARGE
    with pytest.raises(ValueError, match="workers take"):
        made()


def test_times_with_an_offset_are_the_same_times() -> None:
    document = changed(lambda it: it.update(confirmedAt="2027-01-15t09:30:00.5+01:30"))
    assert read(document).confirmed_at == MADE


def test_the_envelope_is_not_part_of_the_revision() -> None:
    one = build(file(), epoch="e1", sequence=1, generated_at=1, confirmed_at=1)
    other = build(file(), epoch="e2", sequence=9, generated_at=2, confirmed_at=2)
    assert one[0] == other[0]
    assert (
        one[0]
        != build(replace(file(), routing_fallback=""), epoch="", sequence=0, generated_at=0, confirmed_at=0)[
            0
        ]
    )
