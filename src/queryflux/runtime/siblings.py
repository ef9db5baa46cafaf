"""Processes of one host that stand behind the same ports, and ask each other for what only the other holds.

Each listens on a Unix socket that is named by its tag, in a directory that nobody but their user may enter,
and takes questions from whoever shows the secret that all of them were given at their start. A question and
its answer look the same: a head (a small map), any number of parts, an end. Nobody sends a part before the
one before it was taken, so that an answer of any size needs little room. One question at a time goes over a
connection; who does not wait for the answer any more closes it, and that ends the work on it.

A process that has gone is noticed at once: its socket refuses, or is not there.
"""

import asyncio
import hmac
import logging
import os
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from queryflux.runtime.bytestream import ByteStream, connect_unix
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
CROWDED_SECONDS = 0.02
BACKLOG = 4096
"""Connections that wait to be accepted, as far as the system lets: a process may be busy for a moment."""
SHOW_SECONDS = 5.0
"""How long a caller may take to show the secret."""
MAX_FRAME_BYTES = 1 << 29
MAX_SECRET_BYTES = 256
MAX_IDLE = 16

_SECRET, _HEAD, _PART, _END, _FAILED = b"S", b"H", b"P", b"E", b"F"
_FRAME = struct.Struct(">cI")

About = dict[str, Any]

_QUESTION = msgspec.msgpack.Decoder(tuple[str, About])


class SiblingGone(Exception):
    """There is no such process, or it went away before it had answered."""


class SiblingFailed(Exception):
    """It could not answer: too slow, or a fault of its own, which is in its log."""


class Frames:
    """A connection as frames: one byte for the kind, the length, the content."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def read(self, most: int = MAX_FRAME_BYTES) -> tuple[bytes, bytes]:
        """The next one. Raises ConnectionError at the end of the connection, and for one over ``most``."""
        await self._fill(_FRAME.size)
        kind, length = _FRAME.unpack_from(self._buffer)
        if length > most:
            raise ConnectionAbortedError(f"a frame of {length} bytes")
        stop = _FRAME.size + length
        await self._fill(stop)
        content = bytes(memoryview(self._buffer)[_FRAME.size : stop])
        del self._buffer[:stop]
        return kind, content

    async def _fill(self, size: int) -> None:
        while len(self._buffer) < size:
            data = await self.stream.read()
            if not data:
                raise ConnectionResetError("the other process closed the connection")
            self._buffer += data

    def write(self, kind: bytes, content: "bytes | bytearray | memoryview" = b"") -> None:
        """Queue one."""
        self.stream.write(_FRAME.pack(kind, len(content)))
        if content:
            self.stream.write(content)

    async def send(self, kind: bytes, content: "bytes | bytearray | memoryview" = b"") -> None:
        """Queue one and wait until there is room for more. Raises ConnectionError."""
        self.write(kind, content)
        await self.stream.drain()


class Question:
    """What another process asks; its answer goes back by ``head`` and ``part``."""

    def __init__(self, about: About, body: bytes, frames: Frames) -> None:
        self.about = about
        self.body = body
        self._frames = frames
        self._begun = self._ended = False

    async def head(self, about: Mapping[str, Any]) -> None:
        """Begin the answer. Raises ConnectionError when nobody waits for it any more, as ``part``."""
        self._begun = True
        await self._frames.send(_HEAD, msgspec.msgpack.encode(about))

    async def part(self, data: "bytes | bytearray | memoryview") -> None:
        """Go on with it, once the part before has been taken."""
        await self._frames.send(_PART, data)

    async def end(self, about: Mapping[str, Any] | None = None) -> None:
        """It is complete, and ``about`` is the last that is said. What an answerer has said when it returns
        is complete without it."""
        if self._ended:
            return
        self._ended = True
        if not self._begun:
            await self.head({})
        await self._frames.send(_END, msgspec.msgpack.encode(about) if about else b"")


Answerer = Callable[[Question], Awaitable[None]]


class Told:
    """An answer as it arrives: ``about`` at once, parts as they are asked for, ``ending`` with the last.
    Close it."""

    def __init__(self, about: About, frames: Frames, done: Callable[[bool], None]) -> None:
        self.about = about
        self.ending: About = {}
        self._frames = frames
        self._done: Callable[[bool], None] | None = done

    async def part(self) -> bytes | None:
        """The next part; None at the end. Raises SiblingGone, SiblingFailed."""
        if self._done is None:
            return None
        try:
            kind, content = await self._frames.read()
        except OSError as error:
            self.close()
            raise SiblingGone(str(error)) from error
        except BaseException:
            self.close()
            raise
        if kind == _PART:
            return content
        done, self._done = self._done, None
        done(kind == _END)
        if kind != _END:
            raise SiblingFailed(content.decode())
        self.ending = msgspec.msgpack.decode(content) if content else {}
        return None

    async def body(self) -> bytes:
        """All parts together. Raises as ``part``."""
        parts = []
        while (part := await self.part()) is not None:
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Nobody wants the rest. May be called twice."""
        done, self._done = self._done, None
        if done is not None:
            done(False)


