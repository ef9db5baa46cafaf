"""Small decisions: where the next page is, what an error means, what a session sends."""

import json

import pytest

from queryflux.engines.port import EngineRequest
from queryflux.engines.trino.errors import ErrorDocument, Location, translate
from queryflux.engines.trino.metadata import quoted
from queryflux.engines.trino.pages import decode_page, next_uri_of
from queryflux.engines.trino.places import names_of
from queryflux.engines.trino.session import SessionState, tags
from queryflux.engines.trino.transactions import control
from queryflux.model.errors import EngineError, EngineErrorKind, InvalidRequest, QueryCancelled
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from tests.rooms.engine_trino.coordinator import SESSION, WHO

Kind = EngineErrorKind
URI = "http://h:1/v1/statement/executing/q/s/2"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"id": "q", "nextUri": URI, "columns": [], "data": [[1]]}, URI),
        ({"id": "q", "data": [[1]]}, None),
        ({"id": "q", "columns": [{"name": '"nextUri":"x"', "type": "t"}]}, None),
        ({"id": "q", "data": [[{"nextUri": "x"}]]}, None),
        ({"id": "q", "data": [['"nextUri":"x"']]}, None),
        ({"id": "q", "data": [[1]], "nextUri": URI}, None),
        ({"id": "q", "nextUri": 'http://h/a"b'}, None),
        ({"id": "q", "nextUri": "x" * 5000}, None),
    ],
)
def test_where_the_next_page_is(body: dict[str, object], found: str | None) -> None:
    raw = json.dumps(body, separators=(",", ":")).encode()
    assert next_uri_of(raw) == found
    assert found is None or decode_page(raw).next_uri == found


def document(
    name: str, kind: str = "USER_ERROR", where: Location | None = None, text: str = "x"
) -> ErrorDocument:
    return ErrorDocument(text, 1, name, kind, where)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("SYNTAX_ERROR", "USER_ERROR", Kind.SYNTAX),
        ("TABLE_NOT_FOUND", "USER_ERROR", Kind.TABLE_NOT_FOUND),
        ("CATALOG_NOT_FOUND", "USER_ERROR", Kind.SCHEMA_NOT_FOUND),
        ("EXCEEDED_LOCAL_MEMORY_LIMIT", "INSUFFICIENT_RESOURCES", Kind.RESOURCES),
        ("SOMETHING_NEW", "INTERNAL_ERROR", Kind.OTHER),
        ("", "", Kind.OTHER),
    ],
)
def test_error_kinds(name: str, kind: str, expected: EngineErrorKind) -> None:
    error = translate(document(name, kind), "SELECT 1")
    assert isinstance(error, EngineError)
    assert error.kind is expected


def test_a_query_cancelled_by_somebody_else() -> None:
    assert isinstance(translate(document("USER_CANCELED"), ""), QueryCancelled)


@pytest.mark.parametrize(
    ("line", "place", "offset"),
    [(1, 1, 0), (1, 8, 7), (2, 3, 13), (3, 1, None), (0, 1, None), (2, 99, 15), (1, 0, 0)],
)
def test_positions(line: int, place: int, offset: int | None) -> None:
    error = translate(
        document("SYNTAX_ERROR", where=Location(line, place), text="line 1:8: oh"), "SELECT 'é'\n abcd"[:15]
    )
    assert error.position == offset
    assert error.message == "oh"


@pytest.mark.parametrize(
    ("catalog", "database", "names"),
    [
        (None, None, ("", "")),
        ("tpch", "tiny", ("tpch", "tiny")),
        ("tpch", None, ("tpch", "")),
        ("tpch.tiny", None, ("tpch", "tiny")),
        (None, "tpch.tiny", ("tpch", "tiny")),
        (None, "tiny", ("", "")),
        ("a.b", "c", ("a.b", "c")),
    ],
)
def test_catalog_and_schema(catalog: str | None, database: str | None, names: tuple[str, str]) -> None:
    assert names_of(Session(ClientProtocol.POSTGRES_WIRE, catalog=catalog, database=database)) == names


def test_tags() -> None:
    assert tags({"a": None, "b": "c", "d,e": None, "f": "g\r\nX: y", "ü": None}) == "a,b:c"


def test_session_state() -> None:
    state = SessionState()
    request = EngineRequest("q", "SELECT 1", SESSION, WHO)
    assert [name for name, _ in state.headers(request, ("", ""))] == [
        "X-Trino-Source",
        "X-Trino-Client-Capabilities",
    ]
    changed = [
        ("content-type", "application/json"),
        ("x-trino-set-catalog", "c"),
        ("x-trino-set-schema", "s"),
        ("x-trino-set-path", "p"),
        ("x-trino-set-session", "a=b%3Dc"),
        ("x-trino-set-session", "d=e"),
        ("x-trino-clear-session", "d"),
        ("x-trino-added-prepare", "p=SELECT+%3F"),
        ("x-trino-set-role", "c=ROLE%7Badmin%7D"),
        ("x-trino-something-else", "x"),
    ]
    assert "x-trino-something-else" not in state.update(changed)
    headers = dict(state.headers(request, ("", "")))
    assert headers == {
        "X-Trino-Source": "queryflux",
        "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME,PATH",
        "X-Trino-Catalog": "c",
        "X-Trino-Schema": "s",
        "X-Trino-Path": "p",
        "X-Trino-Session": "a=b%3Dc",
        "X-Trino-Prepared-Statement": "p=SELECT+%3F",
        "X-Trino-Role": "c=ROLE%7Badmin%7D",
    }
    state.update([("x-trino-deallocated-prepare", "p")])
    assert "X-Trino-Prepared-Statement" not in dict(state.headers(request, ("", "")))


def test_a_schema_that_fits_no_header() -> None:
    session = Session(ClientProtocol.POSTGRES_WIRE, catalog="a\r\nX-Trino-User: root")
    with pytest.raises(InvalidRequest):
        SessionState().headers(EngineRequest("q", "SELECT 1", session, WHO), names_of(session))


@pytest.mark.parametrize(
    ("sql", "tag", "said"),
    [
        ("BEGIN", "BEGIN", "START TRANSACTION"),
        ("start transaction", "BEGIN", "START TRANSACTION"),
        ("/* x */ BEGIN WORK ISOLATION LEVEL READ COMMITTED, READ WRITE;", "BEGIN",
         "START TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY", "BEGIN",
         "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"),
        ("commit work", "COMMIT", "COMMIT"),
        ("END", "COMMIT", "COMMIT"),
        ("-- x\nROLLBACK", "ROLLBACK", "ROLLBACK"),
        ("ABORT", "ROLLBACK", "ROLLBACK"),
    ],
)  # fmt: skip
def test_transaction_control(sql: str, tag: str, said: str) -> None:
    found = control(sql)
    assert found is not None
    assert (found.tag, found.sql) == (tag, said)


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "BEGIN x", "ROLLBACK TO SAVEPOINT a", "start", "commit; select 1", ""]
)
def test_what_is_no_transaction_control(sql: str) -> None:
    assert control(sql) is None


def test_literals() -> None:
    assert quoted("o'brien") == "'o''brien'"
