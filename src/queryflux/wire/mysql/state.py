"""The lifecycle of a connection: which event is legal in which phase.

A client that has not proved who it is can reach only the phases before READY, so none of its bytes is ever
read as a command.
"""

from enum import Enum

from queryflux.model.errors import ProtocolViolation


class Phase(Enum):
    """Where a connection stands."""

    GREETING = "the greeting is out, the client's response is due"
    SECURING = "the TLS handshake runs"
    ANSWERING_TLS = "TLS is on, the client's response is due"
    PROVING = "the client proves who it is"
    READY = "a command is due"
    RUNNING = "a command is being answered"
    CLOSED = "nothing is read or written any more"


class Event(Enum):
    """What happens to it."""

    SSL_REQUEST = "the client asks for TLS"
    SECURED = "TLS is on"
    RESPONSE = "the client says who it is"
    PROVED = "the client is who it says"
    COMMAND = "a command arrives"
    CHANGE_USER = "the client wants to be somebody else"
    ANSWERED = "the command's answer is complete"
    CLOSE = "it is over: refused, quit, killed, gone or drained"


TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (Phase.GREETING, Event.SSL_REQUEST): Phase.SECURING,
    (Phase.SECURING, Event.SECURED): Phase.ANSWERING_TLS,
    (Phase.GREETING, Event.RESPONSE): Phase.PROVING,
    (Phase.ANSWERING_TLS, Event.RESPONSE): Phase.PROVING,
    (Phase.PROVING, Event.PROVED): Phase.READY,
    (Phase.READY, Event.COMMAND): Phase.RUNNING,
    (Phase.RUNNING, Event.CHANGE_USER): Phase.PROVING,
    (Phase.RUNNING, Event.ANSWERED): Phase.READY,
    (Phase.GREETING, Event.CLOSE): Phase.CLOSED,
    (Phase.SECURING, Event.CLOSE): Phase.CLOSED,
    (Phase.ANSWERING_TLS, Event.CLOSE): Phase.CLOSED,
    (Phase.PROVING, Event.CLOSE): Phase.CLOSED,
    (Phase.READY, Event.CLOSE): Phase.CLOSED,
    (Phase.RUNNING, Event.CLOSE): Phase.CLOSED,
    (Phase.CLOSED, Event.CLOSE): Phase.CLOSED,
}


class Lifecycle:
    """The phase of one connection, moved only by ``advance``."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.GREETING

    def advance(self, event: Event) -> None:
        """Move on. Raises ProtocolViolation for an event that is not legal now."""
        phase = TRANSITIONS.get((self.phase, event))
        if phase is None:
            raise ProtocolViolation(f"out of place: {event.value} while {self.phase.value}")
        self.phase = phase
