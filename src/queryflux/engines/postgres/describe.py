"""Asking the server what a statement takes and gives, without running it."""

from dataclasses import dataclass

from queryflux.engines.postgres.errors import engine_error, plan_is_stale
from queryflux.engines.postgres.link import ServerLink, StatementKey
from queryflux.engines.postgres.settings import codec_of, encoded
from queryflux.model.errors import EngineConnectionLost, EngineError, ProtocolViolation, QueryFluxError
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.constants import Back


@dataclass(frozen=True, slots=True)
class Described:
    """``raw`` holds the server's own ParameterDescription and RowDescription or NoData; ``columns`` is None
    for a statement without a result set."""

    raw: bytes
    parameters: tuple[int, ...]
    columns: tuple[wire.Column, ...] | None
    result: bytes
    """The second of the two messages."""


async def describe_on(link: ServerLink, sql: str, oids: tuple[int, ...]) -> Described:
    """Prepare and describe. Inside a batch without its Sync yet it stays so.

    Raises EngineError, EngineConnectionLost, InvalidRequest.
    """
    key = (sql, oids)
    retriable = link.status == b"I" and not link.unsynced and bool(link.prepared(key))
    try:
        return await _describe(link, key)
    except EngineError as error:
        if not (retriable and plan_is_stale(error)):
            raise
    return await _describe(link, key)


async def _describe(link: ServerLink, key: StatementKey) -> Described:
    name, before = link.prepared(key), b""
    if not name:
        name, before = link.prepare(key, encoded(key[0], codec_of(link.settings or ())), named=True)
    batch = link.unsynced
    link.stream.write(before + wire.describe_statement(name) + (wire.FLUSH if batch else wire.SYNC))
    raw: list[bytes] = []
    parameters: tuple[int, ...] = ()
    columns: tuple[wire.Column, ...] | None = None
    failure: QueryFluxError | None = None
    messages = link.messages
    done = False
    while not done:
        try:
            kind = messages.next()
            if not kind:
                await link.read()
                continue
            whole = messages.data[messages.start : messages.end]
            if kind == Back.PARAMETER_DESCRIPTION:
                raw.append(whole)
                parameters = wire.parse_parameter_description(messages.body)
            elif kind == Back.ROW_DESCRIPTION or kind == Back.NO_DATA:
                raw.append(whole)
                if kind == Back.ROW_DESCRIPTION:
                    columns = tuple(wire.parse_row_description(messages.body))
                done = batch
            elif kind == Back.ERROR:
                link.forget(key)
                failure = engine_error(wire.parse_error(messages.body))
                if isinstance(failure, EngineConnectionLost):
                    link.broken = True
                    raise failure
                done = batch
            elif kind == Back.READY_FOR_QUERY:
                link.status = messages.body
                done = True
        except ProtocolViolation as error:
            raise link.garbage(error) from error
    if failure is not None:
        raise failure
    if name:
        link.shapes[name] = raw[-1]
    return Described(b"".join(raw), parameters, columns, raw[-1])
