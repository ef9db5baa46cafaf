"""How the PostgreSQL door hands a statement to an engine that speaks the same protocol.

The engine answers with Frames: each frame is bytes, one or more whole server messages as they came, from the
first that belongs to the statement to its last; never ReadyForQuery, which the door writes itself.
ErrorResponse is a frame (and ``Frames.failure``); NoticeResponse and ParameterStatus are relayed where they
stand.

A door that has one plain statement before it, and nothing else, hands the client's own bytes along
(``message`` of a SimpleQuery, or a BoundQuery). An engine that gets the answer in one piece then leaves it as
it came in ``whole``, ReadyForQuery included, and has no frames.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from msgspec import Struct

PLAIN_WORDS = frozenset({"select", "insert", "update", "delete", "values"})
"""First words, as far as their first six letters, of statements that need no second look."""
QUERIES = frozenset({"select", "values"})
"""Those of them that change nothing."""


class SimpleQuery(Struct):
    """One statement of a Query message. ``upload`` gives the client's next CopyData, CopyDone or CopyFail
    message, whole, once the engine has answered CopyInResponse.

    ``message`` is the client's Query message when ``text`` is all of it, but for a last semicolon, and begins
    with one of PLAIN_WORDS. ``whole``: the answer, if it came in one piece and left the session idle.
    """

    text: str
    upload: Callable[[], Awaitable[bytes]] | None = None
    message: bytes | None = None
    whole: bytes | None = None

    told: ClassVar[bytes] = b""

    def say(self, sql: str) -> None:
        """Have this SQL instead of the client's."""
        self.text, self.message = sql, None


@dataclass(slots=True)
class ExtendedQuery:
    """One Execute of a portal. Frames hold neither ParseComplete nor BindComplete, which the door has sent;
    they begin with RowDescription or NoData only when ``describe`` is set.

    A frame that ends with PortalSuspended is followed by another only when more is pulled: the door sets
    ``max_rows`` for it first. With ``sync`` the client's Sync comes next: the engine closes the batch itself.

    ``told``: the RowDescription that the client goes by, when this answer brings none. An engine that has
    other columns by now refuses (0A000, CHANGED_RESULT) before anything is run.
    """

    sql: str
    parameter_oids: tuple[int, ...]
    parameter_formats: tuple[int, ...]
    parameter_values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]
    max_rows: int = 0
    describe: bool = False
    sync: bool = False
    upload: Callable[[], Awaitable[bytes]] | None = None
    told: bytes = b""

    def say(self, sql: str) -> None:
        """Have this SQL instead of the client's."""
        self.sql = sql


class BoundQuery(Struct):
    """Bind of the unnamed portal, Describe of it or not, Execute without a row limit, and Sync, as the client
    sent them: a plain statement (see PLAIN_WORDS), prepared before.

    ``rest`` is what follows the names in Bind, to the end of Sync; ``bound`` is how many bytes of it belong
    to Bind. Frames and ``told`` are as for an ExtendedQuery with ``sync``; ``whole`` is as in SimpleQuery,
    BindComplete included.
    """

    sql: str
    parameter_oids: tuple[int, ...]
    rest: bytes
    bound: int
    describe: bool
    whole: bytes | None = None
    told: bytes = b""

    # What it never has.
    max_rows: ClassVar[int] = 0
    sync: ClassVar[bool] = True
    upload: ClassVar[None] = None

    def say(self, sql: str) -> None:
        """Have this SQL instead of the client's."""
        self.sql = sql


Native = SimpleQuery | ExtendedQuery | BoundQuery
"""A statement to run."""


@dataclass(slots=True)
class DescribeStatement:
    """Describe of a prepared statement. The Shape that comes back carries, in ``native``, the server's own
    ParameterDescription and RowDescription or NoData messages."""

    sql: str
    parameter_oids: tuple[int, ...]

    def say(self, sql: str) -> None:
        """Have this SQL instead of the client's."""
        self.sql = sql
