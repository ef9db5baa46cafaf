"""BEGIN, COMMIT and ROLLBACK, as Trino spells them."""

from dataclasses import dataclass

from queryflux.engines.control import spoken

TRANSACTION_ID = "X-Trino-Transaction-Id"
STARTED = "x-trino-started-transaction-id"
NO_TRANSACTION = "NONE"


@dataclass(frozen=True, slots=True)
class Control:
    """``tag`` is BEGIN, COMMIT or ROLLBACK."""

    tag: str
    sql: str


ROLLBACK = Control("ROLLBACK", "ROLLBACK")


def control(sql: str) -> Control | None:
    """The transaction control statement that a text is, if it is one."""
    said = spoken(sql)
    if said is None:
        return None
    if said.tag == "BEGIN":
        return Control("BEGIN", f"START TRANSACTION {', '.join(said.modes)}".rstrip())
    return Control(said.tag, said.tag)
