"""A connection before its session: encryption, the start-up message, authentication.

Nothing but start-up packets and credentials is read before the client has authenticated.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from queryflux.auth.port import NO_TLS, Authenticator
from queryflux.frontends.postgres.settings import Settings
from queryflux.model.errors import (
    AuthenticationFailed,
    NotSupported,
    PlaintextCredentialsRefused,
    ProtocolViolation,
)
from queryflux.model.identity import VerifiedIdentity
from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import SCRAM_SHA_256, Front
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.lifecycle import Startup, StartupEvent, next_startup
from queryflux.wire.postgres.startup import (
    CancelRequest,
    GssRequest,
    SslRequest,
    StartupDecoder,
    StartupMessage,
    options,
)


@dataclass(frozen=True, slots=True)
class Greeted:
    """An authenticated client. ``last`` is what it has not been sent yet: the end of the exchange."""

    identity: VerifiedIdentity
    version: int
    settings: Settings
    database: str | None
    decoder: messages.Decoder
    last: bytes


class Greeting:
    """The start-up of one connection."""

    def __init__(self, stream: ByteStream, decoder: messages.Decoder, tls: ssl.SSLContext | None) -> None:
        """``decoder`` will read the session's messages; the credentials are its first."""
        self._stream = stream
        self._decoder = decoder
        self._tls = tls
        self._state = Startup.FRESH

    async def opening(self) -> StartupMessage | CancelRequest | None:
        """What the client came for, encryption settled; None when it left. Raises ProtocolViolation,
        NotSupported, and what a TLS hand-shake raises."""
        packets = StartupDecoder()
        while True:
            packet = packets.next()
            if packet is None:
                data = await self._stream.read()
                if not data:
                    return None
                packets.feed(data)
            elif isinstance(packet, SslRequest):
                await self._encrypt(packets)
            elif isinstance(packet, GssRequest):
                self._state = next_startup(self._state, StartupEvent.GSS_REFUSED)
                self._stream.write(b"N")
            else:
                starts = isinstance(packet, StartupMessage)
                event = StartupEvent.STARTUP if starts else StartupEvent.CANCEL
                self._state = next_startup(self._state, event)
                self._decoder.feed(packets.rest)
                return packet

    async def _encrypt(self, packets: StartupDecoder) -> None:
        accepted = self._tls is not None
        event = StartupEvent.SSL_ACCEPTED if accepted else StartupEvent.SSL_REFUSED
        self._state = next_startup(self._state, event)
        if self._tls is None:
            self._stream.write(b"N")
            return
        if packets.rest or self._stream.buffered:
            raise ProtocolViolation("received unencrypted data after SSL request")
        self._stream.write(b"S")
        await self._stream.start_tls(self._tls, server_side=True)

    async def authenticate(self, startup: StartupMessage, authenticator: Authenticator) -> Greeted:
        """Find out who it is. Raises AuthenticationFailed and PostgresError, after which the connection is
        of no use."""
        parameters = dict(startup.parameters)
        if parameters.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise NotSupported("replication connections are not supported")
        user = parameters.get("user", "")
        given = {**options(parameters.get("options", "")), **parameters}
        settings = Settings(user, given)
        if startup.negotiate:
            self._stream.write(messages.negotiate_protocol_version(startup.version, startup.unknown))
        identity, last = await self._method(user, authenticator)(user, authenticator)
        self._state = next_startup(self._state, StartupEvent.VERIFIED)
        return Greeted(
            identity,
            startup.version,
            settings,
            _database(parameters),
            self._decoder,
            last + messages.AUTHENTICATION_OK,
        )

    def _method(
        self, user: str, authenticator: Authenticator
    ) -> Callable[[str, Authenticator], Awaitable[tuple[VerifiedIdentity, bytes]]]:
        methods = authenticator.methods(user)
        if methods.none:
            return self._trust
        if not user:
            raise PostgresError("no PostgreSQL user name specified in startup packet", "28000")
        if methods.scram:
            return self._scram
        if not methods.password:
            raise AuthenticationFailed(f'user "{user}" cannot authenticate over the PostgreSQL protocol')
        if not (self._stream.encrypted or authenticator.allow_plaintext):
            raise PlaintextCredentialsRefused(
                "a password over a connection without TLS is refused",
                hint="connect with sslmode=require" if self._tls is not None else NO_TLS,
            )
        return self._password

    async def _trust(self, user: str, authenticator: Authenticator) -> tuple[VerifiedIdentity, bytes]:
        return authenticator.trust(user), b""

    async def _password(self, user: str, authenticator: Authenticator) -> tuple[VerifiedIdentity, bytes]:
        self._stream.write(messages.AUTHENTICATION_CLEARTEXT)
        password = messages.password(await self._credential())
        identity = await authenticator.verify_password(user, password, encrypted=self._stream.encrypted)
        return identity, b""

    async def _scram(self, user: str, authenticator: Authenticator) -> tuple[VerifiedIdentity, bytes]:
        exchange = authenticator.scram(user)
        self._stream.write(messages.authentication_sasl([SCRAM_SHA_256]))
        mechanism, data = messages.sasl_initial(await self._credential())
        if mechanism != SCRAM_SHA_256:
            raise ProtocolViolation("client selected an invalid SASL authentication mechanism")
        self._stream.write(messages.authentication_sasl_continue(exchange.first(data)))
        final, identity = exchange.final(await self._credential())
        return identity, messages.authentication_sasl_final(final)

    async def _credential(self) -> bytes:
        """The body of the client's next message, which must be a credential."""
        self._state = next_startup(self._state, StartupEvent.CREDENTIAL)
        while True:
            kind = self._decoder.peek()
            if kind is not None and kind != Front.PASSWORD:
                raise ProtocolViolation(f"expected a password response, got message type {kind}")
            found = self._decoder.next()
            if found is not None and found[1] is not None:
                return found[1]
            data = await self._stream.read()
            if not data:
                raise ConnectionResetError("the client left during authentication")
            self._decoder.feed(data)


def _database(parameters: Mapping[str, str]) -> str | None:
    return parameters.get("database") or None
