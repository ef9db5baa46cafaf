"""``workerApi`` and role ``controlPlane``: what they need, and what is warned about."""

import pytest

from tests.rooms.config.reading import load, only, paths, problems, warnings

LONG = "0123456789abcdef-worker"
POSTGRES = "persistence: {type: postgres, url: 'postgres://a@b/c'}"
LOCAL = "adminApi: {host: 127.0.0.1}"


def file(*lines: str) -> str:
    return "queryflux:\n" + "".join(f"  {line}\n" for line in lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("role: controlPlane", POSTGRES, f"workerApi: {{secret: {LONG}}}"),
        (f"workerApi: {{enabled: true, secret: {LONG}}}",),
        (f"workerApi: {{enabled: true, secrets: [{LONG}, {LONG}2]}}",),
        ("persistence: {type: sqlite, path: x.db}", f"workerApi: {{enabled: true, secret: {LONG}}}"),
        (POSTGRES, f"workerApi: {{enabled: true, secret: {LONG}}}"),
        ("workerApi: {enabled: false}",),
    ],
)
def test_what_can_serve_workers(lines: tuple[str, ...]) -> None:
    assert warnings(file(*lines, LOCAL)) == []


def test_who_serves_workers() -> None:
    assert load(file(f"workerApi: {{enabled: true, secret: {LONG}}}")).config.queryflux.serves_workers
    assert not load(file(f"workerApi: {{secret: {LONG}}}")).config.queryflux.serves_workers
    plane = file("role: controlPlane", POSTGRES, f"workerApi: {{secret: {LONG}}}")
    assert load(plane).config.queryflux.serves_workers


@pytest.mark.parametrize(
    "store", ["persistence: {type: inMemory}", "persistence: {type: sqlite, path: x}", ""]
)
def test_a_control_plane_needs_postgres(store: str) -> None:
    problem = only(file("role: controlPlane", *filter(None, [store]), f"workerApi: {{secret: {LONG}}}"))
    assert problem.path == "queryflux.persistence.type"
    assert "PostgreSQL" in problem.message
    assert "role: standalone with workerApi.enabled: true" in problem.hint


@pytest.mark.parametrize(
    "lines",
    [("workerApi: {enabled: true}",), ("role: controlPlane", POSTGRES), ("workerApi: {enabled: yes}",)],
)
def test_who_serves_workers_needs_a_secret(lines: tuple[str, ...]) -> None:
    problem = only(file(*lines))
    assert problem.path == "queryflux.workerApi.secret"
    assert "secretFile" in problem.hint


def test_a_secret_that_cannot_be_read_is_one_problem() -> None:
    assert paths(file("workerApi: {enabled: true, secretFile: /nowhere/at/all}")) == [
        "queryflux.workerApi.secretFile"
    ]
    assert paths(file("workerApi: {enabled: true, secret: '${NOT_SET}'}")) == ["queryflux.workerApi.secret"]


def test_an_empty_secret_is_none() -> None:
    text = file("workerApi: {enabled: true, secret: '${EMPTY}', secrets: ['  ']}")
    found = problems(text, {"EMPTY": ""})
    assert {problem.path for problem in found} == {
        "queryflux.workerApi.secret",
        "queryflux.workerApi.secrets[0]",
    }


def test_a_short_secret_is_warned_about_and_not_shown() -> None:
    text = file(f"workerApi: {{enabled: true, secret: swordfish, secrets: [{LONG}, trout]}}", LOCAL)
    assert warnings(text) == ["queryflux.workerApi.secret", "queryflux.workerApi.secrets[1]"]
    assert all("swordfish" not in it.message + it.hint for it in load(text).warnings)


def test_a_secret_that_is_the_operators_password_too_is_warned_about_and_not_shown() -> None:
    admin = LOCAL.replace("}", f", password: {LONG}}}")
    text = file(f"workerApi: {{enabled: true, secret: {LONG}2, secrets: [{LONG}]}}", admin)
    assert warnings(text) == ["queryflux.workerApi.secrets[0]"]
    said = [it.message + it.hint for it in load(text).warnings]
    assert any("is the operator's password" in one for one in said)
    assert not any(LONG in one for one in said)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "queryflux.internal"])
def test_plain_http_outside_this_machine_is_warned_about(host: str) -> None:
    text = file(f"workerApi: {{enabled: true, secret: {LONG}}}", f"adminApi: {{host: '{host}'}}")
    assert warnings(text) == ["queryflux.adminApi"]
    assert warnings(text.replace("enabled: true", "enabled: false")) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_plain_http_on_this_machine_is_not(host: str) -> None:
    text = file(f"workerApi: {{enabled: true, secret: {LONG}}}", f"adminApi: {{host: '{host}'}}")
    assert warnings(text) == []


def test_a_control_plane_cannot_be_told_to_serve_no_workers() -> None:
    text = file("role: controlPlane", POSTGRES, f"workerApi: {{enabled: false, secret: {LONG}}}", LOCAL)
    assert warnings(text) == ["queryflux.workerApi.enabled"]


@pytest.mark.parametrize("secret", ["two words 0123456789", "sécret-0123456789abcdef", '"abc\\0 0123456789"'])
def test_a_secret_that_no_worker_could_present_is_refused(secret: str) -> None:
    problem = only(file(f"workerApi: {{enabled: true, secret: {LONG}, secrets: [{secret}]}}"))
    assert problem.path == "queryflux.workerApi.secrets[0]"
    assert "no HTTP header can carry" in problem.message
    assert "0123456789" not in problem.message


@pytest.mark.parametrize("keys", [f"secret: {LONG}", f"secrets: [{LONG}]"])
def test_a_secret_on_a_standalone_that_serves_no_workers_is_warned_about(keys: str) -> None:
    assert warnings(file(f"workerApi: {{{keys}}}", LOCAL)) == ["queryflux.workerApi"]
    assert warnings(file(f"workerApi: {{enabled: false, {keys}}}", LOCAL)) == []
