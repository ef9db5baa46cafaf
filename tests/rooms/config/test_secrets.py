"""Secrets show themselves nowhere, and count in the revision all the same."""

import logging

import msgspec
import pytest

from queryflux.config.hooks import decode_hook
from queryflux.config.problems import ConfigProblems, problems_json
from queryflux.config.snapshot import revision_of
from queryflux.model.secret import MASK, Secret
from tests.rooms.config.reading import load

WORD = "hunter2"
TEXT = """
queryflux: { adminApi: { password: hunter2 } }
auth:
  provider: static
  allowPlaintextCredentials: true
  staticUsers: { users: { ada: { password: hunter2 } } }
clusters:
  lake: { engine: trino, endpoint: "http://t:1", auth: { type: bearer, token: hunter2 } }
"""


def test_no_way_of_looking_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    loaded = load(TEXT)
    logging.getLogger("test").warning("%s %r %s", loaded, loaded.config, loaded.snapshot)
    shown = [repr(loaded), str(loaded.config), f"{loaded.snapshot}", caplog.text]
    assert all(WORD not in text and MASK in text for text in shown)


def test_an_encoder_fails_rather_than_show() -> None:
    with pytest.raises(TypeError):
        msgspec.json.encode(load(TEXT).config)


def test_the_hook_knows_secrets_only() -> None:
    assert decode_hook(Secret, "x") == Secret("x")
    for kind, value in ((Secret, 3), (Secret, None), (int, "x")):
        with pytest.raises(TypeError):
            decode_hook(kind, value)


def test_no_problem_shows_a_secret() -> None:
    text = """
queryflux:
  adminApi: { password: hunter2, passwordFile: x }
  persistence: { type: postgres, url: "postgres://u:hunter2@h/d", password: hunter2 }
auth:
  staticUsers: { users: { ada: { password: hunter2, password_file: y }, bob: { password: [hunter2] } } }
clusters:
  a: { engine: trino, endpoint: "http://u:hunter2@t:1", auth: { type: basic, token: hunter2 } }
  b: { engine: adbc, uri: "x://hunter2", dbKwargs: { password: hunter2, more: { deep: hunter2 } } }
  c: { engine: postgres, endpoint: "postgres://u:hunter2@h/d" }
  d: { engine: postgres, endpoint: "u:hunter2@h:5432" }
guardrails: { global: [{ kind: http_webhook, url: "http://x", headers: { Authorization: hunter2 } }] }
"""
    with pytest.raises(ConfigProblems) as caught:
        load(text)
    assert len(caught.value.problems) > 8
    assert WORD not in f"{caught.value} {caught.value.problems} {problems_json(caught.value.warnings)}"


def test_a_changed_secret_is_a_changed_revision() -> None:
    one, other = load(TEXT), load(TEXT.replace("token: hunter2", "token: hunter3"))
    assert revision_of(one.snapshot) != revision_of(other.snapshot)
    assert revision_of(one.snapshot) == revision_of(
        load(TEXT.replace("token: hunter2", "token: 'hunter2'")).snapshot
    )
