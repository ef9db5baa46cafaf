"""The revision: the same for the same content, wherever and however it was written."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from queryflux.config.loader import load_bytes
from queryflux.config.snapshot import Snapshot, canonical_json, revision_of, revision_of_json
from tests.rooms.config.reading import SOUND, load

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "trino-and-postgres.yaml"
PROGRAM = """
import sys
from queryflux.config.loader import load_bytes
from queryflux.config.snapshot import revision_of
loaded = load_bytes(sys.stdin.buffer.read(), {"TRINO_PASSWORD": "a", "PG_PASSWORD": "b"})
print(revision_of(loaded.snapshot))
"""


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same data with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


def test_it_is_equal_across_processes_hash_seeds_and_key_orders() -> None:
    data = yaml.safe_load(EXAMPLE.read_text())
    seen = set()
    for seed in ("0", "1", "4242"):
        text = yaml.safe_dump(shuffled(data, random.Random(seed)), sort_keys=False)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=text.encode(),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        seen.add(done.stdout.decode().strip())
    here = load_bytes(EXAMPLE.read_bytes(), {"TRINO_PASSWORD": "a", "PG_PASSWORD": "b"})
    assert seen == {revision_of(here.snapshot)}


def test_it_is_sixteen_hex_digits_that_do_not_change() -> None:
    empty = {"schemaVersion": 1, "credentials": "embedded"}
    assert revision_of(Snapshot()) == revision_of_json(empty) == "40ebf086b2209746"


def test_defaults_do_not_count_whether_written_or_not() -> None:
    spelled = (
        SOUND.replace("{ engine: duckDb }", "{ engine: duckDb, enabled: true, queryAuth: {} }")
        + """
routers: []
translation: { mode: bestEffort, schemaResolutionTimeoutMs: 1500 }
auth: { provider: none, staticUsers: { users: {} } }
catalogProvider: { type: "null" }
"""
    )
    assert revision_of(load(spelled).snapshot) == revision_of(load(SOUND).snapshot)


@pytest.mark.parametrize(
    "change",
    [
        ("engine: duckDb", "engine: duckDb, threads: 2"),
        ("members: [duck]", "members: [duck], queryTimeoutSecs: 1"),
        ("members: [duck]", "members: [duck], strategy: { type: failover }"),
        ("members: [duck]", "members: [duck], enabled: false"),
        ("members: [duck]", "members: [duck], maxRunningQueries: 0"),
        ("Fallback: pool", "Fallback: pool\nrouters: [{ type: protocolBased, mcp: pool }]"),
        ("Fallback: pool", "Fallback: pool\nrouters: [{ type: protocolBased }]"),
    ],
)
def test_what_travels_counts(change: tuple[str, str]) -> None:
    assert revision_of(load(SOUND.replace(*change)).snapshot) != revision_of(load(SOUND).snapshot)


def test_what_belongs_to_one_process_does_not_count() -> None:
    local = SOUND + "queryflux: { frontends: { mysqlWire: { port: 3306 } }, logging: { level: debug } }\n"
    assert revision_of(load(local).snapshot) == revision_of(load(SOUND).snapshot)


def test_a_number_counts_by_its_value() -> None:
    one, other = (SOUND.replace("[duck]", f"[duck], queryTimeoutSecs: {n}") for n in ("30", "30.0"))
    assert revision_of(load(one).snapshot) == revision_of(load(other).snapshot)


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": 1.0, "a": {"é": [0.1, -0.0, 1e22, None, True]}}) == (
        '{"a":{"é":[0.1,0,10000000000000000000000,null,true]},"b":1}'.encode()
    )
    assert json.loads(canonical_json({"x": 1.5e-9})) == {"x": 1.5e-9}


def test_unknown_fields_of_a_received_document_count() -> None:
    assert revision_of_json({"routingFallback": "x", "later": 1}) != revision_of_json(
        {"routingFallback": "x"}
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no place"):
        canonical_json({"a": [value]})


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="a key"):
        canonical_json({1: 2})
    with pytest.raises(ValueError, match="surrogates"):
        canonical_json({"a": "\ud800"})
    with pytest.raises(TypeError):
        canonical_json({"a": object()})
