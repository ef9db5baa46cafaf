"""The life of a relayed statement, as a table; ``relay.py`` is its only writer."""

from enum import Enum, auto

from queryflux.wire.postgres.constants import Back


class Phase(Enum):
    """Where a relayed statement stands."""

    RUNNING = auto()
    UPLOADING = auto()
    """The server waits for COPY data."""
    SUSPENDED = auto()
    """A portal gave as many rows as it was asked for."""
    RETRYING = auto()
    """The server had lost the prepared statement; it is prepared anew once the server is ready."""
    COMPLETE = auto()
    """CommandComplete or an error came; ReadyForQuery is due unless the batch is still open."""
    OVER = auto()


class Event(Enum):
    """What happens to it."""

    COPY_IN = auto()
    UPLOADED = auto()
    SUSPEND = auto()
    RESUME = auto()
    STALE = auto()
    COMPLETE = auto()
    ERROR = auto()
    READY = auto()
    LEAVE = auto()
    """Nothing more is wanted or can come: the portal is given up, the batch goes on without it, or the
    connection is lost."""


_P, _E = Phase, Event

TABLE: dict[tuple[Phase, Event], Phase] = {
    (_P.RUNNING, _E.COPY_IN): _P.UPLOADING,
    (_P.RUNNING, _E.SUSPEND): _P.SUSPENDED,
    (_P.RUNNING, _E.STALE): _P.RETRYING,
    (_P.RUNNING, _E.COMPLETE): _P.COMPLETE,
    (_P.RUNNING, _E.ERROR): _P.COMPLETE,
    (_P.RUNNING, _E.READY): _P.OVER,
    (_P.UPLOADING, _E.UPLOADED): _P.RUNNING,
    (_P.UPLOADING, _E.ERROR): _P.COMPLETE,
    (_P.SUSPENDED, _E.READY): _P.SUSPENDED,
    (_P.SUSPENDED, _E.RESUME): _P.RUNNING,
    (_P.SUSPENDED, _E.ERROR): _P.COMPLETE,
    (_P.RETRYING, _E.READY): _P.RUNNING,
    (_P.COMPLETE, _E.COPY_IN): _P.UPLOADING,
    (_P.COMPLETE, _E.COMPLETE): _P.COMPLETE,
    (_P.COMPLETE, _E.ERROR): _P.COMPLETE,
    (_P.COMPLETE, _E.READY): _P.OVER,
    **{(phase, _E.LEAVE): _P.OVER for phase in _P},
}
"""COMPLETE may come again: a text of several statements, or an error of the commit at Sync."""

OURS = frozenset((Back.PARSE_COMPLETE, Back.BIND_COMPLETE, Back.CLOSE_COMPLETE))
"""What the server says of our own book-keeping; the client does not hear of it."""
PASSED = frozenset(
    (
        Back.ROW_DESCRIPTION,
        Back.NO_DATA,
        Back.NOTICE,
        Back.PARAMETER_STATUS,
        Back.NOTIFICATION,
        Back.COPY_OUT_RESPONSE,
        Back.COPY_DONE,
    )
)
"""What goes to the client and changes nothing here."""
