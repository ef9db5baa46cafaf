"""The client's side of a start-up, without I/O (manual, "Start-up" and "SASL Authentication")."""

import hashlib
import secrets
from dataclasses import dataclass, field
from enum import Enum, auto

from queryflux.model.errors import AuthenticationFailed, PlaintextCredentialsRefused, ProtocolViolation
from queryflux.model.secret import Secret
from queryflux.wire.postgres.client import ServerError, parse_error, password_message, terminated
from queryflux.wire.postgres.constants import SCRAM_SHA_256, Auth, Back
from queryflux.wire.postgres.scram_client import SaltedKeys, ScramClient

MAX_STARTUP_MESSAGE = 30_000
"""Longest message taken before authentication is over (libpq's limit for errors)."""


class StartupState(Enum):
    """Where the start-up of a connection stands."""

    SENT = auto()
    PASSWORD_SENT = auto()
    SASL_STARTED = auto()
    SASL_PROVED = auto()
    SASL_VERIFIED = auto()
    AUTHENTICATED = auto()
    READY = auto()
    FAILED = auto()


class StartupEvent(Enum):
    """What the server says meanwhile."""

    OK = auto()
    PASSWORD = auto()
    SASL = auto()
    SASL_CONTINUE = auto()
    SASL_FINAL = auto()
    PARAMETER = auto()
    KEY = auto()
    NOTICE = auto()
    NEGOTIATE = auto()
    READY = auto()
    ERROR = auto()


_S, _E = StartupState, StartupEvent
_BEFORE_OK = (_S.SENT, _S.PASSWORD_SENT, _S.SASL_STARTED, _S.SASL_PROVED, _S.SASL_VERIFIED)

STARTUP: dict[tuple[StartupState, StartupEvent], StartupState] = {
    (_S.SENT, _E.OK): _S.AUTHENTICATED,
    (_S.SENT, _E.PASSWORD): _S.PASSWORD_SENT,
    (_S.SENT, _E.SASL): _S.SASL_STARTED,
    (_S.SENT, _E.NEGOTIATE): _S.SENT,
    (_S.PASSWORD_SENT, _E.OK): _S.AUTHENTICATED,
    (_S.SASL_STARTED, _E.SASL_CONTINUE): _S.SASL_PROVED,
    (_S.SASL_PROVED, _E.SASL_FINAL): _S.SASL_VERIFIED,
    (_S.SASL_VERIFIED, _E.OK): _S.AUTHENTICATED,
    (_S.AUTHENTICATED, _E.PARAMETER): _S.AUTHENTICATED,
    (_S.AUTHENTICATED, _E.KEY): _S.AUTHENTICATED,
    (_S.AUTHENTICATED, _E.NOTICE): _S.AUTHENTICATED,
    (_S.AUTHENTICATED, _E.READY): _S.READY,
    (_S.AUTHENTICATED, _E.ERROR): _S.FAILED,
    **{(state, _E.ERROR): _S.FAILED for state in _BEFORE_OK},
    **{(state, _E.NOTICE): state for state in _BEFORE_OK},
}
"""A server that says OK in the midst of SASL has proved nothing: no such pair is here."""

_AUTH_EVENTS = {
    Auth.OK: _E.OK,
    Auth.CLEARTEXT_PASSWORD: _E.PASSWORD,
    Auth.MD5_PASSWORD: _E.PASSWORD,
    Auth.SASL: _E.SASL,
    Auth.SASL_CONTINUE: _E.SASL_CONTINUE,
    Auth.SASL_FINAL: _E.SASL_FINAL,
}
_EVENTS = {
    Back.PARAMETER_STATUS: _E.PARAMETER,
    Back.BACKEND_KEY_DATA: _E.KEY,
    Back.NOTICE: _E.NOTICE,
    Back.NEGOTIATE_PROTOCOL_VERSION: _E.NEGOTIATE,
    Back.READY_FOR_QUERY: _E.READY,
    Back.ERROR: _E.ERROR,
}


@dataclass(slots=True)
class Startup:
    """One start-up, from the StartupMessage to the first ReadyForQuery: feed it messages, send what it gives.

    ``failure`` holds the server's ErrorResponse when it refused.
    """

    user: str
    password: Secret | None
    encrypted: bool
    keys: SaltedKeys = field(default_factory=dict)
    state: StartupState = StartupState.SENT
    parameters: dict[str, str] = field(default_factory=dict)
    pid: int = 0
    key: bytes = b""
    failure: ServerError | None = None
    _scram: ScramClient | None = None

    def receive(self, kind: int, body: bytes) -> bytes:
        """Take one message; the bytes to send, if any.

        Raises ProtocolViolation, AuthenticationFailed and PlaintextCredentialsRefused.
        """
        code = int.from_bytes(body[:4]) if kind == Back.AUTHENTICATION and len(body) >= 4 else -1
        event = _AUTH_EVENTS.get(code) if kind == Back.AUTHENTICATION else _EVENTS.get(kind)
        if event is None:
            raise ProtocolViolation(f"the server asks for authentication of the unknown kind {code}")
        after = STARTUP.get((self.state, event))
        if after is None:
            raise ProtocolViolation(f"the server sent {event.name} while the start-up was {self.state.name}")
        reply = self._act(event, code, body)
        self.state = after
        return reply

    def _act(self, event: StartupEvent, code: int, body: bytes) -> bytes:
        match event:
            case StartupEvent.PASSWORD:
                return self._password(code, body[4:8])
            case StartupEvent.SASL | StartupEvent.SASL_CONTINUE | StartupEvent.SASL_FINAL:
                return self._sasl(event, body[4:])
            case StartupEvent.PARAMETER:
                name, _, value = body.rstrip(b"\0").partition(b"\0")
                self.parameters[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
            case StartupEvent.KEY:
                if not 8 <= len(body) <= 260:
                    raise ProtocolViolation("the server's cancel key has an impossible length")
                self.pid, self.key = int.from_bytes(body[:4]), body[4:]
            case StartupEvent.ERROR:
                self.failure = parse_error(body)
        return b""

    def _secret(self) -> Secret:
        if not self.password:
            raise AuthenticationFailed("the server asks for a password and the cluster has none")
        return self.password

    def _password(self, code: int, salt: bytes) -> bytes:
        clear = self._secret().reveal().encode()
        if code == Auth.MD5_PASSWORD:
            inner = hashlib.md5(clear + self.user.encode(), usedforsecurity=False).hexdigest()
            outer = hashlib.md5(inner.encode() + salt, usedforsecurity=False).hexdigest()
            return password_message(b"md5" + outer.encode() + b"\0")
        if not self.encrypted:
            raise PlaintextCredentialsRefused(
                "the server asks for the password in clear over a connection without TLS"
            )
        return password_message(terminated(clear))

    def _sasl(self, event: StartupEvent, body: bytes) -> bytes:
        if event is StartupEvent.SASL:
            if SCRAM_SHA_256.encode() not in body.split(b"\0"):
                raise AuthenticationFailed("the server offers no SASL mechanism that we have")
            self._scram = ScramClient(self._secret(), secrets.token_urlsafe(18), self.keys)
            first = self._scram.first()
            return password_message(SCRAM_SHA_256.encode() + b"\0" + len(first).to_bytes(4) + first)
        assert self._scram is not None
        if event is StartupEvent.SASL_CONTINUE:
            return password_message(self._scram.final(body))
        self._scram.verify(body)
        return b""
