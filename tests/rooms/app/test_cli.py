"""The command line: exit statuses, and messages that say what to do."""

import errno
import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queryflux.app import parent
from queryflux.app.folder import DEFAULT_PORTS, OPTIONS
from queryflux.auth.hashes import check_password
from queryflux.cli import MOST_WORKERS, PORT_FLAGS, main
from queryflux.model.errors import ConfigError

GOOD = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 8080}
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


def test_an_open_network_is_told_and_is_no_fault(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good.write_text(GOOD.replace("host: 127.0.0.1, ", ""))
    assert main(["validate", "-c", str(good)]) == 0
    warning, valid = capsys.readouterr().out.splitlines()
    assert warning.startswith(
        f"{good}: warning: auth.provider: no authentication, and reachable from the network"
    )
    assert "queryflux.frontends.trinoHttp" in warning
    assert valid == f"{good}: valid"


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
    err = capsys.readouterr().err
    assert "members" in err
    places = [line for line in err.splitlines() if "line " in line]
    assert len(places) > 1
    assert all(f"{bad}: line " in line for line in places)


def test_a_port_that_is_none_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    for port in ("65536", "99999", "-1", "5432x", "", "\u0663", "9" * 5000):
        for command in (["serve", "--data", "."], ["demo"]):
            with pytest.raises(SystemExit) as caught:
                main([*command, "--postgres-port", port])
            assert caught.value.code == 2
            err = capsys.readouterr().err
            assert "--postgres-port: " in err
            assert "a port is a number from 0 (any free one) to 65535" in err


@pytest.mark.parametrize("workers", ["0", "257", "-1", "many"])
def test_a_number_of_workers_that_is_none_is_refused(
    workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--data", ".", "--workers", workers])
    assert caught.value.code == 2
    assert (
        f"{workers!r}: it is a number of processes, from 1 to {parent.MOST_WORKERS}"
        in capsys.readouterr().err
    )
    assert MOST_WORKERS == parent.MOST_WORKERS


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (["--postgres-port", "15433"], "queryflux.frontends.postgresWire.port"),
        (["--admin-port", "0"], "queryflux.adminApi.port"),
        (["--host", "127.0.0.1"], "set host in queryflux.frontends.trinoHttp"),
    ],
)
def test_options_of_a_folder_are_refused_beside_a_file(
    option: list[str], instead: str, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "-c", str(good), *option]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"queryflux: {option[0]} is for --data")
    assert instead in err


def test_a_folder_that_is_served_to_the_network_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("queryflux.app.serve.serve", lambda *_: 0)
    monkeypatch.setattr("queryflux.app.serve.setup", lambda *_: None)  # it takes the log to itself
    free = [f"--{flag}-port=0" for flag, _ in PORT_FLAGS.values()]
    for host, told in (("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)):
        caplog.clear()
        assert main(["serve", "--data", str(tmp_path), *free, "--host", host]) == 0
        assert ("no authentication, and reachable from the network" in caplog.text) is told


def test_a_demo_that_is_shown_to_the_network_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_data(place: Path) -> None:
        raise ConfigError("the data cannot be made")

    monkeypatch.setattr("queryflux.app.demo.make_data", no_data)
    monkeypatch.setattr("queryflux.app.demo.setup", lambda *_: None)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        for host, told in (("127.0.0.1", False), ("0.0.0.0", True)):
            caplog.clear()
            assert main(["demo", "--check", "--dir", str(tmp_path), "--host", host]) == 1
            assert ("no authentication, and reachable from the network" in caplog.text) is told
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(("kept", "told"), [("inMemory", True), ("sqlite, path: none.db", False)])
def test_a_file_is_not_judged_by_who_may_come_where_the_database_says_it(
    kept: str, told: bool, good: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("queryflux.app.serve.serve", lambda *_, **__: 0)
    monkeypatch.setattr("queryflux.app.serve.setup", lambda *_: None)
    text = GOOD.replace("host: 127.0.0.1, ", "")
    good.write_text(text.replace("queryflux:\n", f"queryflux:\n  persistence: {{type: {kept}}}\n"))
    assert main(["serve", "-c", str(good)]) == 0
    assert ("no authentication, and reachable from the network" in caplog.text) is told


@pytest.mark.parametrize("host", ["203.0.113.9", "nohost.invalid", "a..b"])
def test_a_host_that_is_not_here_is_a_plain_error(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data", str(tmp_path), "--host", host]) == 1
    err = capsys.readouterr().err
    assert f"queryflux: cannot listen on {host}: " in err
    assert "--host is an address of this machine" in err


@pytest.mark.parametrize("inside", ["none", "file"])
def test_a_place_where_no_demo_can_be_is_a_plain_error(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("tpchgen-cli") is None and not (Path(sys.executable).parent / "tpchgen-cli").is_file():
        pytest.skip("needs tpchgen-cli")
    (tmp_path / "file").touch()
    place = Path("/proc/nope") if inside == "none" else tmp_path / "file"
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["demo", "--check", "--dir", str(place)]) == 1
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert f"queryflux: the data cannot be made in {place}" in capsys.readouterr().err


def test_a_port_that_is_taken_names_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = [f"--{flag}-port=0" for flag, _ in PORT_FLAGS.values()]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for flag in ("postgres", "flight", "admin"):
            assert main(["serve", "--data", str(tmp_path), *free, f"--{flag}-port={port}"]) == 1
            err = capsys.readouterr().err
            assert f"cannot bind 127.0.0.1:{port}" in err
            assert f"choose another one with --{flag}-port" in err
            assert "queryflux.frontends" not in err


def test_a_folder_that_cannot_be_read_is_no_folder_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("queryflux.app.folder.os.scandir", refuse)
    assert main(["serve", "--data", str(tmp_path)]) == 1
    assert f"{tmp_path} cannot be read: Permission denied" in capsys.readouterr().err


def test_people_are_not_offered_the_seat_of_a_worker(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["statu"])
    err = capsys.readouterr().err
    assert "'status'" in err
    assert "worker-seat" not in err
    assert main(["worker-seat", "12345"]) == 1
    assert "and nothing else" in capsys.readouterr().err


def test_a_password_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["hash-password", "pw"], ["hash-password", "--kind", "sha2", "pw", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        err = capsys.readouterr().err
        assert "standard input" in err
        assert "pw" not in err.replace("hash-password", "")


def test_a_worker_has_nothing_to_migrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "worker.yaml"
    control = "controlPlane: {url: 'http://127.0.0.1:9000', secret: 0123456789abcdef0123}"
    path.write_text(f"queryflux: {{role: worker, {control}}}\n")
    assert main(["migrate", "-c", str(path)]) == 1
    err = capsys.readouterr().err
    assert "a worker has no database" in err
    assert "persistence.type" not in err


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
    assert {name: f"--{flag}-port" for name, (flag, _) in PORT_FLAGS.items()} == OPTIONS
    for name, usual in DEFAULT_PORTS.items():
        assert f"port of {name} (default: {usual}, or a free one when it is taken)" in text
