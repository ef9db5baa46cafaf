"""A request's headers as the surroundings of its statement."""

from dataclasses import dataclass

from queryflux.frontends.tags import MAX_LENGTH, MAX_TAGS, parse_tags
from queryflux.frontends.trino_http.limits import NO_LIMITS, Limits, limits_of
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import EMPTY, Session
from queryflux.wire.trino import headers as names
from queryflux.wire.trino.native import TrinoStatement

# Secrets have no business in routing rules, scripts and logs.
_SECRETS = ("authorization", "proxy-authorization", "cookie", "x-trino-extra-credential")


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request's headers say. A client that repeats them, as they do, is looked at once per
    connection."""

    headers: dict[str, str]
    session: Session
    base: bytes
    """Of the URIs that it is given."""
    info: bytes
    """The ``infoUri`` of a query, up to its id."""
    native: TrinoStatement
    """What a coordinator gets of its headers."""
    in_transaction: bool
    limits: Limits = NO_LIMITS


def caller_of(headers: dict[str, str], peer: str, base: bytes) -> Caller:
    """Look at them."""
    return Caller(
        headers,
        session_of(headers, peer),
        base,
        base + b"/ui/query.html?",
        TrinoStatement(tuple(names.forwarded(headers.items()))),
        transaction_of(headers) is not None,
        limits_of(headers.get(names.SESSION, "")),
    )


def transaction_of(headers: dict[str, str]) -> str | None:
    """The id of the transaction that a request belongs to."""
    named = headers.get(names.TRANSACTION_ID)
    return named if named and named.upper() != names.NO_TRANSACTION else None


def session_of(headers: dict[str, str], peer: str) -> Session:
    """The session. ``headers`` become its ``extra``, less those that hold secrets."""
    get = headers.get
    client_tags, session = get(names.CLIENT_TAGS), get(names.SESSION)
    tags = tags_of(client_tags or "", session or "") if client_tags or session else EMPTY
    extra = headers
    if any(secret in headers for secret in _SECRETS):
        extra = {name: value for name, value in headers.items() if name not in _SECRETS}
    return Session(
        ClientProtocol.TRINO_HTTP,
        catalog=get(names.CATALOG) or None,
        database=get(names.SCHEMA) or None,
        tags=tags,
        extra=extra,
        peer=peer,
    )


def tags_of(client_tags: str, session: str) -> dict[str, str | None]:
    """Client tags are keys without a value, whatever they look like; the session property ``query_tags``
    gives keys with values, and wins."""
    tags: dict[str, str | None] = {}
    for item in client_tags.split(",") if client_tags else ():
        tag = item.strip()
        if tag and len(tag) <= MAX_LENGTH and len(tags) < MAX_TAGS:
            tags[tag] = None
    return {**tags, **parse_tags(names.tag_text(session))}
