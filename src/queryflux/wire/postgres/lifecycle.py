"""The two lifecycles of a client's connection, as literal tables: start-up, then the session.

Events of the session are the client's own message types, and two of ours. A pair that is not in a table is a
protocol violation, and fatal, as in the server that clients know.
"""

from enum import IntEnum, StrEnum
from typing import Final

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.postgres.constants import Front


class Startup(StrEnum):
    """Where a connection stands before its session."""

    FRESH = "fresh"
    SSL_REFUSED = "sslRefused"
    GSS_REFUSED = "gssRefused"
    CLEAR = "clear"
    ENCRYPTED = "encrypted"
    ENCRYPTED_GSS_REFUSED = "encryptedGssRefused"
    AUTHENTICATING = "authenticating"
    AUTHENTICATED = "authenticated"
    CLOSED = "closed"


class StartupEvent(StrEnum):
    """What can happen there."""

    SSL_ACCEPTED = "sslAccepted"
    SSL_REFUSED = "sslRefused"
    GSS_REFUSED = "gssRefused"
    STARTUP = "startup"
    CANCEL = "cancel"
    CREDENTIAL = "credential"
    VERIFIED = "verified"
    FAILED = "failed"


_BEFORE: Final = {
    StartupEvent.STARTUP: Startup.AUTHENTICATING,
    StartupEvent.CANCEL: Startup.CLOSED,
    StartupEvent.FAILED: Startup.CLOSED,
}

STARTUP: Final[dict[Startup, dict[StartupEvent, Startup]]] = {
    Startup.FRESH: {
        **_BEFORE,
        StartupEvent.SSL_ACCEPTED: Startup.ENCRYPTED,
        StartupEvent.SSL_REFUSED: Startup.SSL_REFUSED,
        StartupEvent.GSS_REFUSED: Startup.GSS_REFUSED,
    },
    Startup.SSL_REFUSED: {**_BEFORE, StartupEvent.GSS_REFUSED: Startup.CLEAR},
    Startup.GSS_REFUSED: {
        **_BEFORE,
        StartupEvent.SSL_ACCEPTED: Startup.ENCRYPTED_GSS_REFUSED,
        StartupEvent.SSL_REFUSED: Startup.CLEAR,
    },
    Startup.CLEAR: {**_BEFORE},
    Startup.ENCRYPTED: {**_BEFORE, StartupEvent.GSS_REFUSED: Startup.ENCRYPTED_GSS_REFUSED},
    Startup.ENCRYPTED_GSS_REFUSED: {**_BEFORE},
    Startup.AUTHENTICATING: {
        StartupEvent.CREDENTIAL: Startup.AUTHENTICATING,
        StartupEvent.VERIFIED: Startup.AUTHENTICATED,
        StartupEvent.FAILED: Startup.CLOSED,
    },
    Startup.AUTHENTICATED: {},
    Startup.CLOSED: {},
}


class Session(StrEnum):
    """Where an authenticated connection stands between two messages."""

    READY = "ready"
    BATCH = "batch"
    """Extended-protocol messages have come, and their Sync has not."""
    SKIPPING = "skipping"
    """One of them failed: everything up to Sync is discarded."""
    COPY_IN_QUERY = "copyInQuery"
    COPY_IN_BATCH = "copyInBatch"
    CLOSED = "closed"


class Event(IntEnum):
    """What we make of a session besides the client's messages; outside the range of a byte."""

    FAILED = 256
    COPY_IN = 257


_EXTENDED: Final = (Front.PARSE, Front.BIND, Front.DESCRIBE, Front.EXECUTE, Front.CLOSE, Front.FLUSH)
_COPY: Final = (Front.COPY_DATA, Front.COPY_DONE, Front.COPY_FAIL)

# Copy messages outside a copy are dropped: the client could not know yet that the copy had failed.
SESSION: Final[dict[Session, dict[int, Session]]] = {
    Session.READY: {
        Front.QUERY: Session.READY,
        Front.FUNCTION_CALL: Session.READY,
        Front.SYNC: Session.READY,
        Front.TERMINATE: Session.CLOSED,
        Event.FAILED: Session.READY,
        Event.COPY_IN: Session.COPY_IN_QUERY,
        **dict.fromkeys(_EXTENDED, Session.BATCH),
        **dict.fromkeys(_COPY, Session.READY),
    },
    Session.BATCH: {
        Front.QUERY: Session.READY,
        Front.FUNCTION_CALL: Session.READY,
        Front.SYNC: Session.READY,
        Front.TERMINATE: Session.CLOSED,
        Event.FAILED: Session.SKIPPING,
        Event.COPY_IN: Session.COPY_IN_BATCH,
        **dict.fromkeys(_EXTENDED, Session.BATCH),
        **dict.fromkeys(_COPY, Session.BATCH),
    },
    Session.SKIPPING: {
        Front.QUERY: Session.SKIPPING,
        Front.FUNCTION_CALL: Session.SKIPPING,
        Front.SYNC: Session.READY,
        Front.TERMINATE: Session.CLOSED,
        Event.FAILED: Session.SKIPPING,
        **dict.fromkeys(_EXTENDED, Session.SKIPPING),
        **dict.fromkeys(_COPY, Session.SKIPPING),
    },
    Session.COPY_IN_QUERY: {
        Front.COPY_DATA: Session.COPY_IN_QUERY,
        Front.COPY_DONE: Session.READY,
        Front.COPY_FAIL: Session.READY,
        Front.FLUSH: Session.COPY_IN_QUERY,
        Front.SYNC: Session.COPY_IN_QUERY,
        Front.TERMINATE: Session.CLOSED,
        Event.FAILED: Session.READY,
    },
    Session.COPY_IN_BATCH: {
        Front.COPY_DATA: Session.COPY_IN_BATCH,
        Front.COPY_DONE: Session.BATCH,
        Front.COPY_FAIL: Session.BATCH,
        Front.FLUSH: Session.COPY_IN_BATCH,
        Front.SYNC: Session.COPY_IN_BATCH,
        Front.TERMINATE: Session.CLOSED,
        Event.FAILED: Session.SKIPPING,
    },
    Session.CLOSED: {},
}


def next_startup(state: Startup, event: StartupEvent) -> Startup:
    """Raises ProtocolViolation when ``event`` is out of place."""
    try:
        return STARTUP[state][event]
    except KeyError:
        raise ProtocolViolation(f"{event.value} is not possible in start-up state {state.value}") from None


def next_session(state: Session, event: int) -> Session:
    """Raises ProtocolViolation when a message, or one of our events, is out of place."""
    try:
        return SESSION[state][event]
    except KeyError:
        raise ProtocolViolation(
            f"a message of type {_shown(event)} is not possible in session state {state.value}"
        ) from None


def _shown(event: int) -> str:
    return repr(chr(event)) if 32 <= event < 127 else str(event)
