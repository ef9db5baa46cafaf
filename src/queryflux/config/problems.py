"""What is wrong with a configuration, all of it at once, each with its place."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from queryflux.model.errors import ConfigError, QueryFluxError

MAX_COMPARED = 200
"""Names that a misspelt one is compared with; among more only another way of writing the same is found."""

Path = tuple[str | int, ...]
"""Keys and list positions from the root to a place in the configuration."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend, or, among warnings, to know. ``line`` and ``column`` count from 1; 0 is unknown.

    No text in it ever shows the value of a secret or of an environment variable.
    """

    line: int
    column: int
    path: str
    message: str
    hint: str = ""


class ConfigProblems(ConfigError):
    """The configuration cannot be used. ``problems`` is never empty and in the order of the file."""

    def __init__(
        self, problems: Sequence[Problem], warnings: Sequence[Problem] = (), file: object = None
    ) -> None:
        """``warnings`` are what else was seen on the way; ``file`` begins each line of the message."""
        before = f"{file}: " if file is not None else ""
        super().__init__("\n".join(before + render_problems([problem]) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)


def in_short(error: QueryFluxError) -> str:
    """A failure on one line, with the first of many problems."""
    if isinstance(error, ConfigProblems):
        first, *more = error.problems
        text = f"{first.path}: {first.message}" if first.path else first.message
        return f"{text} (and {len(more)} more problems)" if more else text
    return error.message


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """By line and column, those of unknown place last, none twice."""
    return sorted(dict.fromkeys(problems), key=lambda item: (item.line == 0, item.line, item.column))


def render_path(path: Path) -> str:
    """``clusters.east.auth`` or ``routers[2].rules``; a key with odd characters is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part and all(char.isalnum() or char in "_-:" for char in part)
            text += ("." if text else "") + (part if plain else show(part))
    return text


def show(value: str, limit: int = 60) -> str:
    """A value in quotes, cut when it is long."""
    cut = value if len(value) <= limit else value[: limit - 3] + "..."
    return '"' + "".join(char if char.isprintable() else "?" for char in cut) + '"'


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that ``word`` most likely stands for; empty when none comes near."""
    words = list(known)
    by_folded = {_folded(candidate): candidate for candidate in words}
    if (same := by_folded.get(_folded(word))) is not None:
        return same
    if len(words) > MAX_COMPARED:
        return ""
    close = get_close_matches(_folded(word), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else ""


def one_of(word: str, known: Collection[str], what: str = "known") -> str:
    """A hint: the nearest known word, else what there is."""
    if guess := nearest(word, known):
        return f"did you mean {guess}?"
    if not known:
        return ""
    return f"{what}: " + ", ".join(list(known)[:12]) + (", ..." if len(known) > 12 else "")


def _folded(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()


def render_problems(problems: Sequence[Problem]) -> str:
    """One problem a line, for people."""
    return "\n".join(_render(problem) for problem in problems)


def _render(problem: Problem) -> str:
    place = f"line {problem.line}, column {problem.column}: " if problem.line else ""
    path = f"{problem.path}: " if problem.path else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{place}{path}{problem.message}{hint}"


def problems_json(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """For programs: a list of objects with line, column, path, message and hint."""
    return [
        {
            "line": problem.line,
            "column": problem.column,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
