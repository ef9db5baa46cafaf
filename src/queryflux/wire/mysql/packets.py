"""Packets: three bytes of length, one of sequence, a payload; long payloads span several.

Both sides number the packets of one exchange from 0 and wrap at 256; a command begins a new exchange. A
payload of 0xFFFFFF bytes or more is cut into packets of exactly that length and a last one that is shorter,
empty if need be. Source: MySQL internals manual, "MySQL Packets".
"""

from queryflux.model.errors import ProtocolViolation, StatementTooLarge
from queryflux.wire.mysql.constants import MAX_PAYLOAD

HEADER = 4


class PacketCodec:
    """One side of the framing, for reading and writing; ``sequence`` is what the next packet must bear.

    No more than ``limit`` bytes of a payload are ever kept, plus what was fed last.
    """

    __slots__ = ("_buffer", "_long", "_offset", "_parts", "_skip", "_taken", "limit", "sequence")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sequence = 0
        self._buffer = bytearray()
        self._offset = 0
        self._parts: list[bytes] = []
        self._taken = 0
        self._skip = 0
        self._long = False

    def feed(self, data: bytes) -> None:
        """Take bytes that arrived."""
        if self._offset:
            del self._buffer[: self._offset]
            self._offset = 0
        self._buffer += data

    @property
    def pending(self) -> bool:
        """Bytes were fed that no payload has been made of."""
        return len(self._buffer) > self._offset or bool(self._taken) or self._long

    def take_rest(self) -> bytes:
        """Bytes that were fed and not read, which belong to another layer from here on."""
        rest = bytes(memoryview(self._buffer)[self._offset :])
        self._buffer.clear()
        self._offset = 0
        return rest

    def receive(self) -> bytes | None:
        """The next whole payload, or None until more is fed.

        Raises ProtocolViolation for a wrong sequence number; StatementTooLarge when a payload over ``limit``
        has gone by, of which nothing was kept: the exchange can go on with an error.
        """
        while True:
            if self._skip and not self._drop():
                return None
            start = self._offset + HEADER
            if len(self._buffer) < start:
                return None
            length = int.from_bytes(self._buffer[start - HEADER : start - 1], "little")
            if self._long or self._taken + length > self.limit:
                self._pass_over(length)
            elif len(self._buffer) < start + length:
                return None
            else:
                self._check_sequence(self._buffer[start - 1])
                self._offset = start + length
                part = bytes(memoryview(self._buffer)[start : self._offset])
                if length < MAX_PAYLOAD:
                    return self._whole(part)
                self._parts.append(part)
                self._taken += length

    def _whole(self, part: bytes) -> bytes:
        if not self._parts:
            return part
        payload = b"".join((*self._parts, part))
        self._parts.clear()
        self._taken = 0
        return payload

    def _check_sequence(self, number: int) -> None:
        if number != self.sequence:
            raise ProtocolViolation(
                f"packets are out of order: packet {number} came where {self.sequence} was due",
                hint="a connection must not be used by two threads at once",
            )
        self.sequence = (number + 1) & 0xFF

    def _pass_over(self, length: int) -> None:
        """Go past a packet of a payload that is too long, header first; its last one ends the skipping."""
        self._check_sequence(self._buffer[self._offset + HEADER - 1])
        self._offset += HEADER
        self._parts.clear()
        self._taken = 0
        self._long = length == MAX_PAYLOAD
        self._skip = length
        if not length:
            self._refuse()

    def _drop(self) -> bool:
        """Drop what has come of the packet that is passed over; True when all of it has."""
        dropped = min(self._skip, len(self._buffer) - self._offset)
        self._offset += dropped
        self._skip -= dropped
        if self._skip:
            return False
        if not self._long:
            self._refuse()
        return True

    def _refuse(self) -> None:
        raise StatementTooLarge(
            f"the statement is larger than {self.limit} bytes",
            hint="send it in parts, or raise maxStatementBytes",
        )

    def pack(self, *payloads: bytes) -> bytes:
        """Packets of ``payloads``, numbered on from ``sequence``."""
        out: list[bytes] = []
        sequence = self.sequence
        for payload in payloads:
            start, length = 0, len(payload)
            while length - start >= MAX_PAYLOAD:
                out += (b"\xff\xff\xff", _BYTE[sequence], payload[start : start + MAX_PAYLOAD])
                start += MAX_PAYLOAD
                sequence = (sequence + 1) & 0xFF
            out += ((length - start).to_bytes(3, "little"), _BYTE[sequence], payload[start:])
            sequence = (sequence + 1) & 0xFF
        self.sequence = sequence
        return b"".join(out)


_BYTE = [bytes((number,)) for number in range(256)]
