"""What anybody may ask an operator port: whether the process lives, whether it takes queries, its metrics."""

from collections.abc import Callable

from starlette.responses import JSONResponse, PlainTextResponse, Response

from queryflux.controlplane.endpoints import Call, Endpoint, answer
from queryflux.model.errors import QueryFluxError

Render = Callable[[], tuple[bytes, str]]
"""Gives a document and its content type."""


def public_endpoints(check_ready: Callable[[], None], metrics: Render) -> list[Endpoint]:
    """Those without credentials. ``check_ready`` raises a QueryFluxError that says why not; ``metrics`` gives
    the exposition document."""

    async def health(call: Call) -> Response:
        return PlainTextResponse("ok")

    async def ready(call: Call) -> Response:
        try:
            check_ready()
        except QueryFluxError as error:
            return JSONResponse({"ready": False, "code": error.code, "reason": error.message}, 503)
        return answer({"ready": True})

    async def exposition(call: Call) -> Response:
        body, content_type = metrics()
        return Response(body, media_type=content_type)

    text = "text/plain"
    return [
        Endpoint("GET", "/health", "Whether the process lives.", health, public=True, media_type=text),
        Endpoint(
            "GET",
            "/readyz",
            "Whether it takes queries.",
            ready,
            {200: "it does", 503: "it does not, and why"},
            public=True,
        ),
        Endpoint("GET", "/metrics", "Prometheus exposition.", exposition, public=True, media_type=text),
    ]
