"""The quick way for what clients send most: one plain statement, alone, to a session where nothing is open.

It is a Query message, or Bind, Execute and Sync of a prepared statement, that is all the client has sent. The
engine gets the client's own bytes, and its answer goes out as it comes when it comes in one piece. All of
that happens in two calls from the event loop, when the client's bytes are there and when the engine's are,
while the session's task waits in ``read``.

What is not so is handed over to the task, as far as it has come: bytes of which nothing was done go the
general way, a query that has begun (an error, an engine of another protocol, a long answer, a cancel, a
client that has gone) is brought to its end by ``go_on``.
"""

import asyncio
from typing import cast

from queryflux.frontends.postgres.client import DIALECT, FAULTS, Client
from queryflux.frontends.postgres.commands import says_number
from queryflux.frontends.postgres.prepared import Prepared
from queryflux.frontends.postgres.simple import UNLOCK_ALL, give
from queryflux.model.statement import Parameter, Statement
from queryflux.pipeline.face import Query, TransactionStatus
from queryflux.results.answer import Answer
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.lifecycle import Session
from queryflux.wire.postgres.native import PLAIN_WORDS, QUERIES, BoundQuery, SimpleQuery
from queryflux.wire.postgres.relayed import first_description
from queryflux.wire.postgres.shapes import execution_alone, query_alone
from queryflux.wire.postgres.types import UnreadParameters

_QUERY = Front.QUERY
_BIND = Front.BIND
_READY = Session.READY
_IDLE = TransactionStatus.IDLE
_DESCRIBED = len(messages.BIND_COMPLETE)
"""Where the answer to Describe begins, when it came in one piece."""


