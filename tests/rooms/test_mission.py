"""docs/mission.md names every statement once, and only tests and sections that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CAPACITY = [*(f"CT-{number:02}" for number in range(1, 28)), "CT-FW1"]
WORKERS = [*(f"WM-{number:02}" for number in range(1, 100)), *(f"WM-FW{number}" for number in range(1, 7))]
LATER = {"CT-FW1", "WM-83", "WM-89", "WM-90", "WM-91", "WM-FW2", "WM-FW3", "WM-FW5", "WM-FW6"}
"""Statements about what comes later: Studio, the result cache, future work."""
PARTLY = {"WM-07", "WM-FW1"}
"""Those of which a part does: Studio, forwarding between hosts."""
ROW = re.compile(r"^\| ([A-Z]{2}-\w+) \| (.+?) \| (.+) \|$", re.M)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SECTION = re.compile(r"\]\(([\w-]+\.md)#([\w-]+)\)")

ROWS: list[tuple[str, str, str]] = ROW.findall((DOCS / "mission.md").read_text(encoding="utf-8"))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests that a file defines, in classes too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


@cache
def sections_of(page: Path) -> frozenset[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


def test_every_statement_is_there_once_and_in_order() -> None:
    assert [number for number, _, _ in ROWS] == [*CAPACITY, *WORKERS]


@pytest.mark.parametrize(("number", "words", "shown"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_named_exists(number: str, words: str, shown: str) -> None:
    tests, sections = TEST.findall(shown), SECTION.findall(shown)
    assert words
    assert (number in LATER) == shown.startswith("later")
    assert (number in LATER | PARTLY) == ("later" in _without_tests(shown))
    assert tests or sections or number in LATER
    for path, name in tests:
        assert (ROOT / path).is_file(), path
        assert name in names_in(ROOT / path), f"{path} has no {name}"
    for page, anchor in sections:
        assert anchor in sections_of(DOCS / page), f"{page} has no section {anchor}"
    said = re.sub(r"later(, (with|between) [\w ]+)?\Z", "", _without_tests(shown))
    assert re.sub(r"<br>|[ ,]", "", said) == "", f"{said!r} is neither test nor section"


def _without_tests(shown: str) -> str:
    """A cell without the tests and sections that it names."""
    return TEST.sub("", re.sub(r"\[[^\]]*\]" + SECTION.pattern[2:], "", shown))


def test_what_the_page_says_is_measured_has_figures() -> None:
    page = (DOCS / "capacity.md").read_text(encoding="utf-8")
    costs = page.partition("## What an admission costs")[2].partition("\n## ")[0]
    for line in ("groups", "one call for each", "BEGIN, lock, count and insert, COMMIT"):
        [cells] = re.findall(rf"^\| {line} \|(.*)\|$", costs, re.M)
        assert all(re.match(r" [\d,]+", cell) for cell in cells.split("|")), line
