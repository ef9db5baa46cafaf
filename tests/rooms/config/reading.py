"""Small configurations, and what is said about them."""

import textwrap
from collections.abc import Mapping

from queryflux.config.loader import Loaded, load_bytes
from queryflux.config.problems import ConfigProblems, Problem


def load(text: str, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a text, indented as its test is, without this process's environment."""
    return load_bytes(textwrap.dedent(text).encode(), environ or {})


def problems(text: str | bytes, environ: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    """What is wrong with a text; nothing when it loads."""
    data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
    try:
        load_bytes(data, environ or {})
    except ConfigProblems as error:
        return error.problems
    return ()


def only(text: str | bytes, environ: Mapping[str, str] | None = None) -> Problem:
    """The one thing that is wrong."""
    found = problems(text, environ)
    assert len(found) == 1, found
    return found[0]


def paths(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Where something is wrong, in the order of the file."""
    return [problem.path for problem in problems(text, environ)]


def told(text: str, environ: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    """The warnings of a text that loads, but for that of doors that are open to all: a fragment says neither
    where they listen nor who may come."""
    return tuple(it for it in load(text, environ).warnings if not it.message.startswith(OPEN))


def warnings(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Paths of the warnings, as ``told`` gives them, but for that of a fragment without groups."""
    return [it.path for it in told(text, environ) if it.path != "clusterGroups"]


OPEN = "no authentication, and reachable from the network: "


SOUND = """
clusters:
  duck: { engine: duckDb }
clusterGroups:
  pool: { members: [duck] }
routingFallback: pool
"""
