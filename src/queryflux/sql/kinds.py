"""What a statement is, as far as its leading words tell."""

from dataclasses import dataclass
from enum import Enum


class StatementKind(Enum):
    """What the leading words say, comments aside. Doors use it to answer SET, SHOW and the like
    themselves."""

    EMPTY = "empty"
    QUERY = "query"
    WRITE = "write"
    DDL = "ddl"
    EXPLAIN = "explain"
    SHOW = "show"
    DESCRIBE = "describe"
    SET = "set"
    RESET = "reset"
    USE = "use"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    PREPARE = "prepare"
    EXECUTE = "execute"
    DEALLOCATE = "deallocate"
    COPY = "copy"
    CALL = "call"
    KILL = "kill"
    LISTEN = "listen"
    CURSOR = "cursor"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Classification:
    """``kind``, and ``words``: the first words in upper case, as a command tag would show them.

    ``writes`` says that running it may change data or definitions. It is also true of an EXPLAIN ANALYZE of
    a write (kind EXPLAIN), of a PostgreSQL WITH whose parts insert, update or delete (kind WRITE), and of
    what cannot be told from its words (CALL, EXECUTE, DO).
    """

    kind: StatementKind
    words: tuple[str, ...]
    writes: bool = False
