"""Responses as bytes. A page is one write: its head is put together from parts that are encoded already."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from queryflux.frontends.trino_http.errors import message_of, standard_name
from queryflux.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    QueryFluxError,
    QueryNotFound,
    StatementTooLarge,
    Unavailable,
)
from queryflux.wire.http1 import HttpViolation, encode_response
from queryflux.wire.trino.documents import problem

GZIP_BYTES = 16 * 1024
"""Smaller bodies are not worth packing."""
RETRY_AFTER_SECONDS = "1"
PROCESS = "X-QueryFlux-Process"
"""Names the process that a query or a transaction belongs to, as the end of its id does: by that a load
balancer keeps to it (docs/worker-mode.md#load-balancers)."""

_JSON = (("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff"))
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"


@dataclass(slots=True)
class Reply:
    """What is sent back. ``then`` is done afterwards in any case; ``undelivered`` when the client has gone
    before it had this."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    then: Callable[[], Awaitable[None]] | None = None
    undelivered: Callable[[], object] | None = None
    query_id: str = ""
    """What there is to end when it is undelivered."""
    close: bool = False


def encode(reply: Reply, *, keep_alive: bool, head_only: bool = False, packed: bool = False) -> bytes:
    """The whole response."""
    keep_alive = keep_alive and not reply.close
    if reply.status == 200 and not reply.headers and keep_alive and not head_only and not packed:
        return b"%bContent-Length: %d\r\n\r\n%b" % (_PAGE, len(reply.body), reply.body)
    headers = list(reply.headers)
    if reply.body:
        headers += _JSON
    if packed:
        headers += (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
    return encode_response(reply.status, headers, reply.body, keep_alive=keep_alive, head_only=head_only)


def page_reply(body: bytes, place: tuple[int, int], info: bytes, query_id: str) -> bytes:
    """The response that is a page with another ``infoUri``: that of ``query_id`` under ``info`` in its
    ``place``."""
    start, stop = place
    uri = info + query_id.encode()
    length = len(body) - stop + start + len(uri)
    return b"%bContent-Length: %d\r\n\r\n%b%b%b" % (_PAGE, length, body[:start], uri, body[stop:])


def refusal(error: QueryFluxError) -> Reply:
    """The response for an error that is told outside a query's page."""
    headers: tuple[tuple[str, str], ...] = ()
    status, close = 400, False
    if isinstance(error, HttpViolation):
        status, close = error.status, True
        if status == 413:
            hint = "send it in parts, or ask the operator to raise queryflux.maxStatementBytes"
            error = StatementTooLarge(error.message, hint=hint)
    elif isinstance(error, AuthenticationFailed):
        status = 401
        headers = (("WWW-Authenticate", 'Basic realm="QueryFlux"'), ("WWW-Authenticate", "Bearer"))
    elif isinstance(error, AccessDenied):
        status = 403
    elif isinstance(error, QueryNotFound):
        status = 404
    elif isinstance(error, StatementTooLarge):
        status, close = 413, True
    elif isinstance(error, Unavailable):
        status, headers = 503, (("Retry-After", RETRY_AFTER_SECONDS),)
    elif error.code == "INTERNAL":
        status = 500
    return Reply(status, problem(standard_name(error), message_of(error)), headers, close=close)


def plain(status: int, name: str, message: str) -> Reply:
    """A response that is an error by one of Trino's names."""
    return Reply(status, problem(name, message))
