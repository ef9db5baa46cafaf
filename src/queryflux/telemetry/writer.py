"""Log lines reach their stream from a thread of their own: a terminal or pipe that is stuck stops nobody.

What waits is bounded in characters; beyond that lines are dropped, counted, and the count is written as soon
as the stream takes lines again.
"""

import contextlib
import queue
import sys
import threading
from typing import IO

MAX_WAITING_CHARS = 4 << 20
CLOSE_SECS = 2.0


class LineWriter:
    """Writes whole lines to ``stream`` (standard error as it is at each write) in order."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> None:
        """Queue lines; never blocks, never raises. Callable from any thread."""
        with self._lock:
            if self._waiting > MAX_WAITING_CHARS:
                self._dropped += text.count("\n")
                return
            if self._dropped:
                text = f"... {self._dropped} log lines were dropped: nobody read them in time\n{text}"
                self._dropped = 0
            self._waiting += len(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="log writer", daemon=True)
                self._thread.start()
        self._lines.put(text)

    def _work(self) -> None:
        while (text := self._lines.get()) is not None:
            stream = self._stream or sys.stderr
            with contextlib.suppress(OSError, ValueError):  # a closed stream: there is nobody left to tell
                stream.write(text)
                stream.flush()
            with self._lock:
                self._waiting -= len(text)

    def close(self) -> None:
        """Write what waits, for two seconds at most. Lines that come later are written too."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._lines.put(None)
            thread.join(CLOSE_SECS)


STDERR = LineWriter()
"""The process's own log."""
