"""How the PostgreSQL door hands a statement to an engine that speaks the same protocol.

The engine answers with Frames: each frame is bytes, one or more whole server messages as they came, from the
first that belongs to the statement to its last; never ReadyForQuery, which the door writes itself.
ErrorResponse is a frame (and ``Frames.failure``); NoticeResponse and ParameterStatus are relayed where they
stand.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(slots=True)
class SimpleQuery:
    """One statement of a Query message. ``upload`` gives the client's next CopyData, CopyDone or CopyFail
    message, whole, once the engine has answered CopyInResponse."""

    text: str
    upload: Callable[[], Awaitable[bytes]] | None = None


@dataclass(slots=True)
class ExtendedQuery:
    """One Execute of a portal. Frames hold neither ParseComplete nor BindComplete, which the door has sent;
    they begin with RowDescription or NoData only when ``describe`` is set.

    A frame that ends with PortalSuspended is followed by another only when more is pulled: the door sets
    ``max_rows`` for it first. With ``sync`` the client's Sync comes next: the engine closes the batch itself.
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


@dataclass(frozen=True, slots=True)
class DescribeStatement:
    """Describe of a prepared statement. The Shape that comes back carries, in ``native``, the server's own
    ParameterDescription and RowDescription or NoData messages."""

    sql: str
    parameter_oids: tuple[int, ...]
