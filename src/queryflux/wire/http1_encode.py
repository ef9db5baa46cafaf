"""Encoding of HTTP/1.1 messages, the gzip coding, and the error both sides share."""

import zlib
from collections.abc import Iterable

from queryflux.model.errors import ProtocolViolation

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

REASONS = {
    200: "OK",
    204: "No Content",
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

Headers = Iterable[tuple[str, str]]


class HttpViolation(ProtocolViolation):
    """Bytes that are not HTTP/1.1 as we take it. ``status`` is what a server answers before it closes."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def _head(first: str, headers: Headers) -> list[str]:
    lines = [first]
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ProtocolViolation(f"the value of header {name} holds a line break or NUL")
        lines.append(f"{name}: {value}\r\n")
    return lines


def encode_request(method: str, target: str, headers: Headers, body: bytes | None = None) -> bytes:
    """A request with its body. ``headers`` must hold Host. Raises ProtocolViolation for values that would
    break out of their header."""
    if any(byte <= " " or byte == "\x7f" for byte in target):
        raise ProtocolViolation("the request target holds a space or a control character")
    lines = _head(f"{method} {target} HTTP/1.1\r\n", headers)
    if body is None:
        lines.append("\r\n")
        return "".join(lines).encode("latin-1", "replace")
    lines.append(f"Content-Length: {len(body)}\r\n\r\n")
    return "".join(lines).encode("latin-1", "replace") + body


def encode_response(
    status: int, headers: Headers, body: bytes = b"", *, keep_alive: bool = True, head_only: bool = False
) -> bytes:
    """A response with its body; ``head_only`` answers HEAD: the length is told, the body is not sent."""
    lines = _head(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n", headers)
    if not keep_alive:
        lines.append("Connection: close\r\n")
    lines.append("\r\n" if status == 204 else f"Content-Length: {len(body)}\r\n\r\n")
    head = "".join(lines).encode("latin-1", "replace")
    return head if head_only else head + body


def encode_chunked_head(status: int, headers: Headers, *, keep_alive: bool = True) -> bytes:
    """The head of a response whose body follows in ``encode_chunk`` and ends with LAST_CHUNK."""
    lines = _head(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n", headers)
    lines.append(
        "Transfer-Encoding: chunked\r\n\r\n"
        if keep_alive
        else "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return "".join(lines).encode("latin-1", "replace")


def encode_chunk(data: bytes) -> bytes:
    """One chunk; empty data gives nothing, since an empty chunk would be the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() in {"gzip", "x-gzip", "*"}:
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def gzip(body: bytes, level: int = 1) -> bytes:
    """``body`` in gzip form. Releases the GIL: call it in a thread when the body is large."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def gunzip(body: bytes, max_bytes: int) -> bytes:
    """The bytes of one gzip member. Raises HttpViolation: it is broken, or unpacks to over ``max_bytes``."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(body, max_bytes + 1)
        if len(data) > max_bytes:
            raise HttpViolation(f"the body unpacks to more than {max_bytes} bytes", 413)
        if not unpacker.eof:
            raise HttpViolation("the gzip body is cut short")
    except zlib.error as error:
        raise HttpViolation(f"the gzip body is broken: {error}") from None
    return data


def unpack(body: bytes, coding: str | None, max_bytes: int) -> bytes:
    """A body without its coding, of which only gzip was asked for. Raises HttpViolation as ``gunzip`` does,
    and for others."""
    if coding is None or (name := coding.strip().lower()) == "identity":
        return body
    if name not in {"gzip", "x-gzip"}:
        raise HttpViolation(f"the answer is packed as {name!r}, which was not asked for")
    return gunzip(body, max_bytes)