class QuickWay:
    """The quick way of one client. When it is tried nothing is left in the client's decoder and outbox."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stream = client.stream
        self._known = client.prepared.known
        self._turn: asyncio.Future[bytes | None]
        """The task waits for it in ``read``."""
        self._query: Query | None = None
        """The one that has begun, and ``_native`` is its statement."""
        self._native: SimpleQuery | BoundQuery
        self._last: Prepared | None = None
        """What was bound last."""
        self._leaving = False

    async def read(self) -> bytes | None:
        """The next bytes that are not for the quick way; empty at the end. None: ``go_on`` has to be called
        before anything else."""
        stream = self._stream
        turn: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._turn = turn
        if not stream.expect(self._arrived):
            self._arrived(await stream.read())
        try:
            return await turn
        except asyncio.CancelledError:
            stream.expect_no_more()
            self._query = None  # it ends with its conversation
            raise

    def leave(self) -> bool:
        """Let the task have its turn after the query that runs now. False when none does."""
        self._leaving = self._query is not None
        return self._leaving

    def _hand_over(self, data: bytes | None) -> None:
        if not self._turn.done():
            self._turn.set_result(data)

    def _arrived(self, data: bytes) -> None:
        """The client has sent something while nothing was under way."""
        try:
            if not self._begin(data):
                self._hand_over(data)
        except Exception as error:
            self._fail(error)

    def _begin(self, data: bytes) -> bool:
        """Ask the engine. False: it is for the general way."""
        found: tuple[Statement, SimpleQuery | BoundQuery] | None
        kind = data[0] if data else 0
        if kind == _QUERY:
            found = self._plain(data)
        elif kind == _BIND:
            found = self._prepared(data)
        else:
            return False
        if found is None or not self._open():
            return False
        statement, native = found
        if kind == _QUERY and "" in self._known:
            del self._known[""]
        client, conversation = self._client, self._client.conversation
        self._native = native
        query = conversation.ask(statement, self._answered)
        if query is None:
            query = conversation.submit(self._with_parameters(statement))
            self._hand_over(None)
        self._query = query
        client.query_id = query.id
        return True

    def _answered(self) -> None:
        """The engine has answered, or only ``go_on`` can."""
        query, native, stream = self._query, self._native, self._stream
        whole, native.whole = native.whole, None  # the query's record may keep the statement for a while
        if whole is None or query is None or query.stopped:
            self._hand_over(None)
            return
        try:
            stream.write(whole)
            if isinstance(native, BoundQuery) and native.describe:
                last = self._last
                if last is None or not last.told or not whole.startswith(last.told, _DESCRIBED):
                    self._tell(whole[_DESCRIBED:])
            self._query = None
            ended = query.finish()
            assert ended
            if stream.congested or self._leaving or not stream.expect(self._arrived):
                self._hand_over(None)
        except Exception as error:
            self._fail(error)

    def _tell(self, frame: bytes) -> None:
        """The client goes by the RowDescription that an answer begins with, from now on."""
        if self._last is not None:
            self._client.prepared.tell(self._last, first_description(frame))

    def _fail(self, error: Exception) -> None:
        if not self._turn.done():
            self._turn.set_exception(error)

    async def go_on(self) -> None:
        """Bring a query that was handed over to its end, and wait for a client that takes its answers
        slowly."""
        self._leaving = False
        query, self._query = self._query, None
        if query is not None:
            try:
                answer: Answer | Exception = await query.start()
            except FAULTS as error:
                answer = error
            await self._answer(query, self._native, answer)
        if self._stream.congested:
            await self._client.outbox.drain()

    def _open(self) -> bool:
        """Nothing is under way, nothing has to be told besides, and no limit of ours is set."""
        client = self._client
        settings = client.settings
        return (
            client.state is _READY
            and not settings.changed
            and not settings.in_transaction
            and not settings.statement_timeout
            and client.conversation.transaction is _IDLE
        )

    def _plain(self, data: bytes) -> tuple[Statement, SimpleQuery] | None:
        """The statement of a Query message."""
        text = query_alone(data)
        if text is None or text[:6].lower() not in PLAIN_WORDS or UNLOCK_ALL in text or says_number(text):
            return None
        end = text.find(";")
        if end >= 0:
            if end != len(text) - 1:
                return None
            text = text[:end]
        native = SimpleQuery(text, None, data)
        return Statement(text, DIALECT, (), native), native

    def _prepared(self, data: bytes) -> tuple[Statement, BoundQuery] | None:
        """The statement that Bind names."""
        found = execution_alone(data)
        if found is None:
            return None
        name, rest_at, bound, describe = found
        prepared = self._known.get(name)
        if prepared is None or prepared.classification is not None:
            return None
        sql = prepared.sql
        told = b"" if describe else prepared.told
        if told and sql[:6].lower() not in QUERIES and not self._client.native():
            return None
        native = BoundQuery(sql, prepared.oids, data[rest_at:], bound, describe, told=told)
        self._last = prepared
        return Statement(sql, DIALECT, (), native), native

    def _with_parameters(self, statement: Statement) -> Statement:
        """For whoever may need them apart from the client's message."""
        native = statement.native
        if not isinstance(native, BoundQuery) or self._last is None:
            return statement
        parameters = UnreadParameters(native.rest[: native.bound], self._last.parameter_oids)
        return Statement(native.sql, DIALECT, cast("tuple[Parameter, ...]", parameters), native)

    async def _answer(
        self, query: Query, native: SimpleQuery | BoundQuery, answer: Answer | Exception
    ) -> None:
        """An answer that is not whole, or an error, as the general way has it."""
        client = self._client
        try:
            if isinstance(native, SimpleQuery):
                await give(client, query, _raised(answer), native.text)
            else:
                client.outbox.add(messages.BIND_COMPLETE)
                tell = self._tell if native.describe else None
                await give(client, query, _raised(answer), native.sql, bound=native, tell=tell)
        except FAULTS as error:
            await query.close()
            client.report(error)
        except BaseException:
            await query.close()
            raise
        client.ready()
        client.outbox.flush()


def _raised(answer: Answer | Exception) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer
