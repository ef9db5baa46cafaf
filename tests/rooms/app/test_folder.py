"""``serve --data``: ports, and the configuration it makes."""

import errno
import os
import socket
from pathlib import Path

import pytest

from queryflux.app.folder import (
    DEFAULT_PORTS,
    OPTIONS,
    folder_config,
    free_ports,
    how_to_connect,
    said_as_options,
)
from queryflux.frontends.listener import how_to_bind
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


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    ("error", "instead"),
    [
        (OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)), "choose another one with {flag}"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES)), "with {flag}, 1024 or above"),
        (OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)), "choose it with --host"),
        (OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT)), "choose it with --host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "choose it with --host"),
    ],
    ids=["taken", "low", "elsewhere", "family", "unknown"],
)
def test_what_to_do_about_an_address_names_options(name: str, error: OSError, instead: str) -> None:
    block = f"queryflux.{name}" if name == "adminApi" else f"queryflux.frontends.{name}"
    with pytest.raises(ConfigError) as caught, said_as_options():
        raise ConfigError("it cannot be had", hint=how_to_bind(error, block))
    assert instead.format(flag=OPTIONS[name]) in caught.value.hint
    assert "queryflux." not in caught.value.hint
