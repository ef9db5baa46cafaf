"""What drivers send in one piece for the usual statement, recognised by its ends and not taken apart.

Whatever is not of such a shape, or is damaged, is left to ``messages``: None.
"""

import struct

from queryflux.wire.postgres.messages import SMALL_MESSAGE

_length_at = struct.Struct("!I").unpack_from

_EXECUTE_AND_SYNC = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\4"
_AFTER_BIND = {b"D\0\0\0\6P\0" + _EXECUTE_AND_SYNC: True, _EXECUTE_AND_SYNC: False}
"""What follows Bind, all of the unnamed portal and without a row limit, and whether Describe is in it."""


def query_alone(data: bytes) -> str | None:
    """The text, when ``data`` begins with Q and is one Query message."""
    size = len(data)
    if not 5 < size <= SMALL_MESSAGE or _length_at(data, 1)[0] != size - 1 or data.find(0, 5) != size - 1:
        return None
    try:
        return data[5:-1].decode()
    except UnicodeDecodeError:
        return None


def execution_alone(data: bytes) -> tuple[str, int, int, bool] | None:
    """The name of the statement, when ``data`` begins with B and is Bind to the unnamed portal, perhaps
    Describe, Execute and Sync. Also where what follows the names begins, how much of it is Bind's, and
    whether there is a Describe."""
    if not 10 < len(data) <= SMALL_MESSAGE:
        return None
    length: int = _length_at(data, 1)[0]
    describe = _AFTER_BIND.get(data[length + 1 :])
    end = data.find(0, 6)
    if describe is None or data[5] or not 0 < end <= length:
        return None
    try:
        return data[6:end].decode(), end + 1, length - end, describe
    except UnicodeDecodeError:
        return None
