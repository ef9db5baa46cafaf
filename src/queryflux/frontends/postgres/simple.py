"""The simple query protocol: one message, any number of statements, text results.

Several statements belong together as in PostgreSQL: they run in one transaction, the first error ends them.
"""

import re
from collections.abc import Callable

from queryflux.frontends.postgres.answers import copy_done, open_copy, open_rows, relay, write_reply
from queryflux.frontends.postgres.client import DIALECT, Client
from queryflux.frontends.postgres.commands import (
    CONTROL,
    DeallocateCommand,
    Reply,
    SetCommand,
    ShowCommand,
    done_tag,
    foreign,
    is_special,
    number_command,
    read_command,
    rows_tag,
)
from queryflux.frontends.postgres.copy import read_copy_out
from queryflux.model.endings import EndReason
from queryflux.model.errors import NotSupported, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Statement
from queryflux.pipeline.face import Classification, Query, StatementKind, TransactionStatus
from queryflux.results.answer import Answer, Batches, Done, Frames
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Oid
from queryflux.wire.postgres.messages import Column
from queryflux.wire.postgres.native import PLAIN_WORDS, BoundQuery, SimpleQuery

UNLOCK_ALL = "pg_advisory_unlock_all"
_UNLOCK_ALL = re.compile(rf"select\s+{UNLOCK_ALL}\(\)\s*", re.IGNORECASE)
"""Pools send it when a connection comes back; only PostgreSQL has such locks."""


async def simple_query(client: Client, text: str) -> None:
    """Run a Query message and answer it, ReadyForQuery included."""
    client.query_id = ""
    first = text.find(";")
    if (first < 0 or first == len(text) - 1) and text[:6].lower() in PLAIN_WORDS:
        try:
            await _one(client, text if first < 0 else text[:first])
        except QueryFluxError as error:
            client.report(error)
    else:
        await _several(client, text)
    client.ready()


async def _several(client: Client, text: str) -> None:
    statements = client.pipeline.split(text, DIALECT)
    if not statements:
        client.outbox.add(messages.EMPTY_QUERY)
        return
    together = len(statements) > 1
    offset, succeeded = 0, True
    try:
        if together:
            await client.conversation.begin_implicit()
        for statement in statements:
            offset = max(text.find(statement, offset), 0)
            succeeded = await _one(client, statement, offset)
            if not succeeded:
                break
            offset += len(statement)
    except QueryFluxError as error:
        succeeded = False
        client.report(error, offset if together else text.find(statements[0]))
    if together:
        try:
            await client.conversation.sync(not succeeded)
        except QueryFluxError as error:
            client.report(error)


async def _one(client: Client, text: str, offset: int = 0) -> bool:
    """Run one statement, which begins at ``offset`` of what the client sent. False when the server has told
    the client of an error; raises any other."""
    client.query_id = ""
    if UNLOCK_ALL in text and _UNLOCK_ALL.fullmatch(text) and not client.native():
        write_reply(client.outbox, Reply("SELECT 1", (Column(UNLOCK_ALL, Oid.VOID, 4),), (("",),)))
        return True
    if (number := number_command(text)) is not None and not client.native():
        write_reply(client.outbox, client.run_command(number, client.classify(text)))
        return True
    classification = None
    if text[:6].lower() not in PLAIN_WORDS:
        classification = client.classify(text)
        if classification.kind in CONTROL:
            await control(client, submit(client, text), classification)
            return True
        if is_special(classification):
            return await _special(client, text, classification, offset)
    return await _run(client, text, offset)


def submit(client: Client, text: str) -> Query:
    """Begin with a statement of the simple protocol."""
    query = client.conversation.submit(Statement(text, DIALECT, (), SimpleQuery(text, client.upload)))
    client.query_id = query.id
    return query


async def _special(client: Client, text: str, classification: Classification, offset: int) -> bool:
    native = client.native()
    command = read_command(text, classification)
    if isinstance(command, SetCommand) and command.name.lower() in ("client_encoding", "names"):
        client.apply(command)
    if isinstance(command, DeallocateCommand) and command.name in client.prepared:
        native = False
    elif isinstance(command, ShowCommand) and command.name and not client.settings.is_known(command.name):
        command = None
    if command is not None and not native:
        write_reply(client.outbox, client.run_command(command, classification))
        return True
    refusal = foreign(text, classification)
    if refusal is not None and not native:
        await _instead(client, text, classification, offset, refusal)
        return True
    succeeded = await _run(client, text, offset, refusal)
    if succeeded and command is not None:
        client.follow(command)
    return succeeded


