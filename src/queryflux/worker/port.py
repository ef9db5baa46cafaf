"""The control plane as a worker's parts see it: somebody who answers a call. HTTP is client.py's business."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from queryflux.model.errors import StoreUnavailable

NO_HEADERS: Mapping[str, str] = {}


class Reply(NamedTuple):
    """An answer, whatever its status. Names of headers are in lower case; the body is not compressed any
    more."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SecretRefused(StoreUnavailable):
    """Somebody answered, and does not take the shared secret: trying again soon is of no use."""


class ControlPlane(Protocol):
    """Any control plane of the fleet: which one answers is the client's choice."""

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        """One call, with the shared secret. ``path`` may have a query string. A call that was not answered
        may have been done. Raises StoreUnavailable when no control plane answers within ``seconds``, or the
        one that does is itself unable to (502, 503, 504); SecretRefused when it does not take the secret."""
