"""The statements of Trino's grammar that concern the session and not an engine (Trino documentation, SET
SESSION, USE, PREPARE, EXECUTE, DESCRIBE INPUT and their kin), and the values of ``?`` placeholders."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from queryflux.model.errors import InvalidRequest, SqlSyntaxError

# Possessive, so that every token takes linear time; strings never closed run to the end.
_TOKEN = re.compile(
    r"""(?P<space>\s++|--[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))
    |(?P<string>'(?:[^']|'')*+(?:'|\Z))
    |(?P<quoted>"(?:[^"]|"")*+(?:"|\Z))
    |(?P<word>[A-Za-z_][A-Za-z0-9_$@:]*+)
    |(?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    |(?P<other>[\s\S])""",
    re.VERBOSE,
)
_OPENING = "(["
_CLOSING = ")]"
_ZONED = re.compile(r"'\s*\d{1,6}-\d{1,2}-\d{1,2}\s+\d{1,2}:\d{2}(?::\d{2}(?:\.(\d{1,12}))?)?\s*[+\-A-Za-z]")


@dataclass(frozen=True, slots=True)
class Word:
    """A token: its kind (a group of the expression above), its text, and where it begins."""

    kind: str
    text: str
    start: int


@dataclass(frozen=True, slots=True)
class SetSession:
    """SET SESSION name = value, or SET TIME ZONE value; the value as text, without the quotes of a string."""

    name: str
    value: str
    kind: str = "SET SESSION"


@dataclass(frozen=True, slots=True)
class ResetSession:
    """RESET SESSION name."""

    name: str


@dataclass(frozen=True, slots=True)
class Use:
    """USE schema, or USE catalog.schema."""

    catalog: str | None
    schema: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """PREPARE name FROM statement."""

    name: str
    statement: str


@dataclass(frozen=True, slots=True)
class Deallocate:
    """DEALLOCATE PREPARE name."""

    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """EXECUTE name or EXECUTE IMMEDIATE 'statement', with the expressions after USING."""

    name: str | None
    statement: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribePrepared:
    """DESCRIBE INPUT name, or DESCRIBE OUTPUT name."""

    name: str
    output: bool


SessionStatement = SetSession | ResetSession | Use | Prepare | Deallocate | Execute | DescribePrepared


def words(text: str) -> Iterator[Word]:
    """The tokens of a text; space and comments are left out."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield Word(match.lastgroup or "", match.group(), match.start())


class _Reader:
    """Reads a statement token by token; what is not as expected is a SqlSyntaxError with its position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = list(words(text))
        while self._words and self._words[-1].text == ";":
            self._words.pop()
        self._at = 0

    @property
    def here(self) -> Word | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def fail(self, expected: str) -> SqlSyntaxError:
        found = self.here
        what = f"'{found.text[:40]}'" if found is not None else "the end of the statement"
        position = found.start if found is not None else len(self.text)
        return SqlSyntaxError(f"mismatched input {what}. Expecting: {expected}", position=position)

    def take(self, *spellings: str) -> bool:
        """Whether the next tokens are these words; they are passed over if so."""
        for offset, spelling in enumerate(spellings):
            place = self._at + offset
            if place >= len(self._words) or self._words[place].text.upper() != spelling:
                return False
        self._at += len(spellings)
        return True

    def expect(self, *spellings: str) -> None:
        if not self.take(*spellings):
            raise self.fail(f"'{' '.join(spellings)}'")

    def name(self) -> str:
        """An identifier; lower case unless it is quoted."""
        found = self.here
        if found is None or found.kind not in ("word", "quoted"):
            raise self.fail("an identifier")
        if not found.text.isprintable():
            raise self.fail("an identifier without control characters")  # names travel in headers
        self._at += 1
        return unquoted(found.text) if found.kind == "quoted" else found.text.lower()

    def string(self) -> str:
        found = self.here
        if found is None or found.kind != "string":
            raise self.fail("a string")
        self._at += 1
        return unquoted(found.text)

    def rest(self) -> str:
        """Everything that is left, as it was written."""
        found = self.here
        if found is None:
            raise self.fail("a statement or an expression")
        last = self._words[-1]
        self._at = len(self._words)
        return self.text[found.start : last.start + len(last.text)]

    def end(self) -> None:
        if self.here is not None:
            raise self.fail("the end of the statement")


def unquoted(text: str) -> str:
    """The content of a string or of a quoted identifier."""
    quote = text[0]
    inner = text[1:-1] if len(text) > 1 and text.endswith(quote) else text[1:]
    return inner.replace(quote * 2, quote)


def parse(text: str) -> SessionStatement | None:
    """The session statement that ``text`` is; None for one that is left to an engine. Raises
    SqlSyntaxError."""
    reader = _Reader(text)
    if reader.take("SET", "SESSION", "AUTHORIZATION") or reader.take("RESET", "SESSION", "AUTHORIZATION"):
        return None
    if reader.take("SET", "SESSION"):
        return _set_session(reader)
    if reader.take("SET", "TIME", "ZONE"):
        return SetSession("time_zone_id", _value(reader), "SET TIME ZONE")
    if reader.take("RESET", "SESSION"):
        return _ended(reader, ResetSession(_dotted(reader)))
    if reader.take("USE"):
        first = reader.name()
        second = reader.name() if reader.take(".") else None
        return _ended(reader, Use(first, second) if second is not None else Use(None, first))
    if reader.take("PREPARE"):
        name = reader.name()
        reader.expect("FROM")
        return Prepare(name, reader.rest())
    if reader.take("DEALLOCATE"):
        reader.expect("PREPARE")
        return _ended(reader, Deallocate(reader.name()))
    if reader.take("EXECUTE"):
        return _execute(reader)
    for output, direction in ((False, "INPUT"), (True, "OUTPUT")):
        if reader.take("DESCRIBE", direction):
            return _ended(reader, DescribePrepared(reader.name(), output))
    return None


def _ended(reader: _Reader, statement: SessionStatement) -> SessionStatement:
    reader.end()
    return statement


def _dotted(reader: _Reader) -> str:
    name = reader.name()
    return f"{name}.{reader.name()}" if reader.take(".") else name


def _set_session(reader: _Reader) -> SetSession:
    name = _dotted(reader)
    reader.expect("=")
    return SetSession(name, _value(reader))


def _value(reader: _Reader) -> str:
    text = reader.rest()
    parts = list(words(text))
    return unquoted(text) if len(parts) == 1 and parts[0].kind == "string" else text


def _execute(reader: _Reader) -> Execute:
    name = statement = None
    if reader.take("IMMEDIATE"):
        statement = reader.string()
    else:
        name = reader.name()
    arguments: tuple[str, ...] = ()
    if reader.take("USING"):
        arguments = tuple(_arguments(reader.rest()))
    reader.end()
    return Execute(name, statement, arguments)


def _arguments(text: str) -> Iterator[str]:
    """The expressions between commas, each balanced in itself and without comments."""
    depth, parts = 0, list[str]()
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "space":
            parts.append(" ")
            continue
        if piece == "," and depth == 0:
            yield _argument(parts)
            parts = []
            continue
        depth += (piece in _OPENING) - (piece in _CLOSING)
        if depth < 0 or piece == ";":
            raise SqlSyntaxError(f"mismatched input '{piece}' in the values after USING")
        if kind in ("string", "quoted") and (len(piece) < 2 or piece[-1] != piece[0]):
            raise SqlSyntaxError("a string in the values after USING is not closed")
        parts.append(piece)
    if depth:
        raise SqlSyntaxError("a parenthesis in the values after USING is not closed")
    yield _argument(parts)


def _argument(parts: list[str]) -> str:
    """One value as it can stand for a ``?`` anywhere: a literal as it is, all else in parentheses."""
    tokens = [part for part in parts if part != " "]
    if not tokens:
        raise SqlSyntaxError("a value is missing after USING")
    if len(tokens) == 1:
        return tokens[0]
    text = "".join(parts).strip()
    if len(tokens) == 2 and tokens[1].startswith("'"):
        head = tokens[0].upper()
        if head == "DECIMAL":
            return _decimal(tokens[1])
        if head == "TIMESTAMP" and (zoned := _ZONED.match(tokens[1])):
            return f"CAST({tokens[1]} AS TIMESTAMP({len(zoned.group(1) or '')}) WITH TIME ZONE)"
        return text
    return f"({text})"


def _decimal(literal: str) -> str:
    """DECIMAL '1.10' with its own precision and scale spelt out: other dialects have another default."""
    try:
        _, digits, exponent = Decimal(unquoted(literal).replace("_", "").strip()).as_tuple()
    except InvalidOperation:
        raise SqlSyntaxError(f"{literal[:60]} is no decimal") from None
    if not isinstance(exponent, int) or exponent > 0:
        raise SqlSyntaxError(f"{literal[:60]} is no decimal")
    scale = -exponent
    return f"CAST({literal} AS DECIMAL({max(len(digits), scale, 1)}, {scale}))"


def placeholders(text: str) -> list[int]:
    """Where the ``?`` of a statement stand."""
    return [word.start for word in words(text) if word.text == "?"]


def substitute(text: str, arguments: tuple[str, ...]) -> str:
    """The statement with its ``?`` replaced in order. Raises InvalidRequest when the numbers differ."""
    places = placeholders(text)
    if len(places) != len(arguments):
        raise InvalidRequest(
            f"Incorrect number of parameters: expected {len(places)} but found {len(arguments)}"
        )
    parts: list[str] = []
    done = 0
    for place, argument in zip(places, arguments, strict=True):
        parts += (text[done:place], argument)
        done = place + 1
    parts.append(text[done:])
    return "".join(parts)
