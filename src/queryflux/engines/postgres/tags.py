"""The words of a command tag, for statements that ADBC runs: it gives their number of rows only."""

from queryflux.engines.postgres.text import first_word, leading_words, main_statement

_TWO_WORDS = {"CREATE", "DROP", "ALTER", "REFRESH", "COMMENT", "SECURITY"}
_OTHERWISE = {
    "START": "START TRANSACTION",
    "END": "COMMIT",
    "ABORT": "ROLLBACK",
    "WITH": "SELECT",
    "VALUES": "SELECT",
    "TABLE": "SELECT",
    "(": "SELECT",
}
_NOISE = {"OR", "REPLACE", "TEMP", "TEMPORARY", "UNLOGGED", "GLOBAL", "LOCAL", "UNIQUE", "RECURSIVE"}
_LONG = {"MATERIALIZED": 2, "FOREIGN": 2, "EVENT": 2, "TEXT": 3, "ACCESS": 2, "SECURITY": 2}


def tag_of(sql: str, *, failed: bool) -> str:
    """The tag of a statement; ``failed``: it was said in a transaction that had failed."""
    word = first_word(sql)
    if word == "WITH":
        word = first_word(sql[main_statement(sql) :])
    if word in _TWO_WORDS:
        first, *rest = leading_words(sql, 5)
        rest = [each for each in rest if each not in _NOISE]
        return " ".join([first, *rest[: _LONG.get(rest[0], 1) if rest else 0]])
    tag = _OTHERWISE.get(word, word)
    return "ROLLBACK" if failed and tag == "COMMIT" else tag
