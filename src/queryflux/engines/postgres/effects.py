"""What a statement does to the session it runs in, from its text alone and cached by text.

With transaction pooling a server connection goes from client to client, so state that outlives a transaction
must keep the connection with its client. It is seen by the leading words and by the names of a few functions.
A function of the user's own that sets session state cannot be seen: set such state with SET, or in the
transaction that needs it.
"""

import re
from dataclasses import dataclass

from queryflux.engines.postgres.settings import canonical_name


@dataclass(frozen=True, slots=True)
class Effects:
    """``pins``: leaves state behind. ``forgets``: drops prepared statements. ``resets``: the setting that
    goes back to what the connection began with, or ``all``. ``discards``: everything goes, and a pinned
    connection is free again. ``sets``: a plain SET of a setting that we replay, which pins nothing.
    ``copies``: it is a COPY."""

    pins: bool = False
    forgets: bool = False
    resets: str = ""
    discards: bool = False
    sets: tuple[str, str] | None = None
    copies: bool = False


_GAP = r"(?>\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*+"
"""White space and comments; atomic, since a text of many comments must not be tried in every split."""
_LEADING = re.compile(
    rf"""(?:\A|;){_GAP}(?P<word>
        set\b(?!{_GAP}(?:local|transaction|constraints)\b)
        | reset\s+[\w"]+ | listen\b | load\b
        | discard\s+all\b | discard\b | deallocate\b | copy\b
        | prepare\b(?!{_GAP}transaction\b)
        | create\s+(?:or\s+replace\s+)?(?:(?:global|local)\s+)?temp(?:orary)?\b
        )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_INSIDE = re.compile(
    r"\bset_config\s*\(|\bpg_(?:try_)?advisory_lock(?:_shared)?\s*\(|\bsetseed\s*\(|\bdblink_connect"
    r"|\bpg_temp\b|\bwith\s+hold\b|\binto\s+(?:(?:global|local)\s+)?temp(?:orary)?\b",
    re.IGNORECASE,
)
_PLAIN_SET = re.compile(
    r"\s*set\s+(?:session\s+)?(?P<name>[a-z_]+|time\s+zone)(?:\s*=\s*|\s+to\s+|\s+)"
    r"(?:'(?P<quoted>[^'\\]*)'|(?P<bare>[\w.+-]+))\s*;?\s*\Z",
    re.IGNORECASE,
)
_TOUCHES = (
    "set",
    "copy",
    "listen",
    "load",
    "discard",
    "deallocate",
    "prepare",
    "temp",
    "pg_advisory",
    "pg_try_advisory",
    "dblink",
    "hold",
)
"""One of these is in every statement that leaves something behind."""
_SETS_NOTHING = {"default", "local"}

MAX_CACHED_TEXT = 2048
MAX_CACHED = 4096
_cache: dict[str, Effects | None] = {}


def effects_of(text: str) -> Effects | None:
    """What ``text`` leaves behind; None, as for most statements: nothing."""
    try:
        return _cache[text]
    except KeyError:
        pass
    found = _look(text)
    if len(text) <= MAX_CACHED_TEXT:
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[text] = found
    return found


def leaves_nothing(text: str) -> bool:
    """Whether a text of one statement, which begins with one of PLAIN_WORDS, surely leaves nothing behind: it
    could by what it calls alone."""
    lowered = text.lower()
    return not (
        "set_config" in lowered
        or "_lock" in lowered
        or "temp" in lowered
        or "setseed" in lowered
        or "dblink" in lowered
    )


def _look(text: str) -> Effects | None:
    lowered = text.lower()
    for mark in _TOUCHES:  # no any(): this is asked of every new text
        if mark in lowered:
            break
    else:
        return None
    plain = _plain_set(text)
    if plain is not None:
        return Effects(sets=plain)
    pins = _INSIDE.search(text) is not None
    forgets = discards = copies = False
    resets = ""
    for match in _LEADING.finditer(text):
        words = match["word"].lower().split()
        match words[0]:
            case "discard":
                discards = discards or words[-1] == "all"
                forgets = True
            case "deallocate":
                forgets = True
            case "reset":
                resets = "all" if "all" in (resets, words[-1]) else canonical_name(words[-1]) or resets
            case "copy":
                copies = True
            case _:
                pins = True
    if not (pins or forgets or resets or discards or copies):
        return None
    return Effects(
        pins=pins,
        forgets=forgets,
        resets="all" if discards else resets,
        discards=discards and not pins,
        copies=copies,
    )


def _plain_set(text: str) -> tuple[str, str] | None:
    match = _PLAIN_SET.match(text)
    if match is None:
        return None
    name = canonical_name("timezone" if match["name"].lower().startswith("time ") else match["name"])
    value = match["quoted"] if match["quoted"] is not None else match["bare"]
    if name is None or (match["quoted"] is None and value.lower() in _SETS_NOTHING):
        return None
    if match["quoted"] is not None and name == "search_path":
        return None
    return name, value
