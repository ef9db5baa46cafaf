"""Doors that the network reaches without authentication: what is in use decides, not what the file says."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queryflux.app.serve import _start
from queryflux.cli import main
from queryflux.config.auth import AuthConfig, StaticUser, StaticUsers
from queryflux.config.loader import load_bytes
from queryflux.config.snapshot import Snapshot
from queryflux.model.secret import Secret
from tests.kit.editing import edit_in, sequence_of
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

OPEN = "no authentication, and reachable from the network"
STATIC = AuthConfig(
    provider="static",
    required=True,
    static_users=StaticUsers(users={"ada": StaticUser(password=Secret("x"))}),
)
YAML = """
queryflux:
  frontends: {trinoHttp: {host: 0.0.0.0, port: 0}}
  adminApi: {host: 127.0.0.1, port: 0}
  persistence: {type: sqlite, path: 'PATH'}
clusters: {duck: {engine: duckDb, threads: 1}}
clusterGroups: {main: {members: [duck]}}
routingFallback: main
"""
ASKING = "auth: {provider: static, required: true, staticUsers: {users: {ada: {password: x}}}}\n"


@pytest.fixture
def text(tmp_path: Path) -> str:
    return YAML.replace("PATH", str(tmp_path / "qf.db"))


def told(caplog: pytest.LogCaptureFixture) -> int:
    """How often it was said."""
    return sum(OPEN in record.getMessage() for record in caplog.records)


def follow(served: Serving, section: str, value: Any) -> None:
    """An edit of one section, until it is in use."""

    def change(before: Snapshot) -> Snapshot:
        return replace(before, **{section: value})

    stored = edit_in(served, change, section)
    served.wait_for(lambda: sequence_of(served) == stored.sequence)


def test_who_is_let_in_by_the_database_is_told_once_for_each_change(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(text + ASKING) as running:
        assert told(caplog) == 0
        follow(running, "auth", AuthConfig())
        assert told(caplog) == 1
        follow(running, "routing_fallback", None)
        assert told(caplog) == 1
        follow(running, "auth", STATIC)
        assert told(caplog) == 1
        follow(running, "auth", AuthConfig())
        assert told(caplog) == 2
    caplog.clear()
    with serving(text + ASKING):
        assert told(caplog) == 1


def test_users_of_the_database_are_asked_whatever_the_file_says(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(text) as running:
        assert told(caplog) == 1
        follow(running, "auth", STATIC)
    caplog.clear()
    with serving(text):
        assert told(caplog) == 0


def test_whoever_opens_the_doors_is_told(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "auth.yaml"
    file.write_text("auth: {provider: none}\n")
    with serving(text + ASKING) as running:
        monkeypatch.setenv("QUERYFLUX_ADMIN_URL", f"http://127.0.0.1:{running.port('adminApi')}")
        assert main(["config", "apply", str(file)]) == 0
    assert f"warning: auth.provider: {OPEN}: queryflux.frontends.trinoHttp" in capsys.readouterr().out


async def test_a_parent_goes_by_the_doors_of_its_workers(text: str, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load_bytes(text.encode(), {})
    process = await _start(loaded.config, loaded.snapshot, None, 1)
    await process.close()
    assert told(caplog) == 1
