"""Calls of workers, handed to an application as a server would: also of those that hang up, or that do not
take what they are sent."""

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from tests.kit.operators import Reply

SECRET = "0123456789abcdef-of-workers"
PEER = "203.0.113.7"


class WorkerRequest:
    """One request. ``reply`` is what came back once it is done; None: nothing did."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        data: bytes = b"",
        *,
        peer: str = PEER,
        secret: str | None = SECRET,
        takes: bool = True,
        stalls: bool = False,
    ) -> None:
        """``takes``: the caller reads what it is sent. ``stalls``: the last part of its body never comes."""
        path, _, query = target.partition("?")
        sent = {"authorization": f"Bearer {secret}"} if secret is not None else {}
        self._scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in {**sent, **(headers or {})}.items()],
            "client": (peer, 50000),
        }
        self._parts = [data[at : at + 1000] for at in range(0, len(data), 1000)] or [b""]
        self._stalls = stalls
        self._messages: list[Message] = []
        self._gone = asyncio.Event()
        self._takes = asyncio.Event()
        if takes:
            self._takes.set()
        self.task = asyncio.ensure_future(app(self._scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if len(self._parts) > self._stalls:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._messages.append(message)
        await self._takes.wait()

    def hang_up(self) -> None:
        """The caller is gone."""
        self._parts.clear()
        self._gone.set()

    def take(self) -> None:
        """The caller reads from now on."""
        self._takes.set()

    @property
    def begun(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._messages)

    async def reply(self) -> Reply:
        """What came back."""
        await self.task
        start, *rest = self._messages
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]
        return Reply(start["status"], found, b"".join(message["body"] for message in rest))


async def call(app: ASGIApp, method: str, target: str, *args: object, **options: object) -> Reply:
    """One request, whole."""
    return await WorkerRequest(app, method, target, *args, **options).reply()  # type: ignore[arg-type]
