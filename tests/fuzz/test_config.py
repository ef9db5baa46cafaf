"""Any bytes are a configuration or a list of problems; nothing else, and never for long."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queryflux.config.loader import load_bytes
from queryflux.config.problems import ConfigProblems, Problem, problems_json, render_problems
from queryflux.config.root import RootConfig
from queryflux.config.snapshot import revision_of

EXAMPLES = [path.read_bytes() for path in sorted(Path(__file__).parents[2].glob("examples/*.yaml"))]
MORE = """<< null adminApi built_in connections dbKwargs engine frontends global groups http_webhook kind
    members name opa password passwordFile port postgresWire rules static staticUsers tls type uri users"""
WORDS = sorted({*MORE.split(), *(field.encode_name for field in msgspec.structs.fields(RootConfig))})


def check(data: bytes) -> None:
    found: tuple[Problem, ...] = ()
    revision = ""
    try:
        revision = revision_of(load_bytes(data, {"SET": "value"}).snapshot)
    except ConfigProblems as error:
        found = error.problems
    assert bool(revision) != bool(found)
    assert len(problems_json(found)) == len(found)
    assert bool(render_problems(found)) == bool(found)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
@example(b"{")
@example(b"a: &a\n  b: *a\n")
@example(b"? ? ?\n")
@example(b"queryflux: ${}")
def test_any_bytes(data: bytes) -> None:
    check(data)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(EXAMPLES), st.data())
def test_an_example_with_a_piece_changed(source: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 40)))
    check(source[:start] + data.draw(st.binary(max_size=12)) + source[end:])


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*WORDS, "${SET}", "${NOT}"])
)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), trees, max_size=5))
def test_any_tree_of_known_words(tree: Any) -> None:
    check(yaml.safe_dump(tree).encode())
