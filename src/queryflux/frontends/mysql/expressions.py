"""The few expressions a connection can work out by itself: variables, literals and functions about it.

``SELECT @@session.autocommit AS a, DATABASE()`` and ``SET sql_mode = (SELECT CONCAT(@@sql_mode, ',X'))`` are
made of these. What is not made of these is no fault: NotLocal sends the statement on its way to an engine.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from queryflux.frontends.mysql.functions import ARITY, FUNCTIONS
from queryflux.model.settings import Value


class NotLocal(Exception):
    """The text is more than this parser reads."""


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is one of word, quoted (an identifier in backticks), string, number, system, user, mark."""

    kind: str
    text: str
    start: int
    end: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+|--(?=\s|$)[^\n]*|\#[^\n]*|/\*!\d*|/\*(?!!)[\s\S]*?\*/|\*/)
  | (?P<system>@@(?:(?:session|local|global|persist|persist_only)\s*\.\s*)?(?:[A-Za-z_][\w$]*|`[^`]*`))
  | (?P<user>@(?:[\w$.]+|`[^`]*`|'[^'\\]*'|"[^"\\]*"))
  | (?P<string>'(?:[^'\\]|\\[\s\S]|'')*+'|"(?:[^"\\]|\\[\s\S]|"")*+")
  | (?P<quoted>`(?:[^`]|``)*+`)
  | (?P<number>0[xX][0-9A-Fa-f]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))
  | (?P<word>[A-Za-z_\x80-\U0010FFFF][\w$]*)
  | (?P<mark>:=|<=|>=|<>|!=|[^\s])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPED = re.compile(r"\\([\s\S])")


def tokens(text: str) -> list[Token]:
    """The tokens of ``text``; comments are passed over, and what stands in ``/*! */`` counts. Raises
    NotLocal for anything else than tokens."""
    found: list[Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKENS.match(text, offset)
        if match is None or match.end() == offset:
            raise NotLocal
        offset = match.end()
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup or "", match[0], match.start(), offset))
    return found


def unquote(text: str) -> str:
    """The value of a string literal or of an identifier in backticks (MySQL manual 9.1.1, 9.2)."""
    quote, body = text[0], text[1:-1]
    body = body.replace(quote * 2, quote)
    if quote == "`":
        return body
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), body)


# What the parser makes, and how each is worked out.


class Surroundings(Protocol):
    """What expressions are about."""

    def system_variable(self, name: str, globally: bool) -> Value:
        """``@@name``."""

    def user_variable(self, name: str) -> str | int | None:
        """``@name``; NULL when it was never set."""

    def function(self, name: str) -> str | int | None:
        """One of CONNECTION_FUNCTIONS, by its upper-case name."""


