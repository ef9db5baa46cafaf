"""Bytes that are no configuration: each gets a sentence with its line, and nothing is built of them."""

import pytest

from queryflux.config import document
from queryflux.config.document import Mapping, Scalar, parse
from queryflux.config.problems import ConfigProblems
from tests.rooms.config.reading import load, only, problems

BROKEN: list[tuple[bytes, int, int, str]] = [
    (b"a: \xff", 1, 4, "not UTF-8"),
    (b"a: 1\nb: \xc3\x28", 2, 4, "not UTF-8"),
    ("a: 1".encode("utf-16"), 1, 1, "not UTF-8"),
    (b"a: 1\nb: \x00", 2, 4, "U+0000"),
    (b"a:\n\tb: 1\n", 2, 1, "not YAML"),
    (b"a: [1, 2", 2, 1, "not YAML"),
    (b"a: b: c", 1, 5, "not YAML"),
    (b"- 1", 1, 1, "not a list"),
    (b"just words", 1, 1, "not a single value"),
    (b"a: 1\n---\nb: 2\n", 2, 1, "second document"),
    (b"a: !!python/object:os.system x", 1, 4, "no meaning"),
    (b"? [1, 2]\n: x", 1, 3, "a key is a single word"),
    (b"a: *gone", 1, 4, "not defined"),
    (b"a: &x [*x]", 1, 8, "contains itself"),
    (b"a: {<<: 3}", 1, 5, "takes a mapping"),
]


@pytest.mark.parametrize(("data", "line", "column", "words"), BROKEN, ids=[row[3] for row in BROKEN])
def test_what_is_no_yaml_is_told_with_its_place(data: bytes, line: int, column: int, words: str) -> None:
    problem = only(data)
    assert words in problem.message
    assert (problem.line, problem.column) == (line, column)


def test_a_tab_is_called_a_tab() -> None:
    assert "tabs" in only(b"queryflux:\n\trole: standalone\n").hint


def test_a_byte_order_mark_is_let_through() -> None:
    assert not problems(b"\xef\xbb\xbfqueryflux: {}\n")


def test_nothing_is_an_empty_configuration() -> None:
    for text in ("", "# only a comment\n", "---\n", "~"):
        assert load(text).config.queryflux.frontends.trino_http.port == 8080


def test_ten_megabytes_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("yaml.parse", never)
    assert "larger than 10 MiB" in only(b"a: " + b"x" * (10 * 1024 * 1024)).message


def test_a_bomb_of_aliases_is_refused_while_it_is_small() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    problem = only("\n".join(lines))
    assert "too many" in problem.message
    assert "aliases" in problem.hint


def test_a_bomb_of_merges_is_refused_too() -> None:
    lines = ["a0: &a0 {k0: x, l0: x}"]
    lines += [f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: *a{n - 1}, l{n}: *a{n - 1}}}" for n in range(1, 60)]
    (problem,) = problems("\n".join(lines))
    assert "too many" in problem.message or "too deep" in problem.message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_depth_is_limited(opening: str) -> None:
    assert "too deep" in only(f"a: {opening * 5000}" if opening != "- " else opening * 5000).message


def test_depth_counts_what_an_alias_stands_for() -> None:
    deep = "[" * 40 + "]" * 40
    assert "too deep" in only(f"a: &a {deep}\nb: {'[' * 40}*a{']' * 40}").message


def test_many_values_are_refused() -> None:
    assert "too many" in only("a: [" + "x," * (document.MAX_NODES + 1) + "]").message


def test_every_key_that_is_set_twice_is_told_with_the_rest() -> None:
    found = problems("""\
        queryflux:
          role: standalone
          role: standalone
        clusters:
          a: {engine: duckDb}
          a: {engine: duckDb}
        unknown: 1
        """)
    assert [(item.line, item.path) for item in found] == [
        (3, "queryflux.role"),
        (6, "clusters.a"),
        (7, "unknown"),
    ]
    assert "line 2" in found[0].message


def test_merged_keys_yield_to_those_that_are_written() -> None:
    loaded = load("""\
        clusters:
          a: &a {engine: duckDb, threads: 2, memoryLimit: 1GB}
          b: {<<: *a, threads: 3}
          c: {threads: 4, <<: [*a]}
        """)
    clusters = loaded.config.clusters
    assert [clusters[name].threads for name in "abc"] == [2, 3, 4]
    assert clusters["c"].memory_limit == "1GB"


def test_a_scalar_knows_whether_it_was_quoted() -> None:
    tree, doubles = parse(b"a: ~\nb: '~'\nc:\nd: |\n  ~\n")
    assert not doubles
    assert isinstance(tree, Mapping)
    nulls = {
        key: entry.value.is_null for key, entry in tree.entries.items() if isinstance(entry.value, Scalar)
    }
    assert nulls == {"a": True, "b": False, "c": True, "d": False}


def test_parse_raises_config_problems() -> None:
    with pytest.raises(ConfigProblems, match="not YAML"):
        parse(b"[")
