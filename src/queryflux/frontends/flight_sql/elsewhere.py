"""Tickets that reach a process of this host, and that another one behind the same address made.

Its rows come from there in pieces, none of which is sent before the one before it was taken. Whoever is asked
has checked the client, and says who it is; the other process looks at the ticket as if it had come to it.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from queryflux.auth.known import described, sibling_user
from queryflux.frontends.flight_sql.caller import Client
from queryflux.frontends.flight_sql.errors import STATUSES, ToldElsewhere, text_of, to_status
from queryflux.frontends.flight_sql.stream import Opened, pieces
from queryflux.model.errors import QueryFluxError, QueryNotFound, Unavailable
from queryflux.model.ids import process_tag_of
from queryflux.runtime.siblings import About, Question, SiblingFailed, SiblingGone, Siblings, Told
from queryflux.wire.flight import messages as m

if TYPE_CHECKING:
    from queryflux.frontends.flight_sql.service import FlightSqlService

_GET, _CANCEL = "flight get", "flight cancel"
PIECE_BYTES = 1024 * 1024
CANCEL_SECONDS = 30.0


class Elsewhere:
    """Both ends of it, for one door."""

    def __init__(self, siblings: Siblings, service: "FlightSqlService") -> None:
        self._siblings = siblings
        self._service = service
        siblings.answers(_GET, self._answer_get)
        siblings.answers(_CANCEL, self._answer_cancel)

    def owner(self, handle: bytes) -> str:
        """The tag of the sibling that made a handle; empty: this process looks at it."""
        tag = process_tag_of(handle.decode(errors="replace"))
        return tag if tag != self._siblings.tag and tag.isalnum() else ""

    async def open(self, tag: str, client: Client, ticket: bytes) -> "Fetched":
        """The rows of a ticket of the sibling ``tag``. Raises QueryFluxError."""
        try:
            told = await self._siblings.open(tag, _GET, _about(client), ticket)
        except SiblingGone:
            raise _gone("ticket") from None
        except SiblingFailed as error:
            raise _silent(tag, error) from None
        if "status" in told.about:
            told.close()
            raise _told(told.about)
        return Fetched(tag, told)

    async def cancel(self, tag: str, client: Client, info: bytes) -> m.CancelStatus:
        """Cancel what a FlightInfo of the sibling ``tag`` stands for. Raises QueryFluxError."""
        try:
            about, _ = await self._siblings.ask(tag, _CANCEL, _about(client), info, seconds=CANCEL_SECONDS)
        except SiblingGone:
            raise _gone("query") from None
        except SiblingFailed as error:
            raise _silent(tag, error) from None
        if "status" in about:
            raise _told(about)
        return m.CancelStatus(about["cancelled"])

    # Answering.

    async def _answer_get(self, question: Question) -> None:
        opened = Opened()
        begun = False
        try:
            await self._service.open(_client(question.about), question.body, opened)
            begun = True
            await question.head({"schema": opened.schema.serialize().to_pybytes()})
            while (batch := await opened.next()) is not None:
                for piece in pieces(batch, PIECE_BYTES):
                    await question.part(memoryview(_packed(piece)))
        except QueryFluxError as error:
            if begun:
                await question.end(_failure(error))
            else:
                await question.head(_failure(error))
        finally:
            await opened.close()

    async def _answer_cancel(self, question: Question) -> None:
        try:
            status = await self._service.cancel(_client(question.about), question.body)
        except QueryFluxError as error:
            await question.head(_failure(error))
        else:
            await question.head({"cancelled": int(status)})


class Fetched:
    """A result on its way from a sibling."""

    def __init__(self, tag: str, told: Told) -> None:
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(told.about["schema"]))
        self._tag = tag
        self._told = told

    async def next(self) -> pa.RecordBatch | None:
        """The next batch, None at the end. Raises QueryFluxError."""
        try:
            part = await self._told.part()
        except SiblingGone:
            raise _gone("result") from None
        except SiblingFailed as error:
            raise _silent(self._tag, error) from None
        if part is not None:
            return pa.ipc.open_stream(part).read_next_batch()
        if "status" in self._told.ending:
            raise _told(self._told.ending)
        return None

    async def close(self) -> None:
        """End it there too."""
        self._told.close()


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch with all that belongs to it, dictionaries too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _about(client: Client) -> About:
    return {
        "identity": described(client.identity),
        "headers": dict(client.headers),
        "peer": client.peer,
    }


def _client(about: About) -> Client:
    return Client(sibling_user(about["identity"]), about["headers"], about["peer"])


def _failure(error: QueryFluxError) -> About:
    return {"status": type(to_status(error)).__name__, "message": error.message, "text": text_of(error)}


def _told(about: About) -> ToldElsewhere:
    return ToldElsewhere(about["message"], STATUSES[about["status"]](about["text"]))


def _gone(what: str) -> QueryNotFound:
    return QueryNotFound(f"the process of this {what} has gone", hint="begin again")


def _silent(tag: str, error: SiblingFailed) -> Unavailable:
    return Unavailable(f"process {tag}, which answers for this, does not answer: {error}")