async def _instead(
    client: Client, text: str, classification: Classification, offset: int, refusal: NotSupported
) -> None:
    """COPY TO STDOUT by a query; raises ``refusal`` for everything else."""
    if classification.kind is not StatementKind.COPY or classification.writes:
        raise refusal
    copy = read_copy_out(text)
    if copy is None:
        raise refusal
    if client.classify(copy.query).kind is not StatementKind.QUERY:
        raise NotSupported("COPY needs a query on this cluster", hint="COPY (SELECT ...) TO STDOUT")
    query = client.conversation.submit(Statement(copy.query, DIALECT))
    client.query_id = query.id
    timer = client.limit_time(query)
    try:
        answer = await query.start()
        assert isinstance(answer, Batches)
        rows = await open_copy(client, query, answer, copy.options)
        try:
            client.outbox.add(rows.encoder.description)
            client.outbox.add(copy_done(await rows.send(client.outbox)))
        finally:
            await rows.close()
    except BaseException as error:
        await query.close()
        if isinstance(error, QueryFluxError) and error.position is not None:
            error.position = None if copy.offset is None else error.position + copy.offset
        raise
    finally:
        if timer is not None:
            timer.cancel()


async def control(client: Client, query: Query, classification: Classification) -> None:
    """BEGIN, COMMIT or ROLLBACK, with the warnings PostgreSQL gives."""
    kind = classification.kind
    before = client.conversation.transaction
    answer = await query.start()
    tag = answer.tag if isinstance(answer, Done) else kind.name
    if kind is StatementKind.BEGIN:
        tag = " ".join(classification.words)
        if before is not TransactionStatus.IDLE:
            client.warn("25001", "there is already a transaction in progress")
        client.settings.begin()
    else:
        if before is TransactionStatus.IDLE:
            client.warn("25P01", "there is no transaction in progress")
        client.settings.end(committed=tag == "COMMIT")
        client.renew_session()
    client.outbox.add(messages.command_complete(tag))


async def _run(
    client: Client,
    text: str,
    offset: int,
    refusal: NotSupported | None = None,
) -> bool:
    """``refusal`` is raised when it turns out to go to an engine that does not speak PostgreSQL."""
    query = submit(client, text)
    if refusal is not None and query.group and query.engine_protocol is not ClientProtocol.POSTGRES_WIRE:
        await query.close(EndReason.FAILED)
        raise refusal
    timer = client.limit_time(query)
    try:
        return await give(client, query, await query.start(), text, offset=offset)
    except BaseException:
        await query.close()
        raise
    finally:
        if timer is not None:
            timer.cancel()


async def give(
    client: Client,
    query: Query,
    answer: Answer,
    text: str,
    *,
    offset: int = 0,
    bound: BoundQuery | None = None,
    tell: Callable[[bytes], None] | None = None,
) -> bool:
    """Write an answer to its end. False when the server has told the client of an error. ``offset``: see
    ``relay``; ``bound``: it is the answer to that, and ``tell`` gets what its rows begin with."""
    outbox = client.outbox
    if isinstance(answer, Frames):
        if not await relay(query, answer, outbox, offset, tell):
            client.failed()
            return False
        return True
    describe = bound is None or bound.describe
    if isinstance(answer, Done):
        outbox.add(messages.NO_DATA * (bound is not None and describe))
        outbox.add(messages.command_complete(done_tag(answer.tag, answer.rows)))
        return True
    formats = () if bound is None else messages.bound(bound.rest[: bound.bound])[2]
    rows = await open_rows(client, query, answer, formats, b"" if bound is None else bound.told)
    try:
        outbox.add(rows.encoder.description * describe)
        if tell is not None:
            tell(rows.encoder.description)
        count = await rows.send(outbox)
    finally:
        await rows.close()
    outbox.add(messages.command_complete(rows_tag(client.classify(text), count)))
    return True
