"""The nouns: secrets do not show themselves, ids name their process, every error has a code of its own."""

import json
import pickle

import pytest

from queryflux.model import errors
from queryflux.model.endings import EndReason
from queryflux.model.ids import QueryIds, new_process_tag, process_tag_of
from queryflux.model.protocol import ClientProtocol
from queryflux.model.secret import Secret


def test_a_secret_shows_itself_nowhere_but_on_request() -> None:
    secret = Secret("hunter2")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", "%s" % secret, repr({"a": [secret]})]  # noqa: UP031
    assert not any("hunter2" in text for text in shown)
    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        json.dumps({"a": secret})


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("ä").matches("ä")
    assert not Secret("")


def test_ids_are_unique_sortable_and_name_their_process() -> None:
    now = [1_800_000_000.0]
    tag = new_process_tag()
    ids = QueryIds(tag, lambda: now[0])
    made = [ids.next() for _ in range(100)]
    now[0] += 1
    made.append(ids.next())
    assert len(set(made)) == 101
    assert made == sorted(made)
    assert made[0] == f"20270115_080000_00001_{tag}"
    assert {process_tag_of(query_id) for query_id in made} == {tag}


@pytest.mark.parametrize("text", ["", "x", "20270115_080000_00001_", "20270115", "a_b"])
def test_what_is_not_our_id_names_no_process(text: str) -> None:
    assert process_tag_of(text) == ""


def leaves(kind: type[errors.QueryFluxError]) -> list[type[errors.QueryFluxError]]:
    below = kind.__subclasses__()
    return [kind] + [leaf for sub in below for leaf in leaves(sub)]


def test_every_error_has_a_code_and_nobody_shares_one_but_with_a_parent() -> None:
    kinds = [kind for kind in leaves(errors.QueryFluxError) if kind.__module__ == errors.__name__]
    own = [kind.code for kind in kinds if "code" in vars(kind)]
    assert len(own) == len(set(own))


def test_every_reason_is_filed_under_a_status() -> None:
    assert all(reason.status is not None for reason in EndReason)


def test_every_protocol_has_a_dialect_and_a_label() -> None:
    assert {protocol: protocol.dialect for protocol in ClientProtocol}[ClientProtocol.MYSQL_WIRE] == "mysql"
    assert ClientProtocol.TRINO_HTTP.label == "TrinoHttp"
