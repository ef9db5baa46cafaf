"""BEGIN, COMMIT and ROLLBACK as clients of any protocol write them, for engines that have other words."""

import re
from dataclasses import dataclass

# Everything is possessive: a text that is none of these is known as such in linear time.
SKIP = r"(?:\s++|--[^\n]*+(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)*+"
"""White space and comments."""
_LEVEL = r"(?:serializable|repeatable\s+read|read\s+committed|read\s+uncommitted)"
_CONTROL = re.compile(
    SKIP
    + r"(?:(?P<begin>begin|start(?=\s+transaction\b))|(?P<commit>commit|end)|(?P<rollback>rollback|abort))"
    + r"(?:\s++(?:work|transaction))?"
    + rf"(?P<modes>(?:\s*+(?:,\s*+)?(?:isolation\s+level\s+{_LEVEL}|read\s+only|read\s+write"
    + r"|(?:not\s+)?deferrable))*)\s*+(?:;\s*+)?\Z",
    re.I | re.S,
)
_MODE = re.compile(rf"isolation\s+level\s+{_LEVEL}|read\s+only|read\s+write", re.I)


@dataclass(frozen=True, slots=True)
class Spoken:
    """``tag`` is BEGIN, COMMIT or ROLLBACK; ``modes`` are a BEGIN's, in upper case (``READ ONLY``)."""

    tag: str
    modes: tuple[str, ...] = ()


def spoken(sql: str) -> Spoken | None:
    """The transaction control statement that a text is, if it is one."""
    match = _CONTROL.match(sql)
    if match is None:
        return None
    if match["begin"]:
        modes = _MODE.findall(match["modes"])
        return Spoken("BEGIN", tuple(" ".join(mode.split()).upper() for mode in modes))
    return Spoken("COMMIT" if match["commit"] else "ROLLBACK")
