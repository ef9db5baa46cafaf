"""How deep a statement is nested: the parser takes twice as long with each call within a call of some kinds
(``f(array[f(array[``), so that a text of a few hundred characters can keep it busy for minutes."""

from queryflux.sql.lexer import tokens


def is_deeper(text: str, dialect: str, most: int) -> bool:
    """Whether more than ``most`` brackets stand in each other, outside of strings, names and comments."""
    if text.count("(") + text.count("[") + text.count("{") <= most:
        return False
    depth = 0
    for _, start, stop in tokens(text, dialect):
        if stop - start != 1:
            continue
        if text[start] in "([{":
            depth += 1
            if depth > most:
                return True
        elif text[start] in ")]}":
            depth = max(0, depth - 1)
    return False
