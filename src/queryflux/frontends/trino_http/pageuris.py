"""The URIs of a statement's pages, with a part that nobody can guess."""

import secrets
from dataclasses import dataclass

_KINDS = ("queued", "executing", "partial")


@dataclass(frozen=True, slots=True)
class Place:
    """What a statement URI names: query, unguessable part, page."""

    kind: str
    query_id: str
    slug: str
    token: int


def place_of(path: str) -> Place | None:
    """The parts of ``/v1/statement/qf/{kind}/{id}/{slug}/{token}``; None for anything else."""
    parts = path.split("/")
    if len(parts) != 8 or parts[3] != "qf" or parts[4] not in _KINDS:
        return None
    token = parts[7]
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        return None
    return Place(parts[4], parts[5], parts[6], int(token))


class PageUris:
    """``base`` is the scheme, host and prefix that the client reached us by last."""

    __slots__ = ("_query_id", "_slug", "base")

    def __init__(self, base: bytes, query_id: str) -> None:
        self.base = base
        self._query_id = query_id.encode()
        self._slug = ""

    @property
    def slug(self) -> str:
        """The unguessable part, the same in all of them."""
        if not self._slug:
            self._slug = secrets.token_hex(16)
        return self._slug

    def goes_on_with(self, slug: str | None) -> None:
        """Another process has given URIs out before; None: they are not known here."""
        self._slug = slug or ""

    def matches(self, slug: str) -> bool:
        """Whether a URI's unguessable part is ours."""
        return bool(self._slug) and secrets.compare_digest(slug.encode(), self._slug.encode())

    def page(self, kind: bytes, token: int) -> bytes:
        """Where page ``token`` is; ``kind`` is one of _KINDS."""
        return b"%b/v1/statement/qf/%b/%b/%b/%d" % (
            self.base,
            kind,
            self._query_id,
            self.slug.encode(),
            token,
        )

    @property
    def info(self) -> bytes:
        """What people may look at."""
        return b"%b/ui/query.html?%b" % (self.base, self._query_id)
