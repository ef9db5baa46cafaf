"""The command line against an operator port: what it prints, what it refuses, where credentials come from."""

import asyncio
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from queryflux.app.ops import OpsListener
from queryflux.cli import main
from queryflux.config.listeners import Address, AdminApiConfig, ListenerTls
from queryflux.config.masking import MARKER
from queryflux.fleet.registry import Heartbeat
from queryflux.model.errors import StoreUnavailable
from queryflux.model.secret import Secret
from tests.kit.operators import RECORD, Port, ScriptedProcess, make_port
from tests.kit.pki import Authority

OWN = AdminApiConfig(username="ops", password=Secret("p-ops"))


class Served:
    """An operator port on a real socket, on a loop in a thread."""

    def __init__(
        self,
        config: AdminApiConfig | None = None,
        tls: ListenerTls | None = None,
        process: ScriptedProcess | None = None,
    ) -> None:
        self._config, self._tls, self._process = config, tls, process
        self._up = threading.Event()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="operator port")
        self.port: Port
        self._thread.start()
        assert self._up.wait(30)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.port = await make_port(self._config, process=self._process)
        listener = OpsListener(Address(host="127.0.0.1", port=0, tls=self._tls), self.port.app)
        await listener.start()
        scheme, host = ("https", "localhost") if self._tls is not None else ("http", "127.0.0.1")
        self.url = f"{scheme}://{host}:{listener.port}"
        self._up.set()
        await self._down.wait()
        await listener.close()

    def stored(self) -> int:
        """The sequence of its store."""
        return asyncio.run(self.port.store.revision())[1]

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._down.set)
        self._thread.join(30)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URL", "USER", "PASSWORD"):
        monkeypatch.delenv(f"QUERYFLUX_ADMIN_{name}", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(None, None)
    monkeypatch.setenv("QUERYFLUX_ADMIN_URL", served.url)
    yield served
    served.close()


@pytest.fixture
def guarded() -> Iterator[Served]:
    served = Served(OWN, None)
    yield served
    served.close()


Output = pytest.CaptureFixture[str]


def test_get_shows_the_whole_or_a_part(served: Served, capsys: Output) -> None:
    assert main(["config", "get"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith(f"# {served.url}, at 1\nclusters:\n  east:\n    engine: trino\n")
    assert MARKER in whole
    assert "s3cr3t" not in whole
    assert main(["config", "get", "clusters.east.maxRunningQueries"]) == 0
    assert capsys.readouterr().out == "5\n"
    assert main(["config", "get", 'clusters."east".engine']) == 0, "as diff and problems write a name"
    assert capsys.readouterr().out == "trino\n"
    assert main(["config", "get", "routers[1]", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"type": "protocolBased", "trinoHttp": "spare"}
    assert main(["config", "get", "clutsers.east"]) == 1
    assert "did you mean clusters?" in capsys.readouterr().err


def test_what_get_wrote_changes_nothing_and_an_edit_of_it_does(
    served: Served, capsys: Output, tmp_path: Path
) -> None:
    main(["config", "get"])
    text = capsys.readouterr().out
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert main(["config", "diff", str(file)]) == 0
    assert capsys.readouterr().out == "no changes\n"
    edited = text.replace("maxRunningQueries: 5", "maxRunningQueries: 8").replace(MARKER, "s3cr3t-2")
    file.write_text(edited)
    expected = (
        "~ clusters.east.maxRunningQueries: 5 -> 8\n~ clusters.east.auth.password: <secret> (changed)\n"
    )
    assert main(["config", "diff", str(file)]) == 0
    assert capsys.readouterr().out == f"{expected}2 would change; the configuration is at 1\n"
    assert main(["config", "apply", str(file), "--dry-run"]) == 0
    assert served.stored() == 1
    capsys.readouterr()
    assert main(["config", "apply", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(expected + "note: kept in memory")
    assert out.endswith("2 changed; the configuration is at 2\n")
    assert main(["config", "apply", str(file), "--at", "1"]) == 1
    assert "is at 2 now and not at 1" in capsys.readouterr().err
    assert served.stored() == 2


def test_apply_puts_only_the_sections_of_the_file(
    served: Served, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"queryflux: {adminApi: {port: 1}}\nroutingFallback: ${WANTED}\n"
    monkeypatch.setenv("WANTED", "spare")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["config", "apply", "-"]) == 0
    assert capsys.readouterr().out.startswith('~ routingFallback: "bi" -> "spare"\n')


def test_a_file_with_nothing_to_apply_says_so(served: Served, capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "queryflux.yaml"
    file.write_text("queryflux: {adminApi: {port: 1}}\n")
    assert main(["config", "apply", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"no changes: {file} has no section that is applied (queryflux is not")
    file.write_text("routingFallback: bi\n")
    assert main(["config", "apply", str(file)]) == 0
    assert capsys.readouterr().out == "no changes\n"


def test_a_file_that_will_not_do_changes_nothing(served: Served, capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("routingFallback: nobody\nclusterGroups:\n  bi: {members: [eest]}\n")
    assert main(["config", "apply", str(file)]) == 1
    err = capsys.readouterr().err
    assert "the configuration would have 3 problems; nothing was changed" in err
    assert 'clusterGroups.bi.members[0]: there is no cluster "eest" (did you mean east?)' in err
    file.write_text("clusters: {a: {engin: duckDb}}\n")
    assert main(["config", "apply", str(file)]) == 1
    assert 'line 1, column 16: clusters.a.engin: unknown key "engin"' in capsys.readouterr().err
    assert main(["config", "apply", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert served.stored() == 1


def test_queries(served: Served, capsys: Output) -> None:
    assert main(["queries", "--status", "Success", "--group", "bi", "--search", "x", "--limit", "5"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "SUBMITTED", "STATUS", "USER", "GROUP", "CLUSTER", "MS", "ROWS", "SQL"]
    assert row.startswith("q0  2027-01-15 07:43:20  Success  ann   bi")
    assert row.endswith("xxx...")
    wanted, limit, _ = served.port.history.asked[0]
    assert (wanted.status, wanted.cluster_group, wanted.search, limit) == ("Success", "bi", "x", 5)
    served.port.history.records.append(replace(RECORD, proxy_query_id="q1", worker="edge-7"))
    assert main(["queries", "--worker", "edge-7"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[2:5] == ["STATUS", "WORKER", "USER"]
    assert ["edge-7" in row for row in rows] == [False, True]
    assert served.port.history.asked[-1][0].worker == "edge-7"
    assert main(["queries", "--status", "sucess"]) == 1
    assert "did you mean Success?" in capsys.readouterr().err
    assert main(["queries", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["proxy_query_id"] == "q0"


def test_running_queries_and_cancel(served: Served, capsys: Output) -> None:
    served.port.live.queries = {"q\x1b[31m1": "engine-1"}
    assert main(["queries", "--running"]) == 0
    out = capsys.readouterr().out
    assert "q [31m1  engine-1   executing  ann" in out
    assert "\x1b" not in out
    served.port.live.elsewhere = {"q2": "qf-b-1"}
    assert main(["queries", "--running"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[:2]] == [
        ["ID", "ENGINE", "ID", "STATE"],
        ["q2", "engine-1", "executing", "qf-b-1"],
    ]
    served.port.live.elsewhere = StoreUnavailable("the database is away")
    assert main(["queries", "--running"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "note: queries of other processes cannot be listed: the database is away"
    )
    assert main(["cancel", "engine-1"]) == 0
    assert capsys.readouterr().out == "cancelled engine-1\n"
    assert main(["cancel", "engine-1"]) == 1
    err = capsys.readouterr().err
    assert "no query 'engine-1' runs here" in err
    assert "queryflux queries --running" in err
    assert "GET" not in err
    assert main(["queries", "--running", "--status", "Failed"]) == 2


def test_queries_of_workers_elsewhere_are_said_to_be_missing(served: Served, capsys: Output) -> None:
    worker = Heartbeat(instance_id="w-1", worker_name="w")
    asyncio.run(served.port.workers.register(worker))
    assert main(["queries", "--running"]) == 0
    assert (
        "note: queries of workers that this process has not started itself are not listed here"
        in capsys.readouterr().out.splitlines()[-1]
    )
    asyncio.run(served.port.workers.register(replace(worker, phase="stopped", number=1)))
    assert main(["queries", "--running"]) == 0
    assert "note: " not in capsys.readouterr().out


def test_credentials_of_the_environment_and_of_a_file(
    guarded: Served, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = ["--url", guarded.url]
    assert main(["queries", *url]) == 1
    err = capsys.readouterr().err
    assert "user name or password is wrong" in err
    assert "no password was given, so the default one was tried" in err
    assert "--credentials FILE" in err
    assert "~/.config/queryflux/admin.yaml" in err
    assert "set QUERYFLUX_ADMIN_USER and QUERYFLUX_ADMIN_PASSWORD" in err
    file = tmp_path / "admin.yaml"
    file.write_text(f"url: {guarded.url}\nusername: ops\npassword: ${{WORD}}\n")
    file.chmod(0o600)
    monkeypatch.setenv("WORD", "p-ops")
    assert main(["queries", "--credentials", str(file)]) == 0
    usual = tmp_path / "home" / ".config" / "queryflux" / "admin.yaml"
    usual.parent.mkdir(parents=True)
    file.rename(usual)
    assert main(["queries"]) == 0
    assert main(["queries", "--user", "somebody"]) == 1
    monkeypatch.setenv("QUERYFLUX_ADMIN_PASSWORD", "wrong")
    assert main(["queries"]) == 1
    assert "no password was given" not in capsys.readouterr().err
    monkeypatch.setenv("QUERYFLUX_ADMIN_PASSWORD", "p-ops")
    assert main(["queries"]) == 0


def test_a_file_of_credentials_must_be_ones_own_and_sound(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "admin.yaml"
    file.write_text("password: p-ops\n")
    file.chmod(0o640)
    assert main(["queries", "--credentials", str(file)]) == 1
    err = capsys.readouterr().err
    assert "others can read it" in err
    assert f"chmod 600 {file}" in err
    file.chmod(0o600)
    file.write_text("pasword: p-ops\n")
    assert main(["queries", "--credentials", str(file)]) == 1
    err = capsys.readouterr().err
    assert "did you mean password?" in err
    assert "p-ops" not in err


def test_no_password_goes_anywhere_unasked(capsys: Output) -> None:
    assert main(["queries", "--url", "https://queryflux.example:9000"]) == 1
    assert "no password is given" in capsys.readouterr().err
    assert main(["queries", "--url", "http://ops:word@127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert "a URL is no place for a password" in err
    assert "word@" not in err
    assert main(["queries", "--url", "127.0.0.1:9000"]) == 1
    assert '"127.0.0.1:9000" is not the URL of an operator port' in capsys.readouterr().err
    assert main(["queries", "--url", "htp://ops:word@127.0.0.1:1"]) == 1
    assert "word" not in capsys.readouterr().err


def test_nobody_there(capsys: Output) -> None:
    assert main(["queries", "--url", "http://127.0.0.1:9"]) == 1
    err = capsys.readouterr().err
    assert "cannot reach http://127.0.0.1:9: " in err
    assert "QUERYFLUX_ADMIN_URL says where it is" in err


def test_tls_with_an_authority_of_ones_own(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    made = authority.server()
    tls = ListenerTls(cert_file=str(made.cert_file), key_file=str(made.key_file))
    served = Served(OWN, tls)
    try:
        monkeypatch.setenv("QUERYFLUX_ADMIN_USER", "ops")
        monkeypatch.setenv("QUERYFLUX_ADMIN_PASSWORD", "p-ops")
        assert main(["queries", "--url", served.url]) == 1
        err = capsys.readouterr().err
        assert "has a certificate that is not trusted: " in err
        assert "caFile" in err
        file = tmp_path / "access.yaml"
        file.write_text(f"url: {served.url}\ncaFile: {authority.ca_file}\n")
        file.chmod(0o600)
        assert main(["queries", "--credentials", str(file)]) == 0
    finally:
        served.close()
