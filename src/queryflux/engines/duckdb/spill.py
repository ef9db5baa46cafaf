"""A folder where an instance puts what does not fit its memory, private to this process.

A process that is killed leaves its folder behind. Each is locked while it is in use, and the lock goes with
its process; who makes one removes those that nobody holds any more. (Locks of folders reach across the
containers of one host, process ids do not.)
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "queryflux-spill-"
_YOUNG_SECS = 60.0
"""So long a folder may stand between being made and being locked."""


class SpillFolder:
    """A new folder, until it is closed."""

    def __init__(self, now: float) -> None:
        """``now`` as files are stamped. Raises OSError."""
        _remove_left_over(Path(tempfile.gettempdir()), now - _YOUNG_SECS)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: then nobody else can tell that it is unused
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_left_over(parent: Path, before: float) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(lock)
                if found.st_uid != os.geteuid() or found.st_mtime > before:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
