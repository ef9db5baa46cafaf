"""COPY ... TO STDOUT on an engine that does not speak PostgreSQL: the statement read, and what is asked of
the engine instead (manual, "COPY", with the syntax from before version 9.0 as well)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from queryflux.model.errors import NotSupported
from queryflux.wire.postgres.errors import PostgresError

MAX_COPY = 64 * 1024
"""Longer texts, in characters, are not read."""

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<escaped>[eE]'(?:[^'\\]|''|\\.)*+')|(?P<string>'(?:[^']|'')*+')|(?P<quoted>\"(?:[^\"]|\"\")*+\")"
    r"|(?P<word>[^\W\d][\w$]*|\d[\w.]*)|(?P<dollars>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|(?P<open>['\"]|\$\w*\$|/\*)|(?P<sign>.)",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BAD_DELIMITERS = "\\.abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class CopyOut:
    """``query`` gives the rows. It stands at ``offset`` of the statement, or nowhere (None) when it was made
    of a table's name; ``options`` are those of wire.postgres.copy_out.CopyFormat."""

    query: str
    offset: int | None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    def value(self) -> str:
        """What a string stands for; a word as it is."""
        if self.kind == "escaped":
            return _ESCAPED.sub(_unescaped, self.text[2:-1].replace("''", "'"))
        if self.kind == "string":
            return self.text[1:-1].replace("''", "'")
        return self.text

    def name(self) -> str:
        """The identifier it is."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text.lower()


def _unescaped(match: re.Match[str]) -> str:
    hexadecimal, octal, char = match.groups()
    if hexadecimal or octal:
        return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8))
    return _LETTERS.get(char, char)


def read_copy_out(text: str) -> CopyOut | None:
    """None for a COPY of another kind. Raises PostgresError for what is wrong in it, NotSupported for an
    option that is not known here."""
    if len(text) > MAX_COPY:
        raise NotSupported(f"a COPY of more than {MAX_COPY} characters", hint="make a view of the query")
    tokens = _Tokens(text)
    tokens.word("COPY")
    if tokens.word("BINARY"):
        raise _no_binary()
    query, offset = _source(tokens, text)
    if not tokens.word("TO") or not tokens.word("STDOUT"):
        return None
    return CopyOut(query, offset, _format(_options(tokens)))


class _Tokens:
    """The words of a statement, one after the other."""

    def __init__(self, text: str) -> None:
        self._all = list(_tokens(text))
        self._at = 0

    def peek(self) -> _Token | None:
        """The next one."""
        return self._all[self._at] if self._at < len(self._all) else None

    def take(self) -> _Token:
        """The next one, and on. Raises PostgresError at the end."""
        token = self.peek()
        if token is None:
            raise PostgresError("syntax error at end of input", "42601")
        self._at += 1
        return token

    def word(self, *words: str) -> str:
        """Go past the next one if it is one of ``words``; which one, or nothing."""
        token = self.peek()
        if token is None or token.text.upper() not in words:
            return ""
        self._at += 1
        return token.text.upper()

    def group(self) -> tuple[int, int]:
        """Go past what stands in parentheses, the first of which is next: where its inside begins and
        ends."""
        start = self.take().end
        depth = 1
        while True:
            token = self.take()
            depth += (token.text == "(") - (token.text == ")")
            if not depth:
                return start, token.start


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if match["dollars"] is not None:
            kind = "dollars"
        if kind == "open":
            raise PostgresError(
                f'unterminated quote or comment at or near "{match[0]}"', "42601", position=match.start()
            )
        if kind != "blank" and match[0] != ";":
            yield _Token(kind, match[0], match.start(), match.end())


def _source(tokens: _Tokens, text: str) -> tuple[str, int | None]:
    """The query, and where it stands."""
    first = tokens.peek()
    if first is not None and first.text == "(":
        start, end = tokens.group()
        inside = text[start:end]
        return inside.strip(), start + len(inside) - len(inside.lstrip())
    names = [tokens.take().text]
    while tokens.word("."):
        names.append(tokens.take().text)
    columns = "*"
    following = tokens.peek()
    if following is not None and following.text == "(":
        start, end = tokens.group()
        columns = text[start:end].strip()
    return f"SELECT {columns}\nFROM {'.'.join(names)}", None


def _options(tokens: _Tokens) -> dict[str, Any]:
    """Options as they were given, names in lower case."""
    tokens.word("WITH")
    token = tokens.peek()
    given: dict[str, Any] = {}
    if token is not None and token.text == "(":
        tokens.take()
        while not tokens.word(")"):
            name = tokens.take().text.lower()
            given[name] = _argument(tokens, name)
            tokens.word(",")
        return given
    while (token := tokens.peek()) is not None:
        name = tokens.take().text.lower()
        if name in ("csv", "binary"):
            given["format"] = name
        elif name == "header":
            given["header"] = True
        elif name == "force":
            name = f"force_{tokens.take().text.lower()}"
            given[name] = _names(tokens)
        else:
            tokens.word("AS")
            given[name] = tokens.take().value()
    return given


def _argument(tokens: _Tokens, name: str) -> object:
    """The argument of an option in parentheses."""
    token = tokens.peek()
    if token is None or token.text in (",", ")"):
        return True
    if name.startswith("force_"):
        return _names(tokens)
    return tokens.take().value()


def _names(tokens: _Tokens) -> tuple[str, ...]:
    """``*``, or names of columns, in parentheses or not."""
    if tokens.word("*"):
        return ("*",)
    inside = bool(tokens.word("("))
    names = [tokens.take().name()]
    while tokens.word(","):
        names.append(tokens.take().name())
    if inside and not tokens.word(")"):
        raise PostgresError("syntax error in the columns of FORCE QUOTE", "42601")
    return tuple(names)


_DEFAULT = {"format", "header", "delimiter", "null", "quote", "escape", "force_quote", "encoding"}


def _format(given: dict[str, Any]) -> dict[str, Any]:
    """What CopyFormat is made of."""
    for name in given:
        if name not in _DEFAULT:
            raise NotSupported(f'the COPY option "{name}" is not supported on this cluster')
    if str(given.get("encoding", "utf8")).lower().replace("-", "") != "utf8":
        raise NotSupported("COPY writes UTF-8 only", hint="leave the option ENCODING out")
    form = str(given.get("format", "text")).lower()
    if form == "binary":
        raise _no_binary()
    if form not in ("text", "csv"):
        raise PostgresError(f'COPY format "{form}" not recognized', "22023")
    csv = form == "csv"
    if not csv and (found := {"quote", "escape", "force_quote"} & given.keys()):
        raise PostgresError(f"COPY {min(found).replace('_', ' ').upper()} requires CSV mode", "0A000")
    quote = _char("quote", given.get("quote", '"'))
    made = {
        "csv": csv,
        "header": _switch(given.get("header", False)),
        "delimiter": _char("delimiter", given.get("delimiter", "," if csv else "\t")),
        "null": str(given.get("null", "" if csv else "\\N")),
        "quote": quote,
        "escape": _char("escape", given.get("escape", quote)),
        "force_quote": given.get("force_quote", ()),
    }
    if csv and made["delimiter"] == quote:
        raise PostgresError("COPY delimiter and quote must be different", "22023")
    if not csv and made["delimiter"] in _BAD_DELIMITERS:
        raise PostgresError(f'COPY delimiter cannot be "{made["delimiter"]}"', "22023")
    if "\n" in made["null"] or "\r" in made["null"] or made["delimiter"] in made["null"]:
        raise PostgresError("COPY null representation cannot hold the delimiter or a line's end", "22023")
    return made


def _char(name: str, value: object) -> str:
    text = str(value)
    if len(text.encode()) != 1 or text in "\r\n\0":
        raise PostgresError(f"COPY {name} must be a single one-byte character", "0A000")
    return text


def _switch(value: object) -> bool:
    word = str(value).lower()
    if word in ("true", "on", "1"):
        return True
    if word in ("false", "off", "0"):
        return False
    raise PostgresError("COPY header requires a Boolean value", "42601")


def _no_binary() -> NotSupported:
    return NotSupported("COPY in binary is not supported on this cluster", hint="use FORMAT csv or text")
