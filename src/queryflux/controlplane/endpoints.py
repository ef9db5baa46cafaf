"""One endpoint of the operator port as data: the routes and the API's document are both made of it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from queryflux.config.problems import Problem, one_of, show
from queryflux.controlplane.bodies import Body, check_body, parse_json
from queryflux.controlplane.errors import NotJson, NotThere, Refused, TooLarge
from queryflux.runtime.threads import in_thread

MAX_BODY_BYTES = 1024 * 1024
LONG_BODY_BYTES = 64 * 1024
"""Longer ones are taken apart off the loop."""
MOST = 999_999_999
_WHOLE = re.compile(r"\d{1,9}\Z")
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the query string. ``values``: what it may be; a ``default`` stands for one left out."""

    name: str
    kind: str
    what: str
    default: Any = None
    values: tuple[str, ...] = ()


Handler = Callable[["Call"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``answers`` are the statuses that it gives when all goes well, and what they mean. ``partial``: the
    body is a merge patch. ``public``: no credentials are needed."""

    method: str
    path: str
    summary: str
    handle: Handler
    answers: Mapping[int, str] = field(default_factory=lambda: {200: "done"})
    params: tuple[Param, ...] = ()
    body: Body | None = None
    partial: bool = False
    max_body: int = MAX_BODY_BYTES
    public: bool = False
    media_type: str = "application/json"


class Call:
    """One request, held to its endpoint. ``params`` are those of the query string, ``body`` the body's."""

    def __init__(self, request: Request, params: dict[str, Any], body: dict[str, Any]) -> None:
        self.request = request
        self.params = params
        self.body = body

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


async def read_call(endpoint: Endpoint, request: Request) -> Call:
    """What a request asks of ``endpoint``. Raises Refused."""
    if any("\0" in str(part) for part in request.path_params.values()):
        raise NotThere("nothing has a name with a NUL character")
    params = _params(endpoint, request)
    body: dict[str, Any] = {}
    if endpoint.body is not None:
        data = await _data(request, endpoint.max_body)
        if len(data) > LONG_BODY_BYTES:
            document = await in_thread("json", parse_json, data)
        else:
            document = parse_json(data)
        body = check_body(document, endpoint.body, partial=endpoint.partial)
    return Call(request, params, body)


def _params(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    values = {param.name: param.default for param in endpoint.params}
    by_name = {param.name: param for param in endpoint.params}
    problems = []
    for name, text in request.query_params.multi_items():
        param = by_name.get(name)
        if param is None:
            problems.append(_problem(name, f"unknown parameter {show(name)}", one_of(name, by_name)))
        elif len(request.query_params.getlist(name)) > 1:
            problems.append(_problem(name, "is given more than once", "give it once"))
        elif "\0" in text:
            problems.append(_problem(name, "has a NUL character, which no text of ours has"))
        else:
            values[name] = _value(param, text, problems)
    if problems:
        raise Refused("the query string is not what this path takes", problems=list(dict.fromkeys(problems)))
    return values


def _value(param: Param, text: str, problems: list[Problem]) -> Any:
    if param.kind == "integer":
        if _WHOLE.match(text):
            return int(text)
        problems.append(_problem(param.name, f"expected a whole number from 0 to {MOST}, found {show(text)}"))
    elif param.kind == "flag":
        if text in _FLAGS:
            return _FLAGS[text]
        problems.append(_problem(param.name, f"expected true or false, found {show(text)}"))
    elif param.values and text not in param.values:
        hint = one_of(text, param.values, "values")
        problems.append(_problem(param.name, f"{show(text)} is not one of the known values", hint))
    return text


async def _data(request: Request, limit: int) -> bytes:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise NotJson("the body must be JSON", hint="send Content-Type: application/json")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TooLarge(f"the body is larger than {limit} bytes", headers={"Connection": "close"})
            parts.append(part)
    except ClientDisconnect:
        raise Refused("the client left before its body had arrived") from None
    return b"".join(parts)


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    content = msgspec.json.encode(document)  # a tenth of the time that json takes: lists can be long
    return Response(content, status, dict(headers or {}), "application/json")


def note_header(text: str) -> dict[str, str]:
    """The header that tells what is to know besides the answer; none for nothing."""
    return {"X-QueryFlux-Note": quote(text, safe=" ;:,./()'=-")} if text else {}


def _problem(name: str, message: str, hint: str = "") -> Problem:
    return Problem(0, 0, name, message, hint)
