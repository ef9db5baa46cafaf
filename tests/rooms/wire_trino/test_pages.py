"""URIs in a coordinator's page, headers, and the documents that we write ourselves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.wire.trino import headers
from queryflux.wire.trino.codes import NUMBERS, error_type
from queryflux.wire.trino.documents import Stats, Update, error, problem, results
from queryflux.wire.trino.uris import partial_cancel_of, rewrite, sole_uri

PAGE = (
    b'{"id":"q","infoUri":"http://c/ui/query.html?q","partialCancelUri":"http://c/pc/1",'
    b'"nextUri":"http://c/v1/statement/executing/q/y/1","columns":[{"name":"nextUri"}],'
    b'"data":[["\\"nextUri\\":\\"x\\""]],"stats":{"state":"RUNNING"},"warnings":[]}'
)


def test_the_three_uris_are_replaced_and_nothing_else() -> None:
    expected = PAGE.replace(b"http://c/ui/query.html?q", b"I").replace(b"http://c/pc/1", b"P")
    expected = expected.replace(b"http://c/v1/statement/executing/q/y/1", b"N")
    assert json.loads(rewrite(PAGE, b"I", b"P", b"N")) == json.loads(expected)
    assert rewrite(PAGE.replace(b'"nextUri"}', b'"n"}'), b"I", b"P", b"N") == expected.replace(
        b'"nextUri"}', b'"n"}'
    )


@pytest.mark.parametrize(
    "page",
    [
        {"id": "q", "data": [[{"nextUri": "mine", "infoUri": "mine"}]], "nextUri": "c", "infoUri": "c"},
        {"id": "q", "infoUri": "c", "data": [[{"nextUri": "mine"}]], "nextUri": "c"},
        {"nextUri": "c", "infoUri": "c", "columns": [{"name": "nextUri"}], "data": [["nextUri"]]},
        {"id": "x" * 5000, "infoUri": "c", "nextUri": "c"},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_page_in_any_order_and_spacing(page: dict[str, object], separators: tuple[str, str]) -> None:
    got = json.loads(rewrite(json.dumps(page, separators=separators).encode(), b"I", None, b"N"))
    assert got == {**page, "infoUri": "I", "nextUri": "N"}


def test_a_uri_without_a_successor_is_left_out() -> None:
    got = json.loads(rewrite(PAGE, b"I", None, None))
    assert "nextUri" not in got
    assert "partialCancelUri" not in got
    assert got["infoUri"] == "I"


def test_null_uris_stay_null() -> None:
    body = b'{"id":"q","infoUri":"c","nextUri":null,"stats":{}}'
    assert json.loads(rewrite(body, b"I", None, b"N"))["nextUri"] is None


SOLE = b'{"id":"q","infoUri":"http://c/ui/query.html?q","columns":[{"name":"u"}],"data":[["e"]],"stats":{}}'


def test_a_page_whose_only_uri_is_its_second_member() -> None:
    place = sole_uri(SOLE)
    assert place is not None
    assert SOLE[slice(*place)] == b"http://c/ui/query.html?q"
    assert SOLE[: place[0]] + b"I" + SOLE[place[1] :] == rewrite(SOLE, b"I", None, None)


@pytest.mark.parametrize(
    "body",
    [
        PAGE,
        SOLE.replace(b'"stats"', b'"nextUri":"x","stats"'),
        SOLE.replace(b'"stats"', b'"infoUri":"x","stats"'),
        SOLE.replace(b'"stats"', b'"partialCancelUri":null,"stats"'),
        SOLE.replace(b'"q",', b'"q", '),
        SOLE.replace(b'{"id"', b'{ "id"'),
        SOLE.replace(b'"id":"q",', b""),
        SOLE.replace(b'"q",', b'"a\\"b",'),
        SOLE.replace(b'"q",', b'"\\",'),
        SOLE.replace(b"http://", b"http:\\/\\/"),
        b'{"id":"q","infoUri":"http://c',
        b'{"id":"q',
        b'{"id":"',
        b"",
    ],
)
def test_any_other_page_is_left_to_the_careful_way(body: bytes) -> None:
    assert sole_uri(body) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"id":', b"\xff"])
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="page"):
        rewrite(body, b"I", None, None)


@given(st.binary(max_size=100))
def test_any_page(body: bytes) -> None:
    for sample in (body, b'{"infoUri"' + body + b',"data":1}', b'{"infoUri":"a","stats":' + body):
        try:
            rewrite(sample, b"I", None, b"N")
            partial_cancel_of(sample)
        except ValueError:
            pass


def test_partial_cancel_uri() -> None:
    assert partial_cancel_of(PAGE) == "http://c/pc/1"
    assert partial_cancel_of(b"{}") is None
    assert partial_cancel_of(b'{"data":[[{"partialCancelUri":"x"}]],"partialCancelUri":"c"}') == "c"
    assert partial_cancel_of(b'{"partialCancelUri": "c", "data": []}') == "c"
    assert partial_cancel_of(b'{"data":[[{"partialCancelUri":"x"}]]}') is None


def test_pairs_and_back() -> None:
    value = headers.pair("a b", "x=1, y+2 é")
    assert headers.pairs(f"{value}, c=d%20e,junk,=x") == {"a+b": "x=1, y+2 é", "c": "d e"}


def test_what_is_forwarded() -> None:
    got = headers.forwarded(
        [
            ("authorization", "Basic x"),
            ("host", "h"),
            ("x-trino-user", "u"),
            ("x-trino-transaction-id", "t"),
            ("x-trino-session", "query_tags=a, x=1"),
            ("x-trino-time-zone", "UTC"),
            ("x-trino-query-data-encoding", "json"),
        ]
    )
    assert got == [("x-trino-session", "x=1"), ("x-trino-time-zone", "UTC")]


@pytest.mark.parametrize(
    ("session", "text"),
    [
        ("", ""),
        ("x=1", ""),
        ("x=1, query_tags=team%3Aeng%2Cbatch", "team:eng,batch"),
        ("query_tag=x", "x"),
    ],
)
def test_the_property_for_tags(session: str, text: str) -> None:
    assert headers.tag_text(session) == text


def test_documents() -> None:
    stats = Stats("RUNNING", elapsed=12, queued=2, processed_rows=3)
    page = json.loads(
        results("q1", b"http://h/i", stats, following=b"http://h/n", columns=b"[]", rows=[b"[1]", b"[2],[3]"])
    )
    assert page["data"] == [[1], [2], [3]]
    assert (page["id"], page["nextUri"], page["infoUri"]) == ("q1", "http://h/n", "http://h/i")
    assert (page["stats"]["state"], page["stats"]["wallTimeMillis"]) == ("RUNNING", 10)
    assert "error" not in page

    page = json.loads(results("q1", b"i", Stats("FINISHED"), update=Update("INSERT", 3)))
    assert (page["updateType"], page["updateCount"], page["data"]) == ("INSERT", 3, [[3]])
    page = json.loads(results("q1", b"i", Stats("FINISHED"), update=Update("CREATE TABLE")))
    assert page["columns"] == []
    assert not page.keys() & {"data", "updateCount"}

    broken = error("SYNTAX_ERROR", 'line 1:8: "x"', location=(1, 8))
    page = json.loads(results("q1", b"i", Stats("FAILED"), error=broken))
    assert page["error"]["errorLocation"] == {"lineNumber": 1, "columnNumber": 8}
    assert page["error"]["failureInfo"]["errorInfo"] == {
        "code": 1,
        "name": "SYNTAX_ERROR",
        "type": "USER_ERROR",
    }
    assert json.loads(problem("PERMISSION_DENIED", "no"))["error"]["errorCode"] == 4


def test_every_code_has_its_type() -> None:
    assert error_type(NUMBERS["TABLE_NOT_FOUND"]) == "USER_ERROR"
    assert error_type(NUMBERS["GENERIC_INTERNAL_ERROR"]) == "INTERNAL_ERROR"
    assert error_type(NUMBERS["QUERY_QUEUE_FULL"]) == "INSUFFICIENT_RESOURCES"
    assert error_type(0x1000000) == "EXTERNAL"
