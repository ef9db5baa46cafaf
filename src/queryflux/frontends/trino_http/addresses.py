"""Under which address the client reaches us: the base of every URI it is given.

In this order: ``queryflux.externalAddress``; Forwarded (RFC 7239); X-Forwarded-Proto, -Host and -Port; the
Host header. Where Forwarded and X-Forwarded-* differ, Forwarded wins, item by item; of a chain of proxies the
first entry counts, which is the one that the client spoke to.
"""

from collections.abc import Mapping
from string import ascii_letters, digits

_CACHED = 256
_HOST_CHARACTERS = frozenset(ascii_letters + digits + ".-_:[]%~")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Addresses:
    """Bases by the headers that decide them."""

    def __init__(self, external: str | None, *, tls: bool, fallback: str) -> None:
        """``fallback`` is ``host:port``, for a request without a usable Host header."""
        self._external = external.rstrip("/").encode() if external else None
        self._scheme = "https" if tls else "http"
        self._fallback = fallback
        self._known: dict[tuple[str | None, ...], bytes] = {}

    def base(self, headers: Mapping[str, str]) -> bytes:
        """``scheme://host[:port]``, without a slash at its end."""
        if self._external is not None:
            return self._external
        get = headers.get
        key = (
            get("host"),
            get("forwarded"),
            get("x-forwarded-proto"),
            get("x-forwarded-host"),
            get("x-forwarded-port"),
        )
        base = self._known.get(key)
        if base is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            base = self._known[key] = self._work_out(*key)
        return base

    def _work_out(
        self, host: str | None, forwarded: str | None, proto: str | None, named: str | None, port: str | None
    ) -> bytes:
        standard = parse_forwarded(forwarded or "")
        scheme = _scheme(standard.get("proto")) or _scheme(_first(proto)) or self._scheme
        told = _host(standard.get("host"))
        name = told or _host(_first(named)) or _host(host) or self._fallback
        if told is None and (chosen := _first(port)) and chosen.isascii() and chosen.isdigit():
            name = _bare(name) + ("" if _DEFAULT_PORTS[scheme] == chosen else f":{chosen}")
        return f"{scheme}://{name}".encode()


def parse_forwarded(value: str) -> dict[str, str]:
    """The parameters of the first element of a Forwarded header, names in lower case (RFC 7239, 4)."""
    found: dict[str, str] = {}
    for parameter in _until_comma(value).split(";"):
        name, equals, content = parameter.strip().partition("=")
        if equals:
            found[name.lower()] = content.strip().strip('"')
    return found


def _until_comma(value: str) -> str:
    quoted = False
    for place, character in enumerate(value):
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            return value[:place]
    return value


def _first(value: str | None) -> str | None:
    return value.partition(",")[0].strip() if value else None


def _scheme(value: str | None) -> str | None:
    scheme = value.lower() if value else ""
    return scheme if scheme in _DEFAULT_PORTS else None


def _host(value: str | None) -> str | None:
    """A host that is fit to stand in a URI and in JSON."""
    fits = value and len(value) <= 255 and _HOST_CHARACTERS.issuperset(value)
    return value if fits else None


def _bare(host: str) -> str:
    """Without its port."""
    head, colon, tail = host.rpartition(":")
    return head if colon and tail.isdigit() and not head.endswith(":") else host
