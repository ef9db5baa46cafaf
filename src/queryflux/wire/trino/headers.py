"""The X-Trino-* headers (Trino developer guide, "Client REST API", Client request and response headers)."""

from collections.abc import Iterable
from urllib.parse import quote_plus, unquote_plus

USER = "x-trino-user"
CATALOG = "x-trino-catalog"
SCHEMA = "x-trino-schema"
SESSION = "x-trino-session"
CLIENT_TAGS = "x-trino-client-tags"
PREPARED_STATEMENT = "x-trino-prepared-statement"
TRANSACTION_ID = "x-trino-transaction-id"
EXTRA_CREDENTIAL = "x-trino-extra-credential"

SET_CATALOG = "X-Trino-Set-Catalog"
SET_SCHEMA = "X-Trino-Set-Schema"
SET_SESSION = "X-Trino-Set-Session"
CLEAR_SESSION = "X-Trino-Clear-Session"
ADDED_PREPARE = "X-Trino-Added-Prepare"
DEALLOCATED_PREPARE = "X-Trino-Deallocated-Prepare"
STARTED_TRANSACTION_ID = "X-Trino-Started-Transaction-Id"
CLEAR_TRANSACTION_ID = "X-Trino-Clear-Transaction-Id"

NO_TRANSACTION = "NONE"

# Who the client is, its transaction and its prepared statements are between it and us. A client that offers
# another encoding of the data would be sent to segments at the coordinator, which it may not reach.
_OURS = frozenset(
    {
        USER,
        "x-trino-original-user",
        "x-trino-original-role",
        "x-trino-authorization-user",
        TRANSACTION_ID,
        PREPARED_STATEMENT,
        "x-trino-query-data-encoding",
    }
)
TAG_PROPERTIES = ("query_tags", "query_tag")


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


def forwarded(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What of a request's headers a coordinator may see. Our own session property for tags is left out."""
    found = [item for item in headers if item[0][:8] == "x-trino-" and item[0] not in _OURS]
    for place, (name, value) in enumerate(found):
        if name == SESSION and "query_tag" in value:
            found[place] = (name, _without_tags(value))
    return found


def _without_tags(session: str) -> str:
    items = [item.strip() for item in session.split(",")]
    return ",".join(item for item in items if item.partition("=")[0] not in TAG_PROPERTIES)


def tag_text(session: str) -> str:
    """The value of the session property ``query_tags`` (or ``query_tag``) in an X-Trino-Session header."""
    if "query_tag" not in session:
        return ""
    properties = pairs(session)
    return next((properties[name] for name in TAG_PROPERTIES if name in properties), "")


def quoted(text: str) -> str:
    """In percent-encoding."""
    return quote_plus(text)
