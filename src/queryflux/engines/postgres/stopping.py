"""How long a server is asked to stop a statement."""

import asyncio
import logging

from queryflux.engines.postgres.link import ServerLink

log = logging.getLogger(__name__)

CANCEL_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 4.0)
"""Seconds after each CancelRequest until the next: one that arrives before the statement does is lost."""


async def wait_for(drain: "asyncio.Task[None]", link: ServerLink, *, cancel: bool) -> None:
    """Wait for ``drain``, which reads what the server still says, and have the statement cancelled until
    then. It is cancelled itself when the server does not stop in time."""
    try:
        for pause in CANCEL_PAUSES:
            if cancel:
                await link.request_cancel()
            await asyncio.wait({drain}, timeout=pause)
            if drain.done():
                return
        log.warning(
            "PostgreSQL %s did not stop a query within %.0f s of being asked; its connection is dropped",
            link.target.where,
            sum(CANCEL_PAUSES),
        )
    finally:
        if not drain.done():
            drain.cancel()
            await asyncio.wait({drain})
