"""Cancel keys: what BackendKeyData gives a client, and a CancelRequest must show.

The process number names this process in its upper bits, and so does the longer key of protocol 3.2, so that
a cancel that reaches a sibling can be passed on to its owner.
"""

import hmac
import secrets
import zlib
from dataclasses import dataclass

from queryflux.pipeline.face import Conversation
from queryflux.wire.postgres.constants import PROTOCOL_3_2

_COUNT_BITS = 19
_TAG_BITS = 12
SHORT_KEY = 4
LONG_KEY = 32


@dataclass(frozen=True, slots=True)
class Issued:
    """A key and whose it is."""

    process: int
    key: bytes
    conversation: Conversation


def process_number(process_tag: str) -> int:
    """The upper bits of the process numbers that a process gives to its sessions."""
    return zlib.crc32(process_tag.encode()) & ((1 << _TAG_BITS) - 1)


def is_from(process_tag: str, process: int) -> bool:
    """Whether a process number was given by the process of that tag."""
    return process >> _COUNT_BITS == process_number(process_tag)


class CancelKeys:
    """The keys of the sessions that are open here."""

    def __init__(self, process_tag: str) -> None:
        self._tag = process_tag.encode()
        self._prefix = process_number(process_tag) << _COUNT_BITS
        self._last = 0
        self._issued: dict[int, Issued] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(self, conversation: Conversation, version: int) -> Issued:
        """A key for a new session."""
        while True:
            self._last = (self._last + 1) % (1 << _COUNT_BITS)
            process = self._prefix | self._last
            if self._last and process not in self._issued:
                break
        if version >= PROTOCOL_3_2:
            key = self._tag + secrets.token_bytes(LONG_KEY - len(self._tag))
        else:
            key = secrets.token_bytes(SHORT_KEY)
        issued = self._issued[process] = Issued(process, key, conversation)
        return issued

    def revoke(self, issued: Issued) -> None:
        """Its session has ended."""
        self._issued.pop(issued.process, None)

    def find(self, process: int, key: bytes) -> Conversation | None:
        """Whose key it is; None for one that is not ours, or wrong."""
        issued = self._issued.get(process)
        if issued is None or not hmac.compare_digest(issued.key, key):
            return None
        return issued.conversation
