"""What docs/worker-mode.md says a failure looks like is what the product says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "worker-mode.md").read_text(encoding="utf-8")
GAP = "\N{HORIZONTAL ELLIPSIS}"
SECTION = PAGE.partition("\n## When something is wrong\n")[2].partition("\n## ")[0]
ROWS = [row for row in SECTION.splitlines() if row.startswith("| ")][1:]
PLACES = {
    "/readyz", "/worker/status", "failures", "sync", "state", "coordination", "unavailable", "failClosed",
    "peer, stale", "offline", "offline 4 min", "503", "mode: local", "localLimits", "refused: clusters....",
    "queryflux status", "store  postgres, cannot be reached", "it answers 504 Gateway Timeout",
    'queryflux_config_reload_failures_total{stage="worker_activate"}', "queryflux_worker_config_stale",
}  # fmt: skip
"""What is named in the table and is no message, or is put together from a message and somebody else's."""


@cache
def said() -> list[str]:
    """Every text in the source, with a gap where a value is put in."""
    texts = []
    for path in (ROOT / "src" / "queryflux").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
                texts.append("".join(str(part) for part in parts))
    return [re.sub(r"%(?:\.\d+)?[sdgf]", GAP, text) for text in texts]


def phrases() -> list[str]:
    looks = [re.split(r"(?<!\\) \| ", row)[0] for row in ROWS]
    found = [phrase for cell in looks for phrase in re.findall(r"`([^`]+)`", cell)]
    return list(dict.fromkeys(phrase for phrase in found if phrase not in PLACES))


def test_there_are_failures() -> None:
    assert len(ROWS) > 15
    assert len(phrases()) > 30


@pytest.mark.parametrize("phrase", phrases())
def test_the_product_says_so(phrase: str) -> None:
    for piece in re.split(r"\.\.\.|: Connection refused", phrase):
        assert any(piece.strip(" :,") in text for text in said()), f"nothing says {piece!r}"
