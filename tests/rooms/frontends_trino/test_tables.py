"""The lifecycle, the errors, the addresses: tables that are walked whole."""

import itertools
import json
import subprocess
import sys

import pytest

from queryflux.frontends.trino_http.addresses import Addresses
from queryflux.frontends.trino_http.errors import BY_CODE, BY_KIND, document, standard_name
from queryflux.frontends.trino_http.pageuris import Place, place_of
from queryflux.frontends.trino_http.replies import refusal
from queryflux.frontends.trino_http.session import session_of
from queryflux.frontends.trino_http.state import OVER, TRANSITIONS, Event, State, after
from queryflux.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    EngineError,
    EngineErrorKind,
    InternalError,
    NotConfigured,
    QueryFluxError,
    QueryNotFound,
    ShuttingDown,
    StatementTooLarge,
)
from queryflux.wire.http1 import HttpViolation
from queryflux.wire.trino.codes import NUMBERS


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_of_state_and_event(state: State, event: Event) -> None:
    expected = TRANSITIONS.get((state, event))
    if expected is None:
        with pytest.raises(LookupError, match=event.value):
            after(state, event)
    else:
        assert after(state, event) is expected
        assert state not in OVER


def test_every_state_is_reached_and_every_live_one_can_end() -> None:
    assert {State.SUBMITTED, *TRANSITIONS.values()} == set(State)
    live = set(State) - OVER - {State.SUBMITTED}
    for state in live:
        for ending in (Event.FAIL, Event.CANCEL, Event.ABANDON):
            assert after(state, ending) in OVER


def leaves(kind: type[QueryFluxError]) -> set[type[QueryFluxError]]:
    found = {kind} if kind.__module__ == "queryflux.model.errors" else set()
    return found.union(*(leaves(child) for child in kind.__subclasses__()))


def test_every_error_has_a_name_of_trinos() -> None:
    for kind in leaves(QueryFluxError):
        assert standard_name(kind("x")) in NUMBERS
    assert set(BY_KIND) == set(EngineErrorKind)
    assert set(BY_CODE.values()) | set(BY_KIND.values()) <= set(NUMBERS)


def test_an_error_with_its_place() -> None:
    error = EngineError("no such table", kind=EngineErrorKind.TABLE_NOT_FOUND, position=16, hint="look again")
    told = json.loads(document(error, "SELECT *\nFROM   t"))
    assert told["errorName"] == "TABLE_NOT_FOUND"
    assert told["errorCode"] == 46
    assert told["errorLocation"] == {"lineNumber": 2, "columnNumber": 8}
    assert told["message"] == "line 2:8: no such table (look again)"
    assert told["failureInfo"]["suppressed"] == told["failureInfo"]["stack"] == []


def test_an_engines_own_code_is_kept_where_it_is_trinos() -> None:
    assert standard_name(EngineError("x", name="CATALOG_NOT_FOUND", number=44)) == "CATALOG_NOT_FOUND"
    assert standard_name(EngineError("x", name="ER_DUP_ENTRY", number=1062)) == "GENERIC_USER_ERROR"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AuthenticationFailed("x"), 401),
        (AccessDenied("x"), 403),
        (QueryNotFound("x"), 404),
        (StatementTooLarge("x"), 413),
        (HttpViolation("x", 431), 431),
        (NotConfigured("x"), 503),
        (ShuttingDown("x"), 503),
        (InternalError("x"), 500),
        (QueryFluxError("x"), 500),
    ],
)
def test_the_status_of_a_refusal(error: QueryFluxError, status: int) -> None:
    reply = refusal(error)
    assert reply.status == status
    assert json.loads(reply.body)["error"]["message"] == "x"
    assert ("Retry-After" in dict(reply.headers)) == (status == 503)
    assert ("WWW-Authenticate" in dict(reply.headers)) == (status == 401)


HOST = {"host": "door:8080"}


