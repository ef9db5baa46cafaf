"""The statements of a text, cut at semicolons that end one."""

import re
from functools import cache

from queryflux.sql.lexer import blank_end, nested_end, passage_pattern, traits_of

_STORED_PROGRAM = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:definer\s*=\s*\S+\s+)?(?:aggregate\s+)?"
    r"(?P<what>function|procedure|trigger|event)\b",
    re.IGNORECASE,
)
_BEGIN_ATOMIC = re.compile(r"\bbegin\s+atomic\b", re.IGNORECASE)
_LAST_WORD = re.compile(r"([A-Za-z]+)\s*\Z")


def split(text: str, dialect: str) -> list[str]:
    """The statements of ``text`` as they were written, without surrounding white space, without the
    semicolons and without those that hold nothing but comments. Takes time linear in the text.

    Strings, quoted identifiers, comments and dollar quotes are passed over; so is the body of a PostgreSQL
    routine between BEGIN ATOMIC and END, and that of a MySQL stored program.
    """
    first = text.find(";")
    if first < 0 or not text[first + 1 :].strip():
        statement = (text if first < 0 else text[:first]).strip()
        return [statement] if has_words(statement, dialect) else []
    parts = _cut(text, dialect)
    return [part for part in _rejoin(parts, dialect) if has_words(part, dialect)]


def has_words(text: str, dialect: str) -> bool:
    """Whether there is anything but white space and comments."""
    return text[:1].isalpha() or blank_end(text, dialect) < len(text)


@cache
def _run_expression(dialect: str) -> re.Pattern[str]:
    """Everything up to the next semicolon or nested comment, in one match."""
    return re.compile(f"(?:{passage_pattern(traits_of(dialect), ';')})*+")


def _cut(text: str, dialect: str) -> list[str]:
    run = _run_expression(dialect).match
    parts: list[str] = []
    start = position = 0
    end = len(text)
    while position < end:
        found = run(text, position)
        assert found is not None
        position = found.end()
        if text.startswith("/*", position):
            position = nested_end(text, position)
        elif position < end:
            if text[position] == ";":
                parts.append(text[start:position])
                start = position + 1
            position += 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def _rejoin(parts: list[str], dialect: str) -> list[str]:
    """Put the bodies of stored programs together again."""
    joined: list[str] = []
    index = 0
    while index < len(parts):
        part = parts[index]
        index += 1
        program = part[:1] in ("c", "C") and _STORED_PROGRAM.match(part)
        if program and traits_of(dialect).executable_comments and re.search(r"(?i)\bbegin\b", part):
            part = ";\n".join([part, *parts[index:]]).rstrip(";\n")
            index = len(parts)
        elif program and dialect == "postgres" and _BEGIN_ATOMIC.search(part):
            while index < len(parts) and not _ends_body(part):
                part = f"{part}; {parts[index]}"
                index += 1
        joined.append(part)
    return joined


def _ends_body(part: str) -> bool:
    word = _LAST_WORD.search(part)
    return word is not None and word.group(1).upper() == "END"
