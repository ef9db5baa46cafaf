"""The documents agree with the code: links lead somewhere, commands exist, metrics and rooms are listed."""

import json
import re
from pathlib import Path

import pytest

from queryflux.cli import COMMANDS, parser
from queryflux.config.loader import load_bytes
from queryflux.telemetry.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"\bqueryflux ([a-z][a-z-]+)((?: +--?[a-z-]+)*)")
CAPS = ("cap10", "cap100")
TARGET = re.compile(r"\bmake ([a-z]+)\b")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(page: Path) -> str:
    """What stands in code spans and blocks."""
    text = text_of(page)
    return "\n".join([*re.findall(r"```.*?```", text, re.S), *re.findall(r"`[^`\n]+`", text)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(text_of(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    known = {action.dest: action for action in parser()._actions}["command"].choices
    assert isinstance(known, dict)
    for command, flags in COMMAND.findall(code_of(page)):
        assert command in COMMANDS, f"{page.name} names queryflux {command}"
        for flag in flags.split():
            assert flag in known[command]._option_string_actions, f"{page.name}: queryflux {command} {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.M))
    for target in TARGET.findall(code_of(page)):
        assert target in targets, f"{page.name} names make {target}"


def test_lines_stay_readable() -> None:
    for page in PAGES:
        inside = False
        for number, line in enumerate(text_of(page).splitlines(), 1):
            inside ^= line.startswith("```")
            if not inside and not line.startswith(("|", "[")):
                assert len(line) <= 130, f"{page.name}:{number}"


def test_every_metric_is_documented() -> None:
    page = text_of(ROOT / "docs" / "operations.md")
    for metric in CATALOGUE:
        assert f"`{metric.name}`" in page, f"docs/operations.md does not list {metric.name}"


def test_every_documented_metric_is_one() -> None:
    rows = re.findall(r"^\| (`queryflux_[^|]*) \|", text_of(ROOT / "docs" / "operations.md"), re.M)
    named = {name for row in rows for name in re.findall(r"`(queryflux_\w+)`", row)}
    assert named == {metric.name for metric in CATALOGUE}


def test_what_an_admission_costs_is_what_was_measured() -> None:
    run = json.loads(text_of(ROOT / "bench" / "results" / "P7.json"))
    figures, ratio = run["figures"], run["ratio"]
    cells = {
        "groups": [
            f"{figures[f'groups_{cap}_per_s']:,.0f} a second, "
            f"wait p99 {figures[f'groups_{cap}_wait_p99_ms']:.1f} ms"
            for cap in CAPS
        ],
        "one call for each": [f"{figures[f'one_call_{cap}_per_s']:,.0f}" for cap in CAPS],
        "BEGIN, lock, count and insert, COMMIT": [
            f"{figures[f'four_round_trips_{cap}_per_s']:,.0f}" for cap in CAPS
        ],
        "groups, beside one call for each": [f"{ratio[f'groups/one_call_{cap}']:.1f} times" for cap in CAPS],
    }
    page = text_of(ROOT / "docs" / "capacity.md")
    for name, values in cells.items():
        assert f"| {name} | {' | '.join(values)} |\n" in page, f"{name}: another run's figures"
    lone = f"{figures['lone_p50_ms']:.2f} ms (median; p99 {figures['lone_p99_ms']:.2f} ms)"
    assert f"A lone admission takes {lone}." in page


def test_the_map_names_every_room() -> None:
    rooms = {
        path.name for path in (ROOT / "src" / "queryflux").iterdir() if path.is_dir() and path.name[0] != "_"
    }
    page = text_of(ROOT / "docs" / "map.md")
    assert {room for room in rooms if f"`{room}/`" not in page} == set()


def test_the_configuration_of_the_readme_is_one() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", text_of(ROOT / "README.md"), re.S)
    names = re.findall(r"export ((?:\w+=\S+ *)+)", text_of(ROOT / "README.md"))
    environ = dict.fromkeys(re.findall(r"(\w+)=", " ".join(names)), "sesame")
    assert not load_bytes(block.encode(), environ).warnings
    for example in (ROOT / "examples").glob("trino-*.yaml"):
        assert not load_bytes(example.read_bytes(), environ).warnings


def test_the_rule_of_the_readme_leaves_questions_about_a_table_where_the_rest_of_them_goes() -> None:
    """psql asks for a table by its name, then for its columns by its number alone."""
    (pattern,) = re.findall(r"regex: '(.*?)'", text_of(ROOT / "README.md"))
    named = r"SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$'"
    assert not re.search(pattern, named)
    for sql in (
        "select * from orders",
        "SELECT 1 FROM a\nJOIN public.orders o ON x",
        "INSERT INTO orders VALUES (1)",
    ):
        assert re.search(pattern, sql)