@pytest.mark.parametrize(
    ("headers", "base"),
    [
        (HOST, "http://door:8080"),
        ({}, "http://localhost:1"),
        ({"host": 'evil"/\\'}, "http://localhost:1"),
        ({"host": "[::1]:8080"}, "http://[::1]:8080"),
        ({**HOST, "x-forwarded-proto": "https"}, "https://door:8080"),
        ({**HOST, "x-forwarded-proto": "gopher"}, "http://door:8080"),
        ({**HOST, "x-forwarded-host": "public"}, "http://public"),
        ({**HOST, "x-forwarded-host": "public, inner", "x-forwarded-proto": "HTTPS, http"}, "https://public"),
        (
            {**HOST, "x-forwarded-host": "public", "x-forwarded-port": "8443", "x-forwarded-proto": "https"},
            "https://public:8443",
        ),
        ({**HOST, "x-forwarded-port": "443", "x-forwarded-proto": "https"}, "https://door"),
        ({**HOST, "x-forwarded-port": "80"}, "http://door"),
        ({**HOST, "x-forwarded-port": "junk"}, "http://door:8080"),
        ({**HOST, "x-forwarded-host": "[::1]", "x-forwarded-port": "81"}, "http://[::1]:81"),
        ({**HOST, "forwarded": "for=1.2.3.4;host=public:444;proto=https"}, "https://public:444"),
        ({**HOST, "forwarded": 'for="[::1]";Host="a:1";PROTO="https", host=b'}, "https://a:1"),
        ({**HOST, "forwarded": "proto=https"}, "https://door:8080"),
        ({**HOST, "forwarded": "nonsense"}, "http://door:8080"),
        (
            {
                **HOST,
                "forwarded": "host=right;proto=https",
                "x-forwarded-host": "wrong",
                "x-forwarded-port": "1",
                "x-forwarded-proto": "http",
            },
            "https://right",
        ),
        ({**HOST, "forwarded": "proto=https", "x-forwarded-host": "public"}, "https://public"),
    ],
)
def test_the_address_a_client_reaches_us_by(headers: dict[str, str], base: str) -> None:
    addresses = Addresses(None, tls=False, fallback="localhost:1")
    assert addresses.base(headers) == base.encode()
    assert addresses.base(headers) == base.encode()


def test_the_configured_address_wins() -> None:
    addresses = Addresses("https://sql.example.com/", tls=False, fallback="x")
    assert addresses.base({**HOST, "x-forwarded-host": "other"}) == b"https://sql.example.com"
    assert Addresses(None, tls=True, fallback="x").base(HOST) == b"https://door:8080"


def test_known_addresses_stay_few() -> None:
    addresses = Addresses(None, tls=False, fallback="x")
    for number in range(1000):
        assert addresses.base({"host": f"h{number}"}) == f"http://h{number}".encode()
    assert len(addresses._known) <= 256


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/v1/statement/qf/executing/i/s/1", Place("executing", "i", "s", 1)),
        ("/v1/statement/qf/queued/i/s/0", Place("queued", "i", "s", 0)),
        ("/v1/statement/qf/other/i/s/1", None),
        ("/v1/statement/executing/i/s/1", None),
        ("/v1/statement/qf/executing/i/s/-1", None),
        ("/v1/statement/qf/executing/i/s/²", None),
        ("/v1/statement/qf/executing/i/s/1/2", None),
        ("/v1/statement/qf/executing/i/s/" + "9" * 20, None),
        ("/v1/statement/", None),
    ],
)
def test_the_places_of_uris(path: str, place: Place | None) -> None:
    assert place_of(path) == place


def test_the_session_of_a_request() -> None:
    session = session_of(
        {
            "x-trino-catalog": "c",
            "x-trino-schema": "s",
            "x-trino-client-tags": "a, team:x",
            "x-trino-session": "query_tags=team%3Aeng%2Ca%3A1",
            "authorization": "Basic secret",
            "cookie": "secret",
            "x-trino-extra-credential": "secret",
            "x-team": "etl",
        },
        "1.2.3.4:5",
    )
    assert (session.catalog, session.database, session.peer) == ("c", "s", "1.2.3.4:5")
    assert session.tags == {"a": "1", "team:x": None, "team": "eng"}
    assert session.extra["x-team"] == "etl"
    assert "secret" not in "".join(session.extra.values())
    assert session_of({}, "").catalog is None


def test_a_relay_needs_nothing_heavy() -> None:
    heavy = ("pyarrow", "numpy", "sqlglot", "duckdb")
    program = (
        f"import sys, queryflux.frontends.trino_http.door; print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
