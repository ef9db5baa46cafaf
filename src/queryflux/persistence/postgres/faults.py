"""What PostgreSQL and its driver complain about, as StoreUnavailable: so that callers, who fail closed, need
not know the driver.

Only what says that the database cannot be asked just now is translated. An error of a statement or of its
values is its caller's own to understand.
"""

import asyncio
from dataclasses import dataclass

import asyncpg

from queryflux.model.errors import StoreUnavailable

WHO = "the database of QueryFlux"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the database cannot be asked. ``sound``: the connection can be used again; ``elsewhere``: the
    server is not what it was, or the way there, so that its other connections are worth nothing either."""

    message: str
    sound: bool = False
    elsewhere: bool = False


UNREACHABLE = Fault(f"{WHO} cannot be reached")
REFUSED = Fault(f"{WHO} refuses the connection")
LOST = Fault(f"the connection to {WHO} broke", elsewhere=True)
RESTARTING = Fault(f"{WHO} is starting or shutting down", elsewhere=True)
READ_ONLY = Fault(f"{WHO} is read-only", elsewhere=True)
TOO_MANY = Fault(f"{WHO} takes no more connections")
EXHAUSTED = Fault(f"{WHO} is out of resources")
BROKEN = Fault(f"{WHO} has an internal fault")
TOO_SLOW = Fault(f"{WHO} did not answer in time", elsewhere=True)
STOPPED = Fault(f"{WHO} stopped the statement, which took too long", sound=True)
CONTENTION = Fault(f"{WHO} was busy with a conflicting change", sound=True)
CHANGED = Fault(f"the tables of {WHO} have just changed")
TABLES = Fault(f"{WHO} does not have the tables that this version needs", sound=True)
FORBIDDEN = Fault(f"{WHO} does not allow its user to do this", sound=True)

_BY_STATE = {
    "57P01": RESTARTING,
    "57P02": RESTARTING,
    "57P03": RESTARTING,
    "57P04": REFUSED,
    "57P05": LOST,
    "25P03": LOST,
    "25P04": LOST,
    "57014": STOPPED,
    "25006": READ_ONLY,
    "53300": TOO_MANY,
    "40001": CONTENTION,
    "40P01": CONTENTION,
    "55P03": CONTENTION,
    "3D000": REFUSED,
    "3F000": TABLES,
    "42P01": TABLES,
    "42703": TABLES,
    "42883": TABLES,
    "42501": FORBIDDEN,
}
_BY_CLASS = {"08": LOST, "28": REFUSED, "53": EXHAUSTED, "58": BROKEN, "XX": BROKEN}
"""By SQLSTATE (manual, appendix A), and by its first two characters."""


def fault_of(error: BaseException, connection: "asyncpg.Connection | None") -> Fault | None:
    """Why the database cannot be asked; None when the error says no such thing. ``connection`` is None while
    it is being made."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return CHANGED
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        known = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
        return known or (REFUSED if connection is None else None)
    if connection is None:
        named = isinstance(error, asyncpg.InterfaceError | ValueError) and not isinstance(error, OSError)
        return REFUSED if named else UNREACHABLE if isinstance(error, OSError) else None
    if isinstance(error, TimeoutError):
        return TOO_SLOW
    if isinstance(error, asyncpg.InternalClientError):
        return LOST  # the server's last word was being read when the statement was to be sent
    if isinstance(error, OSError) or (isinstance(error, asyncpg.InterfaceError) and connection.is_closed()):
        return LOST
    return None


def unavailable(fault: Fault, error: BaseException | None = None, where: str = "") -> StoreUnavailable:
    """The error for callers: ``message`` is fit for clients; ``hint`` has what the server or the network
    said, and where, for the operator."""
    said = str(error) if error is not None else ""
    if isinstance(error, TimeoutError):
        said = said or "no answer in time"
    return StoreUnavailable(fault.message, hint=": ".join(part for part in (where, said) if part))


def is_broken_off(error: BaseException) -> bool:
    """Whether a statement may still be running on the connection that its caller has left."""
    return isinstance(error, asyncio.CancelledError | TimeoutError | GeneratorExit)
