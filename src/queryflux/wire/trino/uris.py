"""The URIs in a coordinator's page, replaced by ours; every other byte stays as it came."""

import re

import msgspec

_KEYS = (b'"infoUri"', b'"partialCancelUri"', b'"nextUri"')
_VALUES = re.compile(rb'"(?:data|columns|stats|error)"')
_HEAD_BYTES = 2048
_SECOND = b'","infoUri":"'
_document = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rewrite(body: bytes, info: bytes, partial_cancel: bytes | None, following: bytes | None) -> bytes:
    """The page with its ``infoUri``, ``partialCancelUri`` and ``nextUri`` replaced, each only where it is
    present; with None it is left out. Our URIs must need no escaping in JSON. Raises ValueError for a body
    that is no JSON object.

    Trino writes these keys before anything that holds users' values, so they are looked for there first; a
    page in another order is taken apart at its top level, without a look into the values.
    """
    uris = (info, partial_cancel, following)
    first_value = _VALUES.search(body, 0, _HEAD_BYTES)
    if first_value is None:
        return _rebuilt(body, uris)
    stop = first_value.start()
    if body.find(b'Uri"', stop) >= 0:  # the end of each key: somewhere, perhaps among users' values
        return _rebuilt(body, uris)
    prefix = body[:stop]
    for key, uri in zip(_KEYS, uris, strict=True):
        start = prefix.find(key)
        if start < 0:
            continue
        start += len(key) + 2
        end = prefix.find(b'"', start)
        if uri is None or end < 0 or prefix[start - 2 : start] != b':"':
            return _rebuilt(body, uris)
        prefix = prefix[:start] + uri + prefix[end:]
    return prefix + body[stop:]


def sole_uri(body: bytes) -> tuple[int, int] | None:
    """Where the value of ``infoUri`` begins and ends in a page that has no other URI, and that Trino wrote as
    it does: ``id`` first, ``infoUri`` second. None: take ``rewrite``."""
    if not body.startswith(b'{"id":"'):
        return None
    start = body.find(b'"', 7)
    if not body.startswith(_SECOND, start):
        return None
    start += len(_SECOND)
    stop = body.find(b'"', start)
    if stop < 0 or body.find(b'Uri"', stop) >= 0 or body.find(b"\\", 0, stop) >= 0:
        return None
    return start, stop


def id_of(body: bytes) -> str:
    """The coordinator's own id of a page's query; empty when it does not stand first, as Trino writes it."""
    if not body.startswith(b'{"id":"'):
        return ""
    return body[7 : body.find(b'"', 7)].decode("latin-1")


def _rebuilt(body: bytes, uris: tuple[bytes | None, bytes | None, bytes | None]) -> bytes:
    try:
        members = _document.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"the page is no JSON object: {error}") from None
    ours = dict(zip(("infoUri", "partialCancelUri", "nextUri"), uris, strict=True))
    parts: list[bytes] = []
    for name, value in members.items():
        raw = bytes(value)
        if name in ours and raw != b"null":
            uri = ours[name]
            if uri is None:
                continue
            raw = b'"' + uri + b'"'
        parts.append(msgspec.json.encode(name) + b":" + raw)
    return b"{" + b",".join(parts) + b"}"


class _Uris(msgspec.Struct, rename="camel"):
    partial_cancel_uri: str | None = None


_uris = msgspec.json.Decoder(_Uris)


def partial_cancel_of(body: bytes) -> str | None:
    """The page's ``partialCancelUri``. Raises ValueError for what is no such page."""
    key = _KEYS[1]
    place = body.find(key, 0, _HEAD_BYTES)
    if place < 0 and key not in body:
        return None
    start = place + len(key) + 2
    first_value = _VALUES.search(body, 0, _HEAD_BYTES)
    if first_value is not None and 0 <= place < first_value.start() and body[start - 2 : start] == b':"':
        value = body[start : body.index(b'"', start)]
        if b"\\" not in value:
            return value.decode("latin-1")
    try:
        return _uris.decode(body).partial_cancel_uri
    except msgspec.MsgspecError as error:
        raise ValueError(f"the page cannot be read: {error}") from None
