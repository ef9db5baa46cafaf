"""How a query can end. Exactly one ending per query; logs, metrics and history show it."""

from enum import StrEnum


class QueryStatus(StrEnum):
    """The status stored in history, in the spelling users of the history table know."""

    __hash__ = object.__hash__

    SUCCESS = "Success"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    DENIED = "Denied"


class EndReason(StrEnum):
    """Why a query ended."""

    __hash__ = object.__hash__

    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    QUEUE_FULL = "queueFull"
    CAPACITY_TIMEOUT = "capacityTimeout"
    NO_CAPACITY = "noCapacity"
    CANCELLED = "cancelled"
    CLIENT_GONE = "clientGone"
    ABANDONED = "abandoned"
    TIMED_OUT = "timedOut"
    SHUTDOWN = "shutdown"

    @property
    def status(self) -> QueryStatus:
        """The history status this reason is filed under."""
        return _STATUS[self]


_STATUS = {
    EndReason.COMPLETED: QueryStatus.SUCCESS,
    EndReason.FAILED: QueryStatus.FAILED,
    EndReason.DENIED: QueryStatus.DENIED,
    EndReason.QUEUE_FULL: QueryStatus.FAILED,
    EndReason.CAPACITY_TIMEOUT: QueryStatus.FAILED,
    EndReason.NO_CAPACITY: QueryStatus.FAILED,
    EndReason.CANCELLED: QueryStatus.CANCELLED,
    EndReason.CLIENT_GONE: QueryStatus.CANCELLED,
    EndReason.ABANDONED: QueryStatus.CANCELLED,
    EndReason.TIMED_OUT: QueryStatus.FAILED,
    EndReason.SHUTDOWN: QueryStatus.CANCELLED,
}
