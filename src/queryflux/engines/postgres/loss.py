"""What a client loses with its server connection, and what that means for its next statements.

Statements of a transaction that is gone would run, and commit, one by one; those that count on a SET ROLE or
a temporary table would run without it. So neither goes on by itself on another connection.
"""

import re
from enum import Enum, auto

from queryflux.model.errors import EngineConnectionLost

ENDS_TRANSACTION = re.compile(
    r"\s*(?:commit|end|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b)|abort)\b", re.IGNORECASE
)


class Lost(Enum):
    """What was lost."""

    NOTHING = auto()
    TRANSACTION = auto()
    """Fails until the client ends it."""
    SESSION = auto()
    """Fails until the client connects again."""


def lost_with(*, transaction: bool, pinned: bool) -> Lost:
    """What goes with a connection."""
    if pinned:
        return Lost.SESSION
    return Lost.TRANSACTION if transaction else Lost.NOTHING


def session_lost() -> EngineConnectionLost:
    """The error for a statement that counts on state which is gone."""
    return EngineConnectionLost(
        "The connection to PostgreSQL was lost, and with it what this session had set up"
        " (settings, temporary tables, locks).",
        hint="Connect again.",
    )
