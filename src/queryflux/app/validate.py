"""``queryflux validate``: every problem of a file at once."""

import json
from collections.abc import Mapping
from pathlib import Path

from queryflux.config.loader import load_file
from queryflux.config.problems import ConfigProblems, problems_json, render_problems
from queryflux.routing.regex import check_regex


def validate_file(path: Path, environ: Mapping[str, str], *, as_json: bool) -> tuple[str, bool]:
    """A report for people or programs, and whether the file can be served."""
    try:
        loaded = load_file(path, environ, check_regex)
    except ConfigProblems as found:
        report = problems_json(found.problems) if as_json else render_problems(found.problems)
        return (json.dumps(report, indent=2) if not isinstance(report, str) else report), False
    if as_json:
        return json.dumps({"valid": True, "problems": [], "warnings": list(loaded.warnings)}, indent=2), True
    lines = [*(f"warning: {warning}" for warning in loaded.warnings), f"{path}: valid"]
    return "\n".join(lines), True
