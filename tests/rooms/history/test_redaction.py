"""What redacted records say: nothing that a client may have meant as a value."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.history.record import KEPT_LENGTH
from queryflux.history.redaction import (
    LOOKED_AT,
    Redaction,
    in_turns,
    mask_message,
    redacted,
    stricter,
    strictest,
    told,
)
from queryflux.history.stored import StoredQuery
from tests.kit.records import record, stored

NONE, MASK, METADATA = Redaction


def full(**fields: Any) -> StoredQuery:
    given_fields: dict[str, Any] = {
        "sql_text": "SELECT a FROM t WHERE b = 'secret' -- secret",
        "digest_text": "select a from t where b = ?",
        "query_hash": 1,
        "query_parameterized_hash": 2,
        "source_dialect": "Trino",
        "target_dialect": "DuckDb",
        "translated_sql": "SELECT a FROM t WHERE b = 'secret'",
        "translated_digest_text": "select a from t where b = ?",
        "translated_query_hash": 3,
        "error_code": "ENGINE_ERROR",
        "error_message": "Conversion Error: Could not convert string 'secret' to INT32",
        "translation_status": "fallback",
        "translation_reason": "no_schema",
        "translation_message": "near 'secret'",
        "translation_position": 9,
        "routing_trace": {
            "routers": [{"type": "header", "matched": True, "detail": "x-team: secret", "result": "bi7"}],
            "final_group": "bi7",
        },
        "query_tags": {"team": "blue", "flag": None, "id": "user 'secret'"},
        **fields,
    }
    return stored(1, **given_fields)


def mask(text: str, dialect: str) -> str | None:
    assert dialect in {"Trino", "DuckDb", "MySql"}
    return None if text.count("'") % 2 else text.replace("'secret'", "?")


def test_without_a_policy_a_record_stays_as_it_is() -> None:
    assert redacted(full(), NONE, mask) is not None
    assert redacted(full(), NONE, mask) == full()


def test_literals_are_masked_wherever_they_may_stand() -> None:
    seen = redacted(full(), MASK, mask)
    assert "secret" not in msgspec.json.encode(seen).decode()
    assert seen.sql_text == "select a from t where b = ?"
    assert seen.sql_preview == "select a from t where b = ?"
    assert seen.translated_sql == "SELECT a FROM t WHERE b = ?"
    assert (seen.query_hash, seen.query_parameterized_hash, seen.translated_query_hash) == (None, 2, 3)
    assert seen.error_code == "ENGINE_ERROR"
    assert seen.error_message == "Conversion Error: Could not convert string ? to ?"
    assert (seen.translation_status, seen.translation_message) == ("fallback", "near ?")
    assert seen.routing_trace == {
        "routers": [{"type": "header", "matched": True, "detail": "x-team: ?", "result": "bi7"}],
        "final_group": "bi7",
    }
    assert seen.query_tags == {"team": "blue", "flag": None, "id": "user ?"}


def test_words_of_a_value_are_gone_from_what_an_engine_says_of_it() -> None:
    text = "DO $$ BEGIN RAISE EXCEPTION 'secret'; END $$"
    failed = full(sql_text=text, digest_text="do ?", translated_sql=None)
    failed = msgspec.structs.replace(failed, error_message="Exception of t: Secret begin of t")

    def hide(sql: str, dialect: str) -> str | None:
        return "DO ?"

    assert redacted(failed, MASK, hide).error_message == "? of t: ?"
    failed = msgspec.structs.replace(failed, error_message="Secret begins in t, with raise")
    assert redacted(failed, MASK, hide).error_message == "? begins in t, with ?"
    assert told(failed, MASK, hide) == "? begins in t, with ?"
    assert (told(failed, NONE, hide), told(failed, METADATA, hide)) == (failed.error_message, None)
    long = msgspec.structs.replace(failed, sql_text="x" * (LOOKED_AT + 1))
    assert (told(long, MASK, hide), told(long, NONE, hide)) == ("?", failed.error_message)
    again = redacted(redacted(failed, MASK, hide), MASK, hide)
    assert again.error_message == "? begins in t, with ?"


def test_metadata_keeps_no_sql_no_error_text_and_no_trace() -> None:
    seen = redacted(full(), METADATA, mask)
    gone = {
        "sql_text", "translated_sql", "digest_text", "translated_digest_text", "query_hash",
        "query_parameterized_hash", "translated_query_hash", "error_message", "translation_message",
        "routing_trace",
    }  # fmt: skip
    for name in StoredQuery.__struct_fields__:
        before, after = getattr(full(), name), getattr(seen, name)
        if name in gone:
            assert after is None, name
        elif name != "query_tags":
            assert after == before, name
    assert seen.query_tags == {"team": "blue", "flag": None, "id": "user ?"}
    assert seen.sql_preview == ""


def test_sql_that_cannot_be_cut_into_tokens_is_dropped() -> None:
    seen = redacted(full(sql_text="it's secret", digest_text=None, translated_sql="it's secret"), MASK, mask)
    assert (seen.sql_text, seen.translated_sql, seen.translated_digest_text) == (None, None, None)
    assert seen.translated_query_hash is None
    assert "secret" not in msgspec.json.encode(seen).decode()


@pytest.mark.parametrize("end", ["", "'"])
def test_a_text_that_was_cut_is_dropped_when_a_quote_in_it_is_open(end: str) -> None:
    text = "it's secret ".ljust(KEPT_LENGTH - 1) + (end or " ")
    seen = redacted(full(sql_text=text, digest_text="it s secret"), MASK, mask)
    kept = "it s secret" if end else None
    assert (seen.sql_text, seen.digest_text) == (kept, kept)
    assert seen.query_parameterized_hash == (2 if end else None)


@pytest.mark.parametrize("first", Redaction)
@pytest.mark.parametrize("second", Redaction)
def test_redacting_again_is_as_strict_as_the_strictest(first: Redaction, second: Redaction) -> None:
    twice = redacted(redacted(full(), first, mask), second, mask)
    assert twice == redacted(full(), strictest(first, second), mask)
    assert stricter(second, first) == (strictest(first, second) is not first)


MESSAGES = {
    "invalid input syntax for type integer: \"abc\"": "invalid input syntax for type integer: ?",
    "duplicate key value violates unique constraint \"t_pkey\"":
        "duplicate key value violates unique constraint ?",
    "Key (id, name)=(7, bob) already exists.": "Key (?) already exists.",
    "Failing row contains (1, bob, (a)).": "Failing row contains (?).",
    "column \"a\" of relation \"b\" does not exist": "column ? does not exist",
    "can't cast 'secret' to int": "can?",
    "value 'secret": "value ?",
    "bad (secret": "bad (?)",
    "Value cannot be cast to date: hello": "Value cannot be cast to date: ?",
    "line 1:8: Column 'x' cannot be resolved": "line ?: Column ? cannot be resolved",
    "line 1:8: Value cannot be cast to date: hello": "line ?: Value cannot be cast to date: ?",
    "Query failed (#2026_x): Division by zero": "Query failed (?): Division by zero",
    "Parser Error: syntax error at or near \"x\"\n\nLINE 1: ...ret' AND b = 'c\n     ^":
        "Parser Error: syntax error at or near ?",
    "smallint out of range 70000 for a@b1.com": "smallint out of range ? for ?",
    "the query was cancelled": "the query was cancelled",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_errors_lose_what_may_be_a_value(message: str) -> None:
    assert mask_message(message) == MESSAGES[message]
    failed = full(sql_text=None, error_message=message)
    assert told(failed, MASK, mask) == MESSAGES[message]
    assert told(failed, NONE, mask) == message
    assert told(failed, METADATA, mask) is None
    assert told(full(error_message=None), MASK, mask) is None


SOME = st.text("abZ '\"`(){}:=.\n\\\t79-LINE«", max_size=60)


@given(SOME, SOME, st.sampled_from(["'{}'", '"{}"', "`{}`", "({})", "a: {}", "Key (k)=({})", "LINE 1: {}"]))
def test_whatever_surrounds_it_a_quoted_value_is_gone(before: str, after: str, form: str) -> None:
    before = before.replace(": ", " ")  # what stands there may be the kind of an error
    masked = mask_message(f"{before} {form.format('secret')} {after}")
    assert "secret" not in masked
    assert "secret" not in mask_message(masked)


LONG = 1_000_000


@pytest.mark.parametrize("piece", ["a", " ", "1", "'", "(", ")", ": ", "a: ", "LINE ", "error", "."])
def test_a_long_message_takes_no_time(piece: str) -> None:
    began = time.process_time()
    mask_message(piece * (LONG // len(piece)))
    mask_message("x " + piece * (LONG // len(piece)) + "x")
    assert time.process_time() - began < 3, "a second would be slow; more is not linear"


async def test_a_record_that_cannot_be_redacted_is_left_out() -> None:
    def change(one: object) -> StoredQuery:
        if one == good:
            return stored(1)
        raise ValueError("no stored form")

    good = record(1)
    assert await in_turns([record(2), good], change) == [stored(1)]
