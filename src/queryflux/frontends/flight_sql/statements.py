"""Which statements a Flight SQL client may send as text."""

from queryflux.model.errors import InvalidRequest, NotSupported, StatementTooLarge
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Pipeline, StatementKind

DIALECT = ClientProtocol.FLIGHT_SQL.dialect

_CONTROL = {StatementKind.BEGIN, StatementKind.COMMIT, StatementKind.ROLLBACK}
_NEEDS_A_SESSION = {
    StatementKind.SET,
    StatementKind.RESET,
    StatementKind.USE,
    StatementKind.PREPARE,
    StatementKind.LISTEN,
    StatementKind.CURSOR,
}


def check_statement(pipeline: Pipeline, text: str, *, in_transaction: bool) -> int:
    """The size in bytes of a statement that may run. Raises InvalidRequest, NotSupported,
    StatementTooLarge."""
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    most = pipeline.max_statement_bytes
    if size > most:
        raise StatementTooLarge(f"the statement has {size} bytes and maxStatementBytes is {most}")
    kind = pipeline.classify(text, DIALECT).kind
    if kind is StatementKind.EMPTY:
        raise InvalidRequest("the statement is empty")
    if kind in _CONTROL:
        raise InvalidRequest(
            "transactions begin and end by Flight SQL's own actions", hint="use the driver's commit()"
        )
    if kind in _NEEDS_A_SESSION and not in_transaction:
        raise NotSupported(
            "a Flight SQL client has no session that would outlive this statement",
            hint="send it inside a transaction, together with what needs it",
        )
    if ";" in text and len(pipeline.split(text, DIALECT)) > 1:
        raise InvalidRequest("one statement at a time", hint="send each statement by itself")
    return size
