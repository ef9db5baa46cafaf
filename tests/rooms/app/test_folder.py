"""``serve --data``: ports, and the configuration it makes."""

import socket
from pathlib import Path

import pytest

from queryflux.app.folder import DEFAULT_PORTS, folder_config, free_ports, how_to_connect
from queryflux.model.errors import ConfigError


def test_a_taken_port_is_replaced_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        monkeypatch.setitem(DEFAULT_PORTS, "postgresWire", number)
        ports, notes = free_ports("127.0.0.1", {})
    assert ports["postgresWire"] not in (0, number)
    assert any(str(number) in note and "postgresWire" in note for note in notes)


def test_workers_that_cannot_share_a_port_get_free_ones_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        monkeypatch.setitem(DEFAULT_PORTS, "flightSql", number - 1)
        ports, notes = free_ports("127.0.0.1", {}, 2)
        first = ports["flightSql"]
        assert number not in (first, first + 1)
        assert any("flightSql" in note for note in notes)


def test_a_port_that_was_asked_for_is_kept() -> None:
    ports, _ = free_ports("127.0.0.1", {"trinoHttp": 12345})
    assert ports["trinoHttp"] == 12345


def test_the_folder_is_served_on_loopback_through_every_door(tmp_path: Path) -> None:
    ports = dict.fromkeys(DEFAULT_PORTS, 0)
    config = folder_config(tmp_path, "127.0.0.1", ports)
    assert {listener.host for listener in config.queryflux.frontends.named().values()} == {"127.0.0.1"}
    assert config.queryflux.admin_api.host == "127.0.0.1"
    assert config.clusters["folder"].data_path == str(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.touch()
    with pytest.raises(ConfigError, match="is not a folder"):
        folder_config(file, "127.0.0.1", dict.fromkeys(DEFAULT_PORTS, 0))


def test_the_connect_lines_name_the_ports_that_were_opened() -> None:
    ports = {name: number for number, name in enumerate(DEFAULT_PORTS, 40001)}
    text = how_to_connect("::1", ports)
    assert all(str(number) in text for number in ports.values())
    assert "http://[::1]:40001" in text
