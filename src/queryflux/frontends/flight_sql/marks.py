"""``?`` as ``$1``, which every engine takes: PostgreSQL takes nothing else, and where a statement will go is
not known while it is prepared.

In PostgreSQL ``?`` is an operator too (``data ? 'key'``), and what stands around it tells: an operator has an
operand on both sides, a placeholder stands where an operand does.
"""

import re

LONGEST = 64 << 10
"""Characters; longer statements are left as they are."""
ON_THE_LOOP = 8 << 10
"""Characters; longer statements are read in a thread."""
_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<operand>[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)"
    r"|(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=tag)|\Z)|\d[\w.]*)"
    r"|(?P<word>[^\W\d]\w*)|(?P<number>[$?]\d+)|(?P<sign>\?\||\?&(?!&)|@\?|\|\||::|.)",
    re.S,
)
_BEFORE_TEXT = """
all and any as between by case distinct else escape except fetch filter first from group having ilike in
intersect interval into is isnull like limit next not notnull of offset on or order over partition returning
row select set similar some then to union using values when where with
"""
_AFTER_TEXT = """
and as asc at between case collate cross desc else end escape except fetch for from full group having ilike in
inner intersect is isnull join left like limit natural not notnull nulls offset on or order over returning
right row rows similar then to union using when where window
"""
_BEFORE = frozenset(_BEFORE_TEXT.split())
"""Words after which an operand comes."""
_AFTER = frozenset(_AFTER_TEXT.split())
"""Words that come after an operand."""


def numbered(text: str) -> str:
    """The statement with ``$1``, ``$2``, ... for its placeholders. One that has such numbers already is left
    as it is."""
    if "?" not in text or len(text) > LONGEST:
        return text
    found = [token for token in _TOKEN.finditer(text) if token["skip"] is None]
    if any(token["number"] is not None for token in found):
        return text
    parts: list[str] = []
    done = count = 0
    for place, token in enumerate(found):
        if token[0] not in ("?", "?|") or _is_operator(found, place):
            continue
        count += 1
        parts += (text[done : token.start()], f"${count}")
        done = token.start() + 1
    return "".join(parts) + text[done:]


def _is_operator(found: "list[re.Match[str]]", place: int) -> bool:
    token = found[place]
    if token[0] == "?|" and token.string[token.end() : token.end() + 1] == "|":
        return False  # ?||'x'
    before = found[place - 1] if place else None
    after = found[place + 1] if place + 1 < len(found) else None
    return before is not None and after is not None and _ends(before) and _begins(after)


def _ends(token: "re.Match[str]") -> bool:
    """Whether an operand may end here."""
    if token["word"] is not None:
        return token[0].lower() not in _BEFORE
    return token["operand"] is not None or token[0] in (")", "]")


def _begins(token: "re.Match[str]") -> bool:
    """Whether an operand may begin here."""
    if token["word"] is not None:
        return token[0].lower() not in _AFTER
    return token["operand"] is not None or token[0] in ("(", "?")
