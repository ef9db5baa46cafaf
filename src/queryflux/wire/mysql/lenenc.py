"""Integers and strings of the protocol, read with every bound checked.

Source: MySQL internals manual, "Protocol Basics", data types.
"""

from queryflux.model.errors import ProtocolViolation

NULL = b"\xfb"


def lenenc_int(value: int) -> bytes:
    """A length-encoded integer."""
    if value < 251:
        return bytes((value,))
    if value < 1 << 16:
        return b"\xfc" + value.to_bytes(2, "little")
    if value < 1 << 24:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def lenenc_bytes(value: bytes) -> bytes:
    """A length-encoded string."""
    return lenenc_int(len(value)) + value


class Cursor:
    """Reads a payload from front to back. Every method raises ProtocolViolation when it ends too early."""

    __slots__ = ("_data", "_what", "offset")

    def __init__(self, data: bytes, what: str, offset: int = 0) -> None:
        """``what`` names the message in errors."""
        self._data = data
        self._what = what
        self.offset = offset

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self.offset

    def broken(self, why: str) -> ProtocolViolation:
        """The error that says what is wrong with this message."""
        return ProtocolViolation(f"a {self._what} is malformed: {why}")

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count > self.left:
            raise self.broken(f"{count} bytes are due where {self.left} are left")
        start = self.offset
        self.offset = start + count
        return self._data[start : self.offset]

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(self.left)

    def fixed(self, count: int) -> int:
        """An unsigned little-endian integer of ``count`` bytes."""
        return int.from_bytes(self.take(count), "little")

    def until_nul(self) -> bytes:
        """A string that a NUL byte ends; the NUL is consumed."""
        end = self._data.find(b"\0", self.offset)
        if end < 0:
            raise self.broken("a string has no end")
        value = self._data[self.offset : end]
        self.offset = end + 1
        return value

    def length(self) -> int:
        """A length-encoded integer."""
        first = self.fixed(1)
        if first < 251:
            return first
        width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        if width is None:
            raise self.broken(f"0x{first:02x} does not begin a length")
        return self.fixed(width)

    def lenenc(self) -> bytes:
        """A length-encoded string."""
        return self.take(self.length())

    def text(self, value: bytes, field: str) -> str:
        """``value`` as UTF-8."""
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise self.broken(f"the {field} is not UTF-8") from None
