"""Requests that reach a process of this host, and that another one behind the same port has to answer.

A client may connect anew for every request, and lands at any of the siblings. The one that is asked has
checked the client, and says who it is; the other looks at the request as if it had come by a connection of
its own, the unguessable part of a URI and the owner of a statement included.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from queryflux.auth.known import described, sibling_user
from queryflux.frontends.trino_http.errors import TrinoError
from queryflux.frontends.trino_http.replies import Reply, refusal
from queryflux.model.errors import QueryFluxError, Unavailable
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.siblings import About, Question, SiblingFailed, SiblingGone, Siblings
from queryflux.runtime.tasks import TaskGroup
from queryflux.wire.http1 import Request

if TYPE_CHECKING:
    from queryflux.frontends.trino_http.handler import Handler, Watch

_NAME = "trino"
_KEPT_BACK = ("authorization", "proxy-authorization", "cookie")
POLL_SECONDS = 30.0
"""A poll is answered within a second or two; what ends a query waits for its engine."""
NO_LIMIT_SECONDS = 7 * 86400.0
"""A statement of a transaction may run for as long as one that was not passed on."""


class Elsewhere:
    """Both ends of it, for one door."""

    def __init__(self, siblings: Siblings, handler: "Handler", tasks: TaskGroup) -> None:
        self._siblings = siblings
        self._handler = handler
        self._tasks = tasks
        siblings.answers(_NAME, self._answer)

    # Asking.

    async def submit(
        self, tag: str, request: Request, identity: VerifiedIdentity, peer: str, watch: "Watch"
    ) -> Reply:
        """A statement of a transaction of the sibling ``tag``. Raises TrinoError when that has gone,
        Unavailable, ConnectionError when the client does not wait any more."""
        asking = asyncio.ensure_future(self._ask(tag, request, identity, peer, NO_LIMIT_SECONDS))
        watch(asking.cancel)
        try:
            about, body = await asking
        except asyncio.CancelledError:
            if asking.cancelled() and not _is_cancelled():
                raise ConnectionResetError("the client has gone") from None
            asking.cancel()
            raise
        except SiblingGone:
            raise TrinoError("UNKNOWN_TRANSACTION", "the process of this transaction has gone") from None
        finally:
            watch(None)
        reply = _reply(about, body)
        if query_id := about["query"]:
            cancel = Request("DELETE", f"/v1/query/{query_id}", request.headers, None, True)
            reply.undelivered = lambda: self._tasks.spawn(
                f"client of {query_id} has gone", self._forget(tag, cancel, identity)
            )
        return reply

    async def _forget(self, tag: str, cancel: Request, identity: VerifiedIdentity) -> None:
        try:
            await self.ask(tag, cancel, identity)
        except QueryFluxError:
            return  # its process ends it by itself, when nobody asks for it for long enough

    async def ask(self, tag: str, request: Request, identity: VerifiedIdentity) -> Reply | None:
        """A request about a statement of the sibling ``tag``; None when that has gone. Raises Unavailable."""
        try:
            return _reply(*await self._ask(tag, request, identity, "", POLL_SECONDS))
        except SiblingGone:
            return None

    async def _ask(
        self, tag: str, request: Request, identity: VerifiedIdentity, peer: str, seconds: float
    ) -> tuple[About, bytes]:
        about = {
            "method": request.method,
            "target": request.target,
            "headers": {name: text for name, text in request.headers.items() if name not in _KEPT_BACK},
            "identity": described(identity),
            "peer": peer,
        }
        try:
            return await self._siblings.ask(tag, _NAME, about, request.body, seconds=seconds)
        except SiblingFailed as error:
            text = f"process {tag}, which answers for this, does not answer: {error}"
            raise Unavailable(text, hint="ask again in a moment") from None

    # Answering.

    async def _answer(self, question: Question) -> None:
        client = _Client()
        try:
            reply = await self._reply_to(question, client)
            try:
                about = {
                    "status": reply.status,
                    "headers": reply.headers,
                    "close": reply.close,
                    "query": reply.query_id if reply.undelivered is not None else "",
                }
                await question.head(about)
                if reply.body:
                    await question.part(reply.body)
                await question.end()
            except ConnectionError:
                if reply.undelivered is not None:
                    reply.undelivered()
                raise
            finally:
                if reply.then is not None:
                    await reply.then()
        except asyncio.CancelledError:
            client.gone()
            raise

    async def _reply_to(self, question: Question, client: "_Client") -> Reply:
        about = question.about
        request = Request(about["method"], about["target"], about["headers"], len(question.body), True)
        request.body, request.complete = question.body, True
        identity = sibling_user(about["identity"])
        try:
            if request.method == "POST":
                caller = self._handler.caller(request.headers, about["peer"])
                return await self._handler.submit(request, identity, caller, client.watch)
            return await self._handler.other(request, request.target.partition("?")[0], identity)
        except QueryFluxError as error:
            return refusal(error)


class _Client:
    """The client of a statement that was passed on: it goes when the sibling does not wait any more."""

    def __init__(self) -> None:
        self._when_gone: Callable[[], object] | None = None

    def watch(self, callback: Callable[[], object] | None) -> None:
        # Kept after the answer is there: whoever it is for may go as it is given to them.
        self._when_gone = callback or self._when_gone

    def gone(self) -> None:
        if self._when_gone is not None:
            self._when_gone()


def _reply(about: About, body: bytes) -> Reply:
    headers = tuple((name, value) for name, value in about["headers"])
    return Reply(about["status"], body, headers, close=about["close"])


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
