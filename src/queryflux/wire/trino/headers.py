"""The X-Trino-* headers (Trino developer guide, "Client REST API", Client request and response headers)."""

from collections.abc import Iterable
from urllib.parse import quote_plus, unquote_plus

import msgspec

USER = "x-trino-user"
CATALOG = "x-trino-catalog"
SCHEMA = "x-trino-schema"
SESSION = "x-trino-session"
CLIENT_TAGS = "x-trino-client-tags"
PREPARED_STATEMENT = "x-trino-prepared-statement"
TRANSACTION_ID = "x-trino-transaction-id"

SET_CATALOG = "X-Trino-Set-Catalog"
SET_SCHEMA = "X-Trino-Set-Schema"
SET_SESSION = "X-Trino-Set-Session"
CLEAR_SESSION = "X-Trino-Clear-Session"
ADDED_PREPARE = "X-Trino-Added-Prepare"
DEALLOCATED_PREPARE = "X-Trino-Deallocated-Prepare"
STARTED_TRANSACTION_ID = "X-Trino-Started-Transaction-Id"
CLEAR_TRANSACTION_ID = "X-Trino-Clear-Transaction-Id"

NO_TRANSACTION = "NONE"
MAX_TAGS = 20
MAX_TAG_LENGTH = 128

# Who the client is and which transaction it is in are between it and us. A client that offers another
# encoding of the data would be sent to segments at the coordinator, which it may not be able to reach.
_OURS = frozenset(
    {
        USER,
        "x-trino-original-user",
        "x-trino-original-role",
        "x-trino-authorization-user",
        TRANSACTION_ID,
        "x-trino-query-data-encoding",
    }
)
_TAG_PROPERTIES = ("query_tags", "query_tag")


def pairs(value: str) -> dict[str, str]:
    """``name=value,name=value`` with values in percent-encoding, as sessions and prepared statements travel.
    Items without a name or ``=`` are passed over."""
    found: dict[str, str] = {}
    for item in value.split(","):
        name, equals, encoded = item.strip().partition("=")
        if equals and name:
            found[name] = unquote_plus(encoded, errors="replace")
    return found


def pair(name: str, value: str) -> str:
    """One such item."""
    return f"{quote_plus(name)}={quote_plus(value)}"


def forwarded(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What of a request's headers a coordinator may see. Our own session property for tags is left out."""
    return tuple(
        (name, _without_tags(value) if name == SESSION else value)
        for name, value in headers
        if name.startswith("x-trino-") and name not in _OURS
    )


def _without_tags(session: str) -> str:
    if "query_tag" not in session:
        return session
    items = [item.strip() for item in session.split(",")]
    return ",".join(item for item in items if item.partition("=")[0] not in _TAG_PROPERTIES)


def tags(client_tags: str, session: str) -> dict[str, str | None]:
    """Query tags: client tags are keys without a value; the session property ``query_tags`` holds
    ``key:value,key`` or a JSON object, and wins. At most MAX_TAGS; what is not fit to be one is dropped."""
    found: dict[str, str | None] = {}
    if client_tags:
        for item in client_tags.split(","):
            _add(found, item.strip(), None)
    if "query_tag" in session:
        properties = pairs(session)
        text = next((properties[name] for name in _TAG_PROPERTIES if name in properties), "")
        for key, value in _tag_items(text):
            if key.replace("-", "_").isidentifier() or key.replace("-", "").replace("_", "").isalnum():
                _add(found, key, value)
    return found


def _tag_items(text: str) -> Iterable[tuple[str, str | None]]:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str | None]).items()
        except msgspec.MsgspecError:
            return ()
    items = [item.strip().partition(":") for item in text.split(",")]
    return [(key.strip(), value.strip() if colon else None) for key, colon, value in items]


def _add(found: dict[str, str | None], key: str, value: str | None) -> None:
    fits = len(key) <= MAX_TAG_LENGTH and len(value or "") <= MAX_TAG_LENGTH
    if key and fits and (key in found or len(found) < MAX_TAGS):
        found[key] = value
