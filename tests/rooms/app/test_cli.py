"""The command line: exit statuses, and messages that say what to do."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queryflux.app.folder import DEFAULT_PORTS
from queryflux.auth.hashes import check_password
from queryflux.cli import PORT_FLAGS, main

GOOD = """
queryflux:
  frontends:
    trinoHttp: {port: 8080}
clusters:
  d: {engine: duckDb}
clusterGroups:
  g: {members: [d]}
routingFallback: g
"""
BAD = GOOD.replace("engine: duckDb", "engine: duckDB").replace("members: [d]", "member: [d]")


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Who serves sets one, and later tests have their own."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_good_file_is_valid(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-c", str(good)]) == 0
    assert "valid" in capsys.readouterr().out


def test_every_problem_is_named_with_its_line_and_the_nearest_known_word(
    bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "-c", str(bad)]) == 1
    out = capsys.readouterr().out
    assert "line 6" in out
    assert "duckDb" in out
    assert "line 8" in out
    assert "members" in out


def test_problems_are_counted(good: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", "-c", str(bad)])
    assert capsys.readouterr().out.endswith("problems\n")
    good.write_text(GOOD.replace("duckDb", "duckDB"))
    main(["validate", "-c", str(good)])
    assert capsys.readouterr().out.endswith(": 1 problem\n")


def test_problems_for_programs(bad: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-c", str(bad), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert {problem["line"] for problem in report["problems"]} >= {6, 8}
    assert all({"path", "message", "column"} <= set(problem) for problem in report["problems"])
    assert main(["validate", "-c", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"valid": True, "problems": [], "warnings": []}


def test_a_bad_regex_and_a_bad_password_are_found_before_serving(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        GOOD
        + "routers:\n  - {type: queryRegex, rules: [{regex: '(?=x)', targetGroup: g}]}\n"
        + "auth: {provider: static, staticUsers: {users: {ann: {password: '$2b$short'}}}}\n"
    )
    assert main(["validate", "-c", str(path)]) == 1
    out = capsys.readouterr().out
    assert "routers[0].rules[0].regex" in out
    assert "auth.staticUsers.users.ann.password" in out
    assert "$2b$short" not in out


def test_serving_a_bad_file_says_every_problem(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", str(bad)]) == 1
    assert "members" in capsys.readouterr().err


def test_serving_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", str(tmp_path / "missing.yaml")]) == 1
    assert "missing.yaml" in capsys.readouterr().err
    assert main(["serve", "--data", str(tmp_path / "missing")]) == 1
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["serve"], ["nonsense"], ["serve", "-c", "a", "--data", "b"]])
def test_wrong_arguments_are_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("kind", "start"), [("scram", "SCRAM-SHA-256$"), ("sha2", "$A$005$"), ("bcrypt", "$2b$")]
)
def test_verifiers_can_be_used(
    kind: str, start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    assert main(["hash-password", "--kind", kind]) == 0
    made = capsys.readouterr().out.strip()
    assert made.startswith(start)
    assert check_password(made) is None
    assert "correct horse" not in made


def test_an_empty_password_makes_no_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["hash-password"]) == 2


def test_the_schema_is_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "ClusterConfig" in schema["$defs"]


def _at_a_terminal(monkeypatch: pytest.MonkeyPatch, *typed: str) -> None:
    """What comes from the keyboard; after it Ctrl-D."""
    lines = iter(typed)

    def getpass(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", getpass)


def test_a_typed_password_is_asked_for_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _at_a_terminal(monkeypatch, "correct horse", "correct horse")
    assert main(["hash-password"]) == 0
    assert capsys.readouterr().out.startswith("SCRAM-SHA-256$")
    _at_a_terminal(monkeypatch, "correct horse", "correct house")
    assert main(["hash-password"]) == 2
    captured = capsys.readouterr()
    assert "differ" in captured.err
    assert not captured.out


@pytest.mark.parametrize("typed", [(), ("correct horse",)])
def test_ctrl_d_instead_of_a_password(
    typed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _at_a_terminal(monkeypatch, *typed)
    assert main(["hash-password"]) == 2
    assert "no password was given" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["config-schema"], ["validate", "-c", "FILE"]], ids=["much", "little"])
def test_output_that_cannot_be_written_is_a_plain_error(good: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "queryflux.cli", *(str(good) if it == "FILE" else it for it in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "queryflux: the output cannot be written: No space left on device\n"


def test_help_shows_the_usual_ports(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert {name: usual for name, (_, usual) in PORT_FLAGS.items()} == DEFAULT_PORTS
    for name, usual in DEFAULT_PORTS.items():
        assert f"port of {name} (default: {usual}, or a free one when it is taken)" in text
