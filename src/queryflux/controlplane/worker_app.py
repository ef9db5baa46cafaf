"""The application under /worker: calls of workers, many and small, so a table of paths and no framework.

A call is guarded before its body is read, its body is bounded, and whatever fails becomes a problem document.
A caller that hangs up while it waits for an answer that takes time is noticed, and its wait ends.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from queryflux.controlplane.errors import (
    MEDIA_TYPE,
    NoSuchMethod,
    NotPlain,
    NotThere,
    Refused,
    TooLarge,
    TooSlow,
    problem_document,
    status_of,
)
from queryflux.fleet.paths import INSTANCE_HEADER, WORKER_HEADER
from queryflux.model.errors import InternalError, InvalidRequest, QueryFluxError, ShuttingDown

log = logging.getLogger(__name__)

JSON = "application/json"
MAX_BODY_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024
MOST_SENDING_SECS = 30.0
"""A caller that has not taken its answer by then is given up."""
MOST_READING_SECS = 30.0
"""So is one whose body has not come by then."""
MAX_PARAMS = 100
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
MAX_NAME = 255
RETRY_AFTER = {"Retry-After": "1"}
CHALLENGE = {"WWW-Authenticate": "Bearer"}


class WorkerCall(NamedTuple):
    """One call. Names of headers are in lower case; ``peer`` is the address that it comes from."""

    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: str

    @property
    def instance(self) -> str:
        """Which start of a worker it comes from. Raises InvalidRequest when it does not say."""
        value = self.headers.get(INSTANCE_HEADER, "")
        if not 0 < len(value) <= MAX_NAME or not value.isprintable():
            message = f"the header {INSTANCE_HEADER} is missing, or no name"
            raise InvalidRequest(message, hint="calls are of workers")
        return value


class WorkerAnswer(NamedTuple):
    """What it is answered with."""

    status: int = 200
    body: bytes = b""
    media_type: str = JSON
    headers: Mapping[str, str] = {}
    turn: AbstractAsyncContextManager[Any] | None = None
    """Held while it is sent: bounds how many of its kind are on their way."""


Handle = Callable[[WorkerCall], Coroutine[Any, Any, WorkerAnswer]]
WorkerGuard = Callable[[str, str, str], None]
"""Returns when a caller, of this address and with this Authorization header, may go on; last is the worker
that it says it is. Raises QueryFluxError."""


@dataclass(frozen=True, slots=True)
class WorkerEndpoint:
    """One call of the worker API. ``public`` needs no secret. ``patient``: the answer may take its time; when
    the caller hangs up, ``handle`` is cancelled."""

    method: str
    path: str
    handle: Handle
    max_body: int = MAX_BODY_BYTES
    public: bool = False
    patient: bool = False
    packed: bool = False
    """``handle`` unpacks bodies that come compressed."""


class GoneAway(Exception):
    """The caller has hung up."""


class WorkerApp:
    """An ASGI application of worker endpoints."""

    def __init__(self, endpoints: Sequence[WorkerEndpoint], guard: WorkerGuard) -> None:
        self._endpoints: dict[str, dict[str, WorkerEndpoint]] = {}
        for endpoint in endpoints:
            self._endpoints.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            answer = await self._answer(scope, receive)
        except GoneAway:
            return
        except asyncio.CancelledError:  # the server ends, and waits no longer for this call
            answer = problem_answer(ShuttingDown("this process ends", hint="another may answer"))
        except QueryFluxError as error:
            answer = problem_answer(error)
        except Exception:
            mark = secrets.token_hex(4)
            log.exception("%s %s failed; the answer names %s", scope["method"], scope["path"], mark)
            text = f"internal error; the operator finds the cause in the log under {mark}"
            answer = problem_answer(InternalError(text))
        with_body = scope["method"] != "HEAD"
        if answer.turn is None:
            await _send(answer, send, with_body)
            return
        try:
            async with answer.turn, asyncio.timeout(MOST_SENDING_SECS):
                await _send(answer, send, with_body)
        except TimeoutError:
            log.warning("%s did not take its answer to %s", _peer(scope), scope["path"])

    async def _answer(self, scope: Scope, receive: Receive) -> WorkerAnswer:
        path, method = scope["path"], scope["method"]
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        peer = _peer(scope)
        methods = self._endpoints.get(path, {})
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None or not endpoint.public:
            self._guard(peer, headers.get("authorization", ""), headers.get(WORKER_HEADER, ""))
        if not methods:
            raise NotThere(
                "there is no such call",
                hint="is it of an older version, or another process than was meant?",
            )
        if endpoint is None:
            raise NoSuchMethod(f"{path} is not called like this", headers={"Allow": ", ".join(methods)})
        if not endpoint.packed and headers.get("content-encoding", "identity").lower() != "identity":
            raise NotPlain("the body must not be compressed", headers={"Accept-Encoding": "identity"})
        try:
            async with asyncio.timeout(MOST_READING_SECS):
                body = await read_body(receive, endpoint.max_body)
        except TimeoutError:
            raise TooSlow("the body took too long to come") from None
        call = WorkerCall(path, read_params(scope["query_string"]), headers, body, peer)
        if endpoint.patient:
            return await _unless_gone(endpoint.handle(call), receive)
        return await endpoint.handle(call)


def _peer(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


async def _unless_gone(work: Coroutine[Any, Any, WorkerAnswer], receive: Receive) -> WorkerAnswer:
    """Raises GoneAway when the caller hangs up first."""
    answering = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise GoneAway
    finally:
        for task in (answering, leaving):
            task.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(answer: WorkerAnswer, send: Send, with_body: bool) -> None:
    """A long body in pieces, each when the one before has left."""
    head = [
        (b"cache-control", b"no-store"),
        *((name.encode(), value.encode()) for name, value in answer.headers.items()),
    ]
    if answer.status != HTTPStatus.NOT_MODIFIED:
        head += [
            (b"content-type", answer.media_type.encode()),
            (b"content-length", b"%d" % len(answer.body)),
        ]
    await send({"type": "http.response.start", "status": answer.status, "headers": head})
    body = answer.body if with_body else b""
    for at in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
        await send({"type": "http.response.body", "body": body[at : at + PIECE_BYTES], "more_body": True})
    rest = body[-(len(body) % PIECE_BYTES or PIECE_BYTES) :]
    await send({"type": "http.response.body", "body": rest})


def read_params(query: bytes) -> dict[str, str]:
    """The parameters of a query string. Raises InvalidRequest."""
    text = query.decode("latin-1")
    if BAD_ESCAPE.search(text):
        raise InvalidRequest("the query string has a % that begins no character")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMS, errors="strict")
    except ValueError:  # too many, or what they encode is not UTF-8
        raise InvalidRequest(
            f"the query string cannot be read: at most {MAX_PARAMS} parameters, in UTF-8"
        ) from None
    params = dict(pairs)
    if len(params) < len(pairs):
        raise InvalidRequest("a parameter of the query string is given more than once")
    return params


async def read_body(receive: Receive, most: int) -> bytes:
    """The body of a request. Raises TooLarge, GoneAway."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneAway
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(f"the body is over {most} bytes", hint="send less at a time")
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def problem_answer(error: QueryFluxError) -> WorkerAnswer:
    """A failure as a problem document with its stable ``code``."""
    status = status_of(error)
    headers = error.headers if isinstance(error, Refused) else {}
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {**RETRY_AFTER, **headers}
    if status is HTTPStatus.UNAUTHORIZED:
        headers = {**CHALLENGE, **headers}
    return WorkerAnswer(status.value, msgspec.json.encode(problem_document(error)), MEDIA_TYPE, headers)
