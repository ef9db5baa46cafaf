"""Settings that follow a client from connection to connection."""

import pytest

from queryflux.engines.postgres.settings import (
    change,
    codec_of,
    encoded,
    from_startup,
    literal,
    settings_of,
    with_setting,
    without_setting,
)
from queryflux.model.errors import InvalidRequest
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session


def test_a_start_up_packet() -> None:
    assert from_startup(
        {
            "user": "me",
            "database": "db",
            "client_encoding": "UTF8",
            "datestyle": "ISO, MDY",
            "application_name": "app",
            "role": "superuser",
            "options": "-c search_path=a\\ b,c --statement-timeout=5s -c role=admin -crole=x",
        }
    ) == (
        ("DateStyle", "ISO, MDY"),
        ("application_name", "app"),
        ("client_encoding", "UTF8"),
        ("search_path", "a b,c"),
        ("statement_timeout", "5s"),
    )


def test_a_client_of_another_protocol_has_its_schema() -> None:
    session = Session(ClientProtocol.TRINO_HTTP, database='od"d', extra={"search_path": "x"})
    assert settings_of(session) == (("search_path", '"od""d", public'),)
    assert settings_of(Session(ClientProtocol.TRINO_HTTP)) == ()


def test_the_way_from_one_to_another() -> None:
    a = (("DateStyle", "ISO"), ("TimeZone", "UTC"))
    b = (("TimeZone", "it's"), ("application_name", "b\\"))
    assert change((), ()) == []
    assert change(a, a) == []
    assert change(a, ()) == ["RESET DateStyle", "RESET TimeZone"]
    assert change(a, b) == [
        "RESET DateStyle",
        "SELECT set_config('TimeZone', 'it''s', false), set_config('application_name',  E'b\\\\', false)",
    ]
    assert change(None, (("TimeZone", "UTC"),)) == ["SELECT set_config('TimeZone', 'UTC', false)"]


def test_single_changes() -> None:
    assert with_setting((("b", "1"),), "a", "2") == (("a", "2"), ("b", "1"))
    assert with_setting((("a", "1"),), "a", "2") == (("a", "2"),)
    assert without_setting((("a", "1"), ("b", "1")), "a") == (("b", "1"),)


def test_encodings() -> None:
    assert codec_of(()) == "utf-8"
    assert codec_of((("client_encoding", "latin1"),)) == "latin-1"
    assert codec_of((("client_encoding", "utf-8"),)) == "utf-8"
    assert codec_of((("client_encoding", "MULE_INTERNAL"),)) == "utf-8"
    assert encoded("é", "latin-1") == b"\xe9"
    for text, codec in (("漢", "latin-1"), ("\ud800", "utf-8")):
        with pytest.raises(InvalidRequest):
            encoded(text, codec)


def test_literals() -> None:
    assert literal("a'b") == "'a''b'"
    assert literal("a\\'b") == " E'a\\\\''b'"
