"""``queryflux validate``: every problem of a file at once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from queryflux.auth.hashes import check_password
from queryflux.config.loader import load_file
from queryflux.config.problems import ConfigProblems, Problem, problems_json, render_problems
from queryflux.routing.regex import check_regex
from queryflux.scripts.check import ScriptCheck


def validate_file(path: Path, environ: Mapping[str, str], *, as_json: bool) -> tuple[str, bool]:
    """A report for people or programs, and whether the file can be served. Raises ConfigError when it cannot
    be read at all."""
    problems: Sequence[Problem] = ()
    try:
        warnings = load_file(path, environ, check_regex, check_password, ScriptCheck()).warnings
    except ConfigProblems as found:
        problems, warnings = found.problems, found.warnings
    valid = not problems
    if as_json:
        document = {
            "valid": valid,
            "problems": problems_json(problems),
            "warnings": problems_json(warnings),
        }
        return json.dumps(document, indent=2), valid
    lines = [f"{path}: {render_problems([problem])}" for problem in problems]
    lines += [f"{path}: warning: {render_problems([warning])}" for warning in warnings]
    count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
    lines.append(f"{path}: valid" if valid else f"{path}: {count}")
    return "\n".join(lines), valid
