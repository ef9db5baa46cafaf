"""Listening sockets that several processes share, and whose turn it is to accept.

The kernel wakes all of them for every connection, and the one that is awake already tends to win again and
again. So each writes down how many connections it has, in a small file that all have mapped: the one with the
fewest accepts at once, one connection at a time, and the others leave it STEP_ASIDE_SECONDS to do so. A
process that does not come to it, for whatever reason, holds up nobody for longer. One that cannot do anything
for a client yet is reluctant: it leaves it to the others for RELUCTANT_SECONDS.
"""

import asyncio
import logging
import mmap
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

STEP_ASIDE_SECONDS = 0.003
RELUCTANT_SECONDS = 0.5
PAUSE_SECONDS = 0.2
"""After an accept that failed, such as for want of file descriptors."""
_CELL = struct.Struct("=I")
_ABSENT = 0xFFFFFFFF
_RELUCTANT = 0x80000000
"""Added to the number of connections."""


def make_tally(path: Path, listeners: int, processes: int) -> None:
    """The file, in which nobody accepts yet."""
    path.write_bytes(_CELL.pack(_ABSENT) * (listeners * processes))


class Tally:
    """How many connections each process has of one listener."""

    def __init__(self, path: Path, listener: int, processes: int, mine: int) -> None:
        """``listener`` and ``mine`` count from 0: which listener this is about, and which process this is."""
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._start = listener * processes
        self._processes = processes
        self._mine = mine
        self._reluctant = False
        self._connections: int | None = None
        self._arriving = 0

    @property
    def reluctant(self) -> bool:
        """This process has nothing to offer yet."""
        return self._reluctant

    @reluctant.setter
    def reluctant(self, reluctant: bool) -> None:
        self._reluctant = reluctant
        self._write()

    def write(self, connections: int | None) -> None:
        """How many this process has; None: it accepts none."""
        self._connections = connections
        self._write()

    def arriving(self, more: int) -> None:
        """So many more of this process are on their way: accepted, and not in its count yet."""
        self._arriving += more
        self._write()

    def _write(self) -> None:
        if self._connections is None:
            self.write_for(self._mine, None)
        else:
            reluctant = _RELUCTANT if self._reluctant else 0
            self.write_for(self._mine, self._connections + self._arriving | reluctant)

    def write_for(self, process: int, connections: int | None) -> None:
        """The same for another process, which has gone."""
        value = _ABSENT if connections is None else connections
        _CELL.pack_into(self._map, (self._start + process) * _CELL.size, value)

    def _cells(self) -> list[int]:
        return [
            int(_CELL.unpack_from(self._map, (self._start + process) * _CELL.size)[0])
            for process in range(self._processes)
        ]

    def is_my_turn(self) -> bool:
        """Nobody else has fewer connections."""
        cells = self._cells()
        return cells[self._mine] <= min(cells)

    def total(self) -> int:
        """The connections of all."""
        return sum(cell & ~_RELUCTANT for cell in self._cells() if cell != _ABSENT)

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


@dataclass(frozen=True, slots=True)
class Shared:
    """What a process inherits of a listener: its sockets, which listen, and the tally."""

    sockets: tuple[socket.socket, ...]
    tally: Tally


class Acceptor:
    """Accepts on a socket that others accept on too."""

    def __init__(
        self, shared: Shared, listening: socket.socket, made: Callable[[ByteStream], object]
    ) -> None:
        """``made`` is given each connection, and writes the tally from then on."""
        self._tally = shared.tally
        self._socket = listening
        self._made = made
        self._tasks = TaskGroup("accepting")
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening.fileno(), self._ready)

    def _ready(self) -> None:
        if self._tally.is_my_turn():
            self._accept()
        else:
            self._pause(RELUCTANT_SECONDS if self._tally.reluctant else STEP_ASIDE_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._later = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._later = None
        self._loop.add_reader(self._socket.fileno(), self._ready)
        self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process has it, or its client has gone
        except OSError as error:
            log.error("a connection cannot be accepted: %s", error.strerror or error)
            if self._later is None:
                self._pause(PAUSE_SECONDS)
            return
        self._tally.arriving(1)
        self._tasks.spawn("connection", self._begin(connection))

    async def _begin(self, connection: socket.socket) -> None:
        came = False

        def made(stream: ByteStream) -> None:
            nonlocal came
            came = True
            self._tally.arriving(-1)
            self._made(stream)

        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: ByteStream(made), connection)
        except OSError as error:
            log.debug("a connection was lost as it was accepted: %s", error)
            connection.close()
        finally:
            if not came:
                self._tally.arriving(-1)

    def close(self) -> None:
        """Accept no more. The socket is its owner's to close."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        else:
            self._loop.remove_reader(self._socket.fileno())
