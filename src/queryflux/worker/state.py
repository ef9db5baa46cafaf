"""Where a worker stands with its configuration: a literal table.

``FRESH``: what it runs came from a control plane, or was confirmed by one. ``STALE``: it was copied from
another worker, and no control plane has said anything yet. ``REJECTED``: a control plane has another one,
which could not be used here; what was there before stays. A pair that is missing cannot happen: peers are
asked only for a first configuration, and without one there is nothing to confirm.
"""

from enum import StrEnum

from queryflux.model.errors import InternalError


class ConfigState(StrEnum):
    """The states."""

    UNCONFIGURED = "unconfigured"
    FRESH = "active"
    STALE = "stale"
    REJECTED = "rejected"


class ConfigEvent(StrEnum):
    """What happens to it."""

    SNAPSHOT_RECEIVED = "snapshot received"
    """A control plane's, and it is in use now."""
    COMPILE_FAILED = "compile failed"
    """A control plane's, and it cannot be used."""
    SCHEMA_UNKNOWN = "schema unknown"
    """A control plane's, and this version cannot read it, or it does not arrive as it was sent."""
    CONFIRMED = "confirmed"
    """A control plane says that what is in use is what it has."""
    WAIT_TIMED_OUT = "wait timed out"
    """A control plane has no news, and does not confirm what is in use either."""
    UNREACHABLE = "control plane unreachable"
    SECRET_REFUSED = "secret refused"  # noqa: S105 - an event
    PEER_SNAPSHOT = "peer snapshot received"
    """Another worker's, and it is in use now."""
    MAX_AGE_PASSED = "max age passed"
    """What a peer has, or what was copied from one, was confirmed too long ago."""


S, E = ConfigState, ConfigEvent

TRANSITIONS: dict[tuple[ConfigState, ConfigEvent], ConfigState] = {
    (S.UNCONFIGURED, E.SNAPSHOT_RECEIVED): S.FRESH,
    (S.UNCONFIGURED, E.COMPILE_FAILED): S.UNCONFIGURED,
    (S.UNCONFIGURED, E.SCHEMA_UNKNOWN): S.UNCONFIGURED,
    (S.UNCONFIGURED, E.WAIT_TIMED_OUT): S.UNCONFIGURED,
    (S.UNCONFIGURED, E.UNREACHABLE): S.UNCONFIGURED,
    (S.UNCONFIGURED, E.SECRET_REFUSED): S.UNCONFIGURED,
    (S.UNCONFIGURED, E.PEER_SNAPSHOT): S.STALE,
    (S.UNCONFIGURED, E.MAX_AGE_PASSED): S.UNCONFIGURED,
    (S.FRESH, E.SNAPSHOT_RECEIVED): S.FRESH,
    (S.FRESH, E.COMPILE_FAILED): S.REJECTED,
    (S.FRESH, E.SCHEMA_UNKNOWN): S.REJECTED,
    (S.FRESH, E.CONFIRMED): S.FRESH,
    (S.FRESH, E.WAIT_TIMED_OUT): S.FRESH,
    (S.FRESH, E.UNREACHABLE): S.FRESH,
    (S.FRESH, E.SECRET_REFUSED): S.FRESH,
    (S.STALE, E.SNAPSHOT_RECEIVED): S.FRESH,
    (S.STALE, E.COMPILE_FAILED): S.REJECTED,
    (S.STALE, E.SCHEMA_UNKNOWN): S.REJECTED,
    (S.STALE, E.CONFIRMED): S.FRESH,
    (S.STALE, E.WAIT_TIMED_OUT): S.STALE,
    (S.STALE, E.UNREACHABLE): S.STALE,
    (S.STALE, E.SECRET_REFUSED): S.STALE,
    (S.STALE, E.MAX_AGE_PASSED): S.STALE,
    (S.REJECTED, E.SNAPSHOT_RECEIVED): S.FRESH,
    (S.REJECTED, E.COMPILE_FAILED): S.REJECTED,
    (S.REJECTED, E.SCHEMA_UNKNOWN): S.REJECTED,
    (S.REJECTED, E.CONFIRMED): S.FRESH,
    (S.REJECTED, E.WAIT_TIMED_OUT): S.REJECTED,
    (S.REJECTED, E.UNREACHABLE): S.REJECTED,
    (S.REJECTED, E.SECRET_REFUSED): S.REJECTED,
}


def after(state: ConfigState, event: ConfigEvent) -> ConfigState:
    """The state that follows. Raises InternalError for a pair that cannot happen."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InternalError(f"a worker that is {state} cannot have: {event}") from None
