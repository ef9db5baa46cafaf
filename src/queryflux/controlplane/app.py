"""The application behind the operator port: endpoints become routes, each guarded, each failure a problem
document.
"""

import base64
import binascii
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from queryflux.controlplane.endpoints import Endpoint, read_call
from queryflux.controlplane.errors import NoSuchMethod, NotThere, Refused, problem_response
from queryflux.controlplane.login import Caller
from queryflux.model.errors import AuthenticationFailed, InternalError, QueryFluxError

log = logging.getLogger(__name__)

CHALLENGE = 'Basic realm="queryflux", charset="UTF-8"'
_METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")
_PLAIN_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")

Guard = Callable[[Caller, tuple[str, str] | None], Awaitable[None]]
"""Returns when a caller with these credentials may go on."""


def operator_app(
    endpoints: Sequence[Endpoint],
    guard: Guard,
    cors_origins: Sequence[str] = (),
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> Starlette:
    """The application. Pages of other origins may use it only when ``cors_origins`` names them; ``prepare``
    runs before the first request."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        if prepare is not None:
            await prepare()
        yield

    middleware = []
    if cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=list(_METHODS),
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-queryflux-config-sequence", "x-queryflux-note"],
        )
        middleware.append(cors)
    return Starlette(
        routes=[_route(endpoint, guard) for endpoint in endpoints],
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={HTTPException: _no_route},
    )


def _route(endpoint: Endpoint, guard: Guard) -> Route:
    async def serve(request: Request) -> Response:
        try:
            if not endpoint.public:
                await guard(caller_of(request), _credentials(request))
            response = await endpoint.handle(await read_call(endpoint, request))
        except QueryFluxError as error:
            response = problem_response(error)
            if isinstance(error, AuthenticationFailed):
                response.headers["WWW-Authenticate"] = CHALLENGE
        except Exception:
            mark = secrets.token_hex(4)
            log.exception("%s %s failed; the answer names %s", endpoint.method, endpoint.path, mark)
            text = f"internal error; the operator finds the cause in the log under {mark}"
            response = problem_response(InternalError(text))
        if not endpoint.public:
            for name, value in _PLAIN_HEADERS.items():
                response.headers[name] = value
        return response

    return Route(endpoint.path, serve, methods=[endpoint.method])


async def _no_route(request: Request, error: Exception) -> Response:
    """No endpoint has this path, or none this method."""
    assert isinstance(error, HTTPException)
    refused: Refused
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refused = NoSuchMethod(f"{request.url.path} takes no {request.method}", headers=error.headers)
    else:
        refused = NotThere(
            f"there is nothing at {request.url.path}", hint="GET /openapi.json lists the paths"
        )
    return problem_response(refused)


def caller_of(request: Request) -> Caller:
    """Who sends it."""
    name = request.headers.get("host", "").rpartition("@")[2]
    host, _, port = name.rpartition(":")
    return Caller(
        peer=request.client.host if request.client is not None else "",
        host=(host if host and port.isdigit() else name).lower(),
        forwarded=any(header in request.headers for header in _FORWARDED),
    )


def _credentials(request: Request) -> tuple[str, str] | None:
    """Name and password of HTTP Basic; None when there are none that can be read."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    with contextlib.suppress(binascii.Error, UnicodeDecodeError, ValueError):
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        if colon:
            return name, password
    return None
