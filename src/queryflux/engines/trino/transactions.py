"""BEGIN, COMMIT and ROLLBACK, as Trino spells them."""

import re
from dataclasses import dataclass

TRANSACTION_ID = "X-Trino-Transaction-Id"
STARTED = "x-trino-started-transaction-id"
NO_TRANSACTION = "NONE"

_SKIP = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_LEVEL = r"(?:serializable|repeatable\s+read|read\s+committed|read\s+uncommitted)"
_CONTROL = re.compile(
    _SKIP
    + r"(?:(?P<begin>begin|start(?=\s+transaction\b))|(?P<commit>commit|end)|(?P<rollback>rollback|abort))"
    + r"(?:\s+(?:work|transaction))?"
    + rf"(?P<modes>(?:\s*,?\s*(?:isolation\s+level\s+{_LEVEL}|read\s+only|read\s+write"
    + r"|(?:not\s+)?deferrable))*)\s*;?\s*$",
    re.I | re.S,
)
_MODE = re.compile(rf"isolation\s+level\s+{_LEVEL}|read\s+only|read\s+write", re.I)


@dataclass(frozen=True, slots=True)
class Control:
    """``tag`` is BEGIN, COMMIT or ROLLBACK."""

    tag: str
    sql: str


ROLLBACK = Control("ROLLBACK", "ROLLBACK")


def control(sql: str) -> Control | None:
    """The transaction control statement that a text is, if it is one."""
    match = _CONTROL.match(sql)
    if match is None:
        return None
    if match["begin"]:
        modes = ", ".join(" ".join(mode.split()).upper() for mode in _MODE.findall(match["modes"]))
        return Control("BEGIN", f"START TRANSACTION {modes}".rstrip())
    tag = "COMMIT" if match["commit"] else "ROLLBACK"
    return Control(tag, tag)
