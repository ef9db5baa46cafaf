"""A worker's seat beside others on one host: what its parent gives it, and the line between the two.

The line is a pair of connected sockets, one end of which the child inherits: everything it is to know comes
by it, secrets too, so that none stands on a command line or in the environment. As long as it is open the
parent lives; when it ends, the child ends. See supervisor.py for the parent's side.
"""

import asyncio
import logging
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from queryflux.config.hooks import decode_hook
from queryflux.config.process import ProcessConfig
from queryflux.config.snapshot import document_of
from queryflux.model.errors import QueryFluxError
from queryflux.model.secret import Secret
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.siblings import Frames, Siblings
from queryflux.runtime.turns import Shared, Tally

log = logging.getLogger(__name__)

GIVEN, UP, READY, FAILED, ALIVE = b"G", b"U", b"R", b"X", b"A"
"""What is said to the child at first, and what the child says."""
DRAIN, HURRY = b"D", b"N"
"""What the parent says at the end."""
LOOK_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 1.0
"""How often a process that has been ready looks whether it still is."""
TALLY = "connections.tally"


class Place(Struct, frozen=True, kw_only=True):
    """What a child is given. ``sockets`` are the file descriptors that listen for each door, in the order of
    the tally; ``secret`` is that of the siblings; ``process`` is the child's own configuration as JSON, its
    secrets among it. ``sign_secs`` is how often it says that it lives."""

    number: int
    of: int
    tag: str
    directory: str
    secret: bytes
    process: dict[str, Any]
    sockets: dict[str, list[int]]
    sign_secs: float


class Failure(Struct, frozen=True):
    """Why a child cannot serve."""

    message: str
    hint: str = ""


@dataclass(slots=True)
class Seat:
    """A process's place among siblings. ``together``: all of them leave, so that this one goes on to accept
    while it drains."""

    tag: str
    siblings: Siblings
    shared: Mapping[str, Shared]
    together: bool = False

    def configured(self) -> None:
        """This process can do something for clients from now on; it left them to the others before."""
        for shared in self.shared.values():
            shared.tally.reluctant = False


class Seated(Protocol):
    """What the line needs of the process that sits there."""

    def check_ready(self) -> None:
        """Raises QueryFluxError that says why it is not ready."""

    def request_stop(self) -> None:
        """The first time to drain, the second time to end."""

    def ports(self) -> Mapping[str, int]:
        """The ports that are open, by their keys."""


def process_document(process: ProcessConfig) -> dict[str, Any]:
    """A process's configuration with its secrets, for its child alone."""
    document: dict[str, Any] = document_of(process, Secret.reveal)
    return document


def process_of(place: Place) -> ProcessConfig:
    """The other way round."""
    return msgspec.convert(place.process, ProcessConfig, dec_hook=decode_hook)


def temporary_folder(directory: Path, tag: str) -> Path:
    """Where the worker of a tag keeps temporary files: its parent removes them if it is killed."""
    return directory / f"{tag}.tmp"


def seat_of(place: Place) -> Seat:
    """Take what was inherited into use."""
    directory = Path(place.directory)
    tempfile.tempdir = str(temporary_folder(directory, place.tag))
    Path(tempfile.tempdir).mkdir(mode=0o700)
    shared = {}
    for listener, (door, numbers) in enumerate(place.sockets.items()):
        tally = Tally(directory / TALLY, listener, place.of, place.number)
        tally.reluctant = True
        shared[door] = Shared(tuple(inherited(number) for number in numbers), tally)
    return Seat(place.tag, Siblings(directory, place.tag, place.secret), shared)


def inherited(number: int) -> socket.socket:
    """A socket that the parent has passed on, which goes no further: a process that this one starts could
    keep the port taken, or the line open, when both have gone. Raises OSError when it is none."""
    taken = socket.socket(fileno=number)
    taken.set_inheritable(False)
    return taken


async def open_line(end: socket.socket) -> Frames:
    """One end of a line."""
    end.setblocking(False)
    _, stream = await asyncio.get_running_loop().create_unix_connection(ByteStream, sock=end)
    return Frames(stream)


class Line:
    """The child's end."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._stopped = False
        self._alive: asyncio.Future[None] | None = None
        self.orphaned = False
        """The parent has gone."""

    async def place(self) -> Place:
        """What this process is given; from now on it says that it lives. Raises ConnectionError when the
        parent has gone."""
        _, content = await self._frames.read()
        place = msgspec.msgpack.decode(content, type=Place)
        self._alive = asyncio.ensure_future(self._live(place.sign_secs))
        return place

    async def _live(self, seconds: float) -> None:
        """What only a loop that runs can do."""
        while True:
            self._frames.write(ALIVE)
            await asyncio.sleep(seconds)

    def _say_no_more(self) -> None:
        if self._alive is not None:
            self._alive.cancel()

    async def failed(self, error: QueryFluxError) -> None:
        """It cannot serve."""
        self._say_no_more()
        self._frames.write(FAILED, msgspec.msgpack.encode(Failure(error.message, error.hint)))
        self._frames.stream.close()
        await self._frames.stream.wait_closed()

    async def attend(self, seated: Seated, seat: Seat) -> None:
        """From when it is up until it ends: say how it is, do what the parent says, and end with the
        parent."""
        self._frames.write(UP, msgspec.msgpack.encode(dict(seated.ports())))
        telling = asyncio.ensure_future(self._tell(seated))
        try:
            while True:
                kind, _ = await self._frames.read()
                if kind == DRAIN:
                    seat.together = True
                    self._stop(seated)
                else:
                    self._stop(seated)
                    seated.request_stop()
        except ConnectionError:
            self.orphaned = True
            log.warning("the parent process has gone: this worker ends")
            self._stop(seated)
            seated.request_stop()
        finally:
            telling.cancel()

    def _stop(self, seated: Seated) -> None:
        if not self._stopped:
            self._stopped = True
            seated.request_stop()

    async def _tell(self, seated: Seated) -> None:
        """Why it is not ready, whenever that changes; nothing when it is."""
        told: str | None = None
        looks = LOOK_SECONDS
        while True:
            why = ""
            try:
                seated.check_ready()
            except QueryFluxError as error:
                why = error.message
            if why != told:
                told = why
                self._frames.write(READY, why.encode())
            looks = looks if why else LOOK_AGAIN_SECONDS
            await asyncio.sleep(looks)

    def close(self) -> None:
        """The process ends."""
        self._say_no_more()
        self._frames.stream.abort()
