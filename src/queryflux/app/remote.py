"""A client of the operator port, for the command line: HTTP Basic, one request at a time, clear errors."""

import base64
import http.client
import json
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from queryflux import __version__
from queryflux.config.access import AdminAccess, read_access
from queryflux.config.checks_serving import is_loopback
from queryflux.config.listeners import AdminApiConfig
from queryflux.config.problems import show
from queryflux.model.errors import QueryFluxError
from queryflux.model.secret import Secret

URL = "QUERYFLUX_ADMIN_URL"
USER = "QUERYFLUX_ADMIN_USER"
PASSWORD = "QUERYFLUX_ADMIN_PASSWORD"  # noqa: S105
USUAL_URL = "http://127.0.0.1:9000"
USUAL_FILE = Path("queryflux") / "admin.yaml"
"""Under the user's folder of configuration."""
TIMEOUT_SECS = 60.0
NOTHING_THERE = "there is nothing at "
LATER = ("/admin/workers",)
"""Paths that an older control plane may be without, and has an admin API all the same."""
USUAL_PORT = "the port is that of queryflux.adminApi, 9000 unless set"
USUAL_PLACE = "~/.config/queryflux/admin.yaml"
HOW = f"set {USER} and {PASSWORD}, or use --credentials FILE"
NOT_GIVEN = f"no password was given, so the default one was tried: {HOW}, or write {USUAL_PLACE}"


class RemoteError(QueryFluxError):
    """The operator port cannot be reached, or did not do what was asked. ``lines`` say more, one each;
    ``told`` is the code of the answer."""

    def __init__(self, message: str, *, hint: str = "", lines: tuple[str, ...] = (), told: str = "") -> None:
        super().__init__("\n".join((message, *(f"  {line}" for line in lines))), hint=hint)
        self.told = told


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    document: Any
    notes: tuple[str, ...]


class Remote:
    """One operator port."""

    def __init__(
        self,
        url: str,
        username: str,
        password: Secret,
        ca_file: str | None = None,
        *,
        given: bool = True,
    ) -> None:
        """``given``: somebody chose the password. Raises RemoteError when the URL or the file of authorities
        will not do."""
        parts = _parts(url)
        assert parts.hostname is not None
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._parts = parts
        self._context = _context(parts.scheme, ca_file)
        self._credentials = f"{username}:{password.reveal()}".encode()
        self._refused = HOW if given else NOT_GIVEN
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            print(f"queryflux: the password travels in clear to {parts.hostname}: use https", file=sys.stderr)

    def call(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> Answer:
        """One request. Raises RemoteError."""
        target = self._parts.path.rstrip("/") + path + (f"?{urlencode(params)}" if params else "")
        headers = {
            "Authorization": "Basic " + base64.b64encode(self._credentials).decode(),
            "Accept": "application/json",
            "User-Agent": f"queryflux/{__version__}",
        }
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, data, headers)
            response = connection.getresponse()
            content = response.read()
        except (http.client.BadStatusLine, http.client.LineTooLong) as error:
            if isinstance(error, http.client.RemoteDisconnected):
                raise self._unreachable(str(error)) from None
            raise RemoteError(f"what listens at {self.url} does not speak HTTP", hint=USUAL_PORT) from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise RemoteError(
                    f"{self.url} has a certificate that is not trusted: {plain(error.verify_message)}",
                    hint="caFile in the file of --credentials names the authorities to trust",
                ) from None
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._unreachable(reason) from None
        finally:
            connection.close()
        note = unquote(response.headers.get("X-QueryFlux-Note", ""))
        return Answer(self._read(path, response.status, content), (note,) if note else ())

    def _unreachable(self, reason: str) -> RemoteError:
        return RemoteError(
            f"cannot reach {self.url}: {plain(reason)}",
            hint=f"is QueryFlux running there? --url or {URL} says where it is",
        )

    def _connection(self) -> http.client.HTTPConnection:
        assert self._parts.hostname is not None
        where = (self._parts.hostname, self._parts.port)
        if self._context is None:
            return http.client.HTTPConnection(*where, timeout=TIMEOUT_SECS)
        return http.client.HTTPSConnection(*where, timeout=TIMEOUT_SECS, context=self._context)

    def _read(self, path: str, status: int, content: bytes) -> Any:
        try:
            document = json.loads(content) if content else None
        except ValueError:
            document = False
        if 200 <= status < 300 and document is not False:
            return document
        if not isinstance(document, dict) or "detail" not in document:
            raise RemoteError(
                f"{self.url} does not speak like QueryFlux's operator port (status {status})",
                hint=USUAL_PORT,
            )
        detail = plain(str(document["detail"]))
        if status == 404 and detail.startswith(NOTHING_THERE) and path not in LATER:
            raise RemoteError(
                f"{self.url} has no admin API",
                hint="is it a worker's port? Ask its control plane; a worker itself answers /worker/status",
            )
        hint = self._refused if status == 401 else document.get("hint", "")
        raise RemoteError(
            detail, hint=hint, lines=tuple(_lines(document)), told=str(document.get("code", ""))
        )


def _lines(document: Mapping[str, Any]) -> list[str]:
    lines = []
    for problem in document.get("problems", ()):
        place = f"{problem['path']}: " if problem.get("path") else ""
        hint = f" ({problem['hint']})" if problem.get("hint") else ""
        lines.append(plain(f"{place}{problem['message']}{hint}"))
    return lines


def _parts(url: str) -> SplitResult:
    """A URL taken apart, which has a host and no password. Raises RemoteError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 0) >= 0
    except ValueError:
        usable = False
    if not usable:
        shown = "that" if "@" in url else show(url)
        raise RemoteError(f"{shown} is not the URL of an operator port", hint=f"such as {USUAL_URL}")
    if parts.username is not None or parts.password is not None:
        raise RemoteError("a URL is no place for a password", hint=f"set {PASSWORD} or use --credentials")
    return parts


def _context(scheme: str, ca_file: str | None) -> ssl.SSLContext | None:
    if scheme == "http":
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise RemoteError(f"cannot use the authorities in {ca_file}: {error}") from None


def open_remote(
    environ: Mapping[str, str], url: str | None, user: str | None, credentials: Path | None
) -> Remote:
    """The operator port that options, the environment and a file name, in this order. Raises RemoteError,
    ConfigError."""
    access = _access(environ, credentials)
    url = url or environ.get(URL) or access.url or USUAL_URL
    given = environ.get(PASSWORD)
    password = Secret(given) if given else access.password
    named = user or environ.get(USER) or access.username
    usual = AdminApiConfig()
    chosen = password is not None
    if password is None:
        if named is not None or not is_loopback(_parts(url).hostname or ""):
            raise RemoteError("no password is given", hint=f"set {PASSWORD} or use --credentials FILE")
        password = usual.password  # that of a process which nobody has given one, and here alone
    return Remote(url, named or usual.username, password, access.ca_file, given=chosen)


def _access(environ: Mapping[str, str], credentials: Path | None) -> AdminAccess:
    if credentials is not None:
        return read_access(credentials, environ)
    folder = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "")) / ".config")
    usual = folder / USUAL_FILE
    return read_access(usual, environ) if folder.is_absolute() and usual.exists() else AdminAccess()


def plain(text: str) -> str:
    """A text for a terminal, on one line: what is not printable would be taken for commands."""
    return "".join(char if char.isprintable() else " " for char in text)


def in_path(part: str) -> str:
    """A name as part of a path."""
    return quote(part, safe="")
