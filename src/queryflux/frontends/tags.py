"""Query tags as clients write them: ``team:eng,batch`` or a JSON object of strings and nulls."""

import re

import msgspec

MAX_TAGS = 20
MAX_LENGTH = 128
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DECODER = msgspec.json.Decoder(dict[str, str | None])


def parse_tags(text: str) -> dict[str, str | None]:
    """The tags in ``text``. What is not a tag, and what is over MAX_TAGS or MAX_LENGTH, is left out: a tag
    must never be the reason that a query fails."""
    text = text.strip()
    if text.startswith("{"):
        try:
            pairs = list(_DECODER.decode(text).items())
        except msgspec.DecodeError:
            return {}
    else:
        pairs = []
        for item in text.split(","):
            key, colon, value = item.strip().partition(":")
            pairs.append((key.strip(), value.strip() if colon else None))
    tags: dict[str, str | None] = {}
    for key, found in pairs:
        if len(tags) < MAX_TAGS and _sound(key, found):
            tags[key] = found
    return tags


def _sound(key: str, value: str | None) -> bool:
    return len(key) <= MAX_LENGTH and _KEY.fullmatch(key) is not None and len(value or "") <= MAX_LENGTH