class Siblings:
    """This process among those that stand behind the same ports."""

    def __init__(self, directory: Path, tag: str, secret: bytes) -> None:
        """``tag`` names this process, and is part of every id that a client gets from it; without one it only
        asks. ``secret`` is what all of them know."""
        self.tag = tag
        self._directory = directory
        self._secret = secret
        self._answerers: dict[str, Answerer] = {}
        self._idle: defaultdict[str, list[Frames]] = defaultdict(list)
        self._tasks = TaskGroup("siblings")
        self._server: asyncio.Server | None = None
        self._closed = False
        self._metrics: Metrics | None = None

    def count_in(self, metrics: Metrics) -> None:
        """Count what is asked from now on."""
        self._metrics = metrics

    def answers(self, name: str, answerer: Answerer) -> None:
        """Questions of this name are for ``answerer``, which must tell every error it knows of in the answer;
        it is cancelled when nobody waits for the answer any more."""
        self._answerers[name] = answerer

    @property
    def path(self) -> Path:
        """Where this process listens."""
        return self._directory / self.tag

    async def start(self) -> None:
        """Begin to answer. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: ByteStream(self._connected), str(self.path), backlog=BACKLOG
        )

    async def close(self) -> None:
        """Ask nothing and answer nothing any more; the socket is removed."""
        self._closed = True
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        for connections in self._idle.values():
            for frames in connections:
                frames.stream.abort()
        self._idle.clear()
        await self._tasks.close()

    def others(self) -> list[str]:
        """The tags of the others, those of some that have just gone perhaps among them."""
        return sorted(name for name in os.listdir(self._directory) if name != self.tag and "." not in name)

    # Asking.

    async def ask(
        self, tag: str, name: str, about: Mapping[str, Any], body: bytes = b"", *, seconds: float = 20.0
    ) -> tuple[About, bytes]:
        """The head and the body of an answer. Raises SiblingGone, SiblingFailed."""
        try:
            async with asyncio.timeout(seconds):
                told = await self.open(tag, name, about, body)
                try:
                    return told.about, await told.body()
                finally:
                    told.close()
        except TimeoutError:
            raise SiblingFailed(f"no answer within {seconds:g} s") from None

    async def ask_all(self, name: str, about: Mapping[str, Any]) -> AsyncIterator[tuple[About, bytes]]:
        """Ask all others at the same time; who has gone or cannot answer is left out."""
        asked = [self.ask(tag, name, about) for tag in self.others()]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, SiblingFailed):
                log.warning("a sibling process did not answer a question (%s): %s", name, outcome)
            elif isinstance(outcome, BaseException):
                if not isinstance(outcome, SiblingGone):
                    raise outcome
            else:
                yield outcome

    async def open(self, tag: str, name: str, about: Mapping[str, Any], body: bytes = b"") -> Told:
        """Ask, and give the answer once it begins. Raises SiblingGone, SiblingFailed."""
        outcome = "given up"
        try:
            told = await self._open(tag, name, about, body)
            outcome = "answered"
        except SiblingGone:
            outcome = "gone"
            raise
        except SiblingFailed:
            outcome = "failed"
            raise
        finally:
            if self._metrics is not None:
                self._metrics.counter(
                    "queryflux_sibling_questions_total", question=name, outcome=outcome
                ).inc()
        return told

    async def _open(self, tag: str, name: str, about: Mapping[str, Any], body: bytes) -> Told:
        idle = self._idle[tag]
        while idle:
            frames = idle.pop()
            if not frames.stream.closed:
                try:
                    return await self._exchange(tag, frames, name, about, body)
                except SiblingGone:
                    break  # it was closed just now, or the process has gone: a new connection tells
        return await self._exchange(tag, await self._connect(tag), name, about, body)

    async def _connect(self, tag: str) -> Frames:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                stream = await self._reach(tag)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise SiblingGone(str(error.strerror)) from error
        except OSError as error:
            reason = error.strerror or f"it accepts nothing within {CONNECT_SECONDS:g} s"
            raise SiblingFailed(f"no connection: {reason}") from error
        finally:
            if not self._idle.get(tag):
                self._idle.pop(tag, None)
        frames = Frames(stream)
        frames.write(_SECRET, self._secret)
        return frames

    async def _reach(self, tag: str) -> ByteStream:
        while True:
            try:
                return await connect_unix(str(self._directory / tag), timeout=CONNECT_SECONDS)
            except BlockingIOError:  # so many wait there already that the system lets no more
                await asyncio.sleep(CROWDED_SECONDS)

    async def _exchange(
        self, tag: str, frames: Frames, name: str, about: Mapping[str, Any], body: bytes
    ) -> Told:
        def done(whole: bool) -> None:
            idle = self._idle[tag] if whole and not self._closed else None
            if idle is not None and len(idle) < MAX_IDLE:
                idle.append(frames)
                frames.stream.on_gone(lambda: self._forget(tag, frames))
            else:
                frames.stream.abort()

        try:
            frames.write(_HEAD, msgspec.msgpack.encode((name, about)))
            if body:
                await frames.send(_PART, body)
            frames.write(_END)
            kind, content = await frames.read()
        except OSError as error:
            done(False)
            raise SiblingGone(str(error)) from error
        except BaseException:
            done(False)
            raise
        if kind != _HEAD:
            done(False)
            raise SiblingFailed(content.decode())
        return Told(msgspec.msgpack.decode(content), frames, done)

    def _forget(self, tag: str, frames: Frames) -> None:
        """The other side has closed a connection; with the last one goes what is known of its process."""
        frames.stream.abort()
        idle = self._idle.get(tag, [])
        if frames in idle:
            idle.remove(frames)
        if not idle:
            self._idle.pop(tag, None)

    # Answering.

    def _connected(self, stream: ByteStream) -> None:
        if self._closed:
            stream.abort()
        else:
            self._tasks.spawn("connection", self._serve(stream))

    async def _serve(self, stream: ByteStream) -> None:
        frames = Frames(stream)
        try:
            async with asyncio.timeout(SHOW_SECONDS):
                kind, shown = await frames.read(MAX_SECRET_BYTES)
            if kind != _SECRET or not hmac.compare_digest(shown, self._secret):
                log.warning("a connection to %s did not show the secret", self.path)
                return
            while not self._closed:
                await self._take(frames)
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            log.debug("the connection of a sibling ended: %s", error)
        finally:
            stream.abort()

    async def _take(self, frames: Frames) -> None:
        _, content = await frames.read()
        name, about = _QUESTION.decode(content)
        parts = []
        while (frame := await frames.read())[0] == _PART:
            parts.append(frame[1])
        answerer = self._answerers.get(name)
        if answerer is None:
            await frames.send(_FAILED, b"it does not know such questions")
            return
        question = Question(about, b"".join(parts), frames)
        work = self._tasks.spawn(f"answer to {name}", self._answer(answerer, question, frames))
        frames.stream.on_gone(work.cancel)
        try:
            await asyncio.wait({work})
        finally:
            frames.stream.on_gone(None)

    @staticmethod
    async def _answer(answerer: Answerer, question: Question, frames: Frames) -> None:
        try:
            await answerer(question)
            await question.end()
        except ConnectionError as error:
            log.debug("nobody waits for an answer any more: %s", error)
        except Exception:
            log.exception("a question of a sibling process failed")
            await frames.send(_FAILED, b"internal error; the operator finds the cause in its log")
