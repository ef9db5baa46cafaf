"""From gRPC's threads to the loop and back.

A handler's thread hands a coroutine to the loop and waits for it, looking now and then whether its client is
still there. When the client has gone the coroutine is cancelled, and the query under it with it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from queryflux.model.errors import QueryCancelled, ShuttingDown

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2

T = TypeVar("T")


class Bridge:
    """One loop, and the threads that call into it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, work: Coroutine[Any, Any, T], gone: Callable[[], bool]) -> T:
        """Run ``work`` on the loop and return what it returns; for threads other than the loop's. Raises
        what it raises, QueryCancelled once ``gone()`` says that the client is not there any more, and
        ShuttingDown when the loop has ended."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise ShuttingDown("this server is shutting down", hint="connect again") from None
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    return future.result()
                if gone() and future.cancel():
                    raise QueryCancelled("the client has gone") from None

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work`` on the loop without waiting for it; a failure is logged."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            return
        future.add_done_callback(_log_failure)


def _log_failure(future: Any) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("Flight SQL: cleaning up failed", exc_info=error)
