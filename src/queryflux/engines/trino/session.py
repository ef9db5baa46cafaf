"""What a session is to the coordinator: the headers of a request, and what responses change of them.

A client of the Trino door keeps its session itself, in its own headers. For clients of other doors the
engine connection keeps what SET SESSION, USE, PREPARE and SET ROLE leave behind, as the coordinator's own
clients do.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import quote_plus, unquote_plus

from queryflux.engines.port import EngineRequest
from queryflux.model.errors import InvalidRequest
from queryflux.wire.trino.native import TrinoStatement

SOURCE = "queryflux"
CAPABILITIES = "PARAMETRIC_DATETIME,PATH"
"""Without PARAMETRIC_DATETIME every timestamp is cut to milliseconds."""

Pairs = tuple[tuple[str, str], ...]


def ascii_value(name: str, value: str) -> str:
    """A header value. Raises InvalidRequest for what a header cannot carry: replaced, it could name somebody
    or something else."""
    if not value.isascii() or not value.isprintable():
        raise InvalidRequest(f"{name} cannot be told to Trino: only printable ASCII fits into its headers")
    return value


class SessionState:
    """What statements of a client of another door have changed."""

    __slots__ = ("_catalog", "_path", "_prepared", "_properties", "_roles", "_schema")

    def __init__(self) -> None:
        self._catalog: str | None = None
        self._schema: str | None = None
        self._path: str | None = None
        self._properties: dict[str, str] = {}
        self._prepared: dict[str, str] = {}
        self._roles: dict[str, str] = {}

    def headers(self, request: EngineRequest, names: tuple[str, str]) -> Pairs:
        """The request headers of a statement; ``names`` are catalog and schema where none was set here."""
        catalog, schema = names
        found = [
            ("X-Trino-Source", SOURCE),
            ("X-Trino-Client-Capabilities", CAPABILITIES),
            ("X-Trino-Catalog", self._catalog or catalog),
            ("X-Trino-Schema", self._schema or schema),
            ("X-Trino-Path", self._path or ""),
            ("X-Trino-Client-Tags", tags(request.tags)),
            ("X-Trino-Session", _joined(self._properties)),
            ("X-Trino-Prepared-Statement", _joined(self._prepared)),
            ("X-Trino-Role", _joined(self._roles)),
        ]
        return tuple((name, ascii_value(name, value)) for name, value in found if value)

    def update(self, response: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Take over what a response's headers change; gives back the headers that did."""
        seen: dict[str, str] = {}
        for name, value in response:
            if not name.startswith("x-trino-"):
                continue
            if self._apply(name.removeprefix("x-trino-"), value):
                seen[name] = value
        return seen

    def _apply(self, name: str, value: str) -> bool:
        if name == "set-catalog":
            self._catalog = value
        elif name == "set-schema":
            self._schema = value
        elif name == "set-path":
            self._path = value
        elif name == "clear-session":
            self._properties.pop(value, None)
        elif name == "deallocated-prepare":
            self._prepared.pop(unquote_plus(value), None)
        elif (kept := self._kept(name)) is not None:
            key, _, encoded = value.partition("=")
            kept[unquote_plus(key)] = unquote_plus(encoded)
        else:
            return False
        return True

    def _kept(self, name: str) -> dict[str, str] | None:
        if name == "set-session":
            return self._properties
        if name == "added-prepare":
            return self._prepared
        return self._roles if name == "set-role" else None


def _joined(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in pairs.items())


def tags(pairs: Mapping[str, str | None]) -> str:
    """Tags as Trino has them, a list of words: ``key`` or ``key:value``. What does not fit is left out."""
    words = [key if value is None else f"{key}:{value}" for key, value in pairs.items()]
    return ",".join(word for word in words if "," not in word and word.isascii() and word.isprintable())


def native_headers(native: TrinoStatement) -> Pairs:
    """The client's own headers, and where it comes from if it does not say."""
    if any(name == "x-trino-source" for name, _ in native.headers):
        return native.headers
    return (*native.headers, ("X-Trino-Source", SOURCE))
