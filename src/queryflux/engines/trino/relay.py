"""Pages as the coordinator wrote them, for the Trino door: nothing is decoded but the last."""

import logging

import msgspec

from queryflux.engines.trino.errors import translate
from queryflux.engines.trino.pages import decode_page, next_uri_of
from queryflux.engines.trino.statement import Ended, TrinoStatement
from queryflux.model.errors import EngineConnectionLost, QueryCancelled, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import EngineStats
from queryflux.wire.http1 import Response
from queryflux.wire.trino.native import TrinoFrames, TrinoPage

log = logging.getLogger(__name__)

NOT_FOR_CLIENTS = {"x-trino-started-transaction-id", "x-trino-clear-transaction-id"}
"""A transaction at the coordinator is the engine connection's business."""


class TrinoRelay(TrinoFrames):
    """One page for each pull; the first came with the POST."""

    protocol = ClientProtocol.TRINO_HTTP

    def __init__(self, statement: TrinoStatement, first: Response, sql: str, ended: Ended) -> None:
        """Raises EngineConnectionLost when ``first`` is no page."""
        self.stats = EngineStats()
        self.rows = None
        self.failure = None
        self._statement = statement
        self._sql = sql
        self._ended = ended
        self._first: TrinoPage | None = self._page(first)

    async def next(self) -> TrinoPage | None:
        page = self._first
        if page is not None:
            self._first = None
            return page
        statement = self._statement
        if statement.cancelled:
            raise QueryCancelled("the query was cancelled")
        if statement.ended:
            return None
        try:
            page = self._page(await statement.get())
        except QueryFluxError as error:
            await self._fail(error)
            raise
        return page

    async def _fail(self, error: QueryFluxError) -> None:
        """The answer is over for us; the coordinator is told, in case it is not for it."""
        await self._statement.stop()
        self.failure = error
        self._over()

    def _page(self, response: Response) -> TrinoPage:
        body = response.body
        headers = _for_the_client(response.pairs)
        uri = next_uri_of(body)
        if uri is None:
            uri = self._decoded(body)
        self._statement.next_uri = uri
        if uri is None:
            self._statement.ended = True
            self._over()
        return TrinoPage(body, headers, uri)

    def _decoded(self, body: bytes) -> str | None:
        try:
            page = decode_page(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineConnectionLost(f"Trino answered with what is no page: {error}") from error
        page.fill(self.stats)
        if page.error is not None:
            self.failure = translate(page.error, self._sql)
        return page.next_uri

    def _over(self) -> None:
        ended, self._ended = self._ended, _nothing
        ended(self.failure or self._statement.why_ended())

    async def close(self) -> None:
        self._first = None
        await self._statement.stop()
        self._over()

    async def partial_cancel(self, uri: str) -> None:
        await self._statement.delete(uri)

    async def heartbeat(self) -> None:
        uri = self._statement.next_uri
        if uri is None or self._statement.ended:
            return
        try:
            await self._statement.head(uri)
        except EngineConnectionLost as error:
            log.warning("a heartbeat did not reach Trino: %s", error.message)


def _for_the_client(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found: tuple[tuple[str, str], ...] = ()
    for pair in pairs:
        name = pair[0]
        if name.startswith("x-trino-") and name not in NOT_FOR_CLIENTS:
            found = (*found, pair)
    return found


def _nothing(failure: Exception | None) -> None:
    """Told already."""