_FUNCTION_NAMES = """
DATABASE SCHEMA USER CURRENT_USER SESSION_USER SYSTEM_USER CONNECTION_ID VERSION ROW_COUNT FOUND_ROWS
LAST_INSERT_ID
"""
CONNECTION_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a string, a bare word such as ON, or NULL."""

    value: str | int | None


@dataclass(frozen=True, slots=True)
class SystemVariable:
    """``@@name``, ``@@session.name``, ``@@global.name``."""

    name: str
    globally: bool


@dataclass(frozen=True, slots=True)
class UserVariable:
    """``@name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the connection, or one of FUNCTIONS; operators are functions too."""

    name: str
    arguments: tuple["Expression", ...] = ()


Expression = Literal | SystemVariable | UserVariable | Call


def evaluate(expression: Expression, around: Surroundings) -> str | int | None:
    """The value. Raises ServerError for a variable that does not exist."""
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, SystemVariable):
        value = around.system_variable(expression.name, expression.globally)
        return int(value) if isinstance(value, bool) else value
    if isinstance(expression, UserVariable):
        return around.user_variable(expression.name)
    if expression.name in CONNECTION_FUNCTIONS:
        return around.function(expression.name)
    return FUNCTIONS[expression.name](*(evaluate(item, around) for item in expression.arguments))


def about_connection(expression: Expression) -> bool:
    """Whether some part of it is a variable or says something of the connection."""
    if isinstance(expression, Call):
        known = expression.name in CONNECTION_FUNCTIONS
        return known or any(about_connection(item) for item in expression.arguments)
    return not isinstance(expression, Literal)


_DEEPEST = 16


class Reader:
    """Reads tokens from front to back; every method raises NotLocal for what it does not know."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def peek(self) -> Token | None:
        """The next token, if there is one."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def next(self) -> Token:
        """The next token, consumed."""
        token = self.peek()
        if token is None:
            raise NotLocal
        self._at += 1
        return token

    def accept(self, *spellings: str) -> str:
        """Consume the next token if it is a word or mark of these; its spelling in upper case, else empty."""
        token = self.peek()
        if token is not None and token.kind in ("word", "mark") and token.text.upper() in spellings:
            self._at += 1
            return token.text.upper()
        return ""

    def expect(self, *spellings: str) -> str:
        """As ``accept``, and it must be there."""
        found = self.accept(*spellings)
        if not found:
            raise NotLocal
        return found

    def finish(self) -> None:
        """Nothing may follow but semicolons."""
        while self.accept(";"):
            pass
        if self.peek() is not None:
            raise NotLocal

    def name(self) -> str:
        """An identifier, bare or in backticks."""
        token = self.next()
        if token.kind == "word":
            return token.text
        if token.kind == "quoted":
            return unquote(token.text)
        raise NotLocal

    def string(self) -> str:
        """A string literal."""
        token = self.next()
        if token.kind != "string":
            raise NotLocal
        return unquote(token.text)

    def expression(self) -> Expression:
        """One expression."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotLocal
        try:
            found = self._conjunction()
            while self.accept("OR"):
                found = Call("OR", (found, self._conjunction()))
            return found
        finally:
            self._depth -= 1

    def _conjunction(self) -> Expression:
        found = self._comparison()
        while self.accept("AND"):
            found = Call("AND", (found, self._comparison()))
        return found

    def _comparison(self) -> Expression:
        left = self._expression(self.next())
        operator = self.accept("=", "<>", "!=", "<", ">", "<=", ">=")
        return Call(operator, (left, self._expression(self.next()))) if operator else left

    def _expression(self, token: Token) -> Expression:
        if token.kind == "string":
            return Literal(unquote(token.text))
        if token.kind == "number":
            return Literal(_number(token.text))
        if token.kind == "system":
            return system_variable(token)
        if token.kind == "user":
            return UserVariable(user_name(token))
        if token.text == "(":
            return self._parenthesis()
        if token.text in ("-", "+"):
            return self._signed(token.text)
        if token.kind == "word":
            return self._word(token.text)
        if token.kind == "quoted":
            return Literal(unquote(token.text))
        raise NotLocal

    def _parenthesis(self) -> Expression:
        self.accept("SELECT")
        inner = self.expression()
        self.expect(")")
        return inner

    def _signed(self, sign: str) -> Expression:
        token = self.next()
        if token.kind != "number":
            raise NotLocal
        number = _number(token.text)
        if sign == "+":
            return Literal(number)
        return Literal(-number if isinstance(number, int) else "-" + number)

    def _word(self, word: str) -> Expression:
        upper = word.upper()
        if not self.accept("("):
            if upper == "CURRENT_USER":
                return Call(upper)
            return Literal(None if upper == "NULL" else word)
        arguments: list[Expression] = []
        while not self.accept(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.expression())
        if upper in CONNECTION_FUNCTIONS and not arguments:
            return Call(upper)
        least, most = ARITY.get(upper, (1, 0))
        if not least <= len(arguments) <= most:
            raise NotLocal
        return Call(upper, tuple(arguments))


def _number(text: str) -> str | int:
    if text.isdigit():
        return int(text) if len(text) <= 20 else text
    if text[:2] in ("0x", "0X"):
        return int(text, 16) if len(text) <= 18 else text
    return text


def system_variable(token: Token) -> SystemVariable:
    """The variable that a token ``@@scope.name`` names."""
    scope, dot, name = token.text[2:].rpartition(".")
    return SystemVariable(name.strip().strip("`").lower(), bool(dot) and scope.strip().lower() == "global")


def user_name(token: Token) -> str:
    """The lower-case name of a token ``@name``."""
    return token.text[1:].strip("`'\"").lower()


_OUTSIDE = re.compile(
    r"""
    '(?:[^'\\]++|\\[\s\S]|'')*+(?:'|\\?\Z) | "(?:[^"\\]++|\\[\s\S]|"")*+(?:"|\\?\Z) | `[^`]*+(?:`|\Z)
  | --(?=\s|\Z)[^\n]*+ | \#[^\n]*+ | /\*(?!!)(?:[^*]++|\*(?!/))*+(?:\*/|\Z)
  | @@(?:(?:session|local|global|persist|persist_only)\.)?(?:[A-Za-z_][\w$]*|`[^`]*`)
  | @(?:[\w$.]+|`[^`]*`|'[^'\\]*'|"[^"\\]*")
  | \?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Every alternative begins with a character of its own, in no group: then the search looks for these
characters alone, which is several times as fast on texts of megabytes."""


def placeholders(text: str) -> int:
    """How many question marks stand outside strings, identifiers and comments."""
    if "?" not in text:
        return 0
    return sum(match[0] == "?" for match in _OUTSIDE.finditer(text))


def substitute(text: str, literal: Callable[[Expression], str]) -> str:
    """``text`` with every variable outside strings, identifiers and comments replaced by what ``literal``
    gives for it."""

    def replaced(match: re.Match[str]) -> str:
        found = match[0]
        if not found.startswith("@"):
            return found
        kind = "system" if found.startswith("@@") else "user"
        token = Token(kind, found, match.start(), match.end())
        return literal(system_variable(token) if kind == "system" else UserVariable(user_name(token)))

    return _OUTSIDE.sub(replaced, text)
