"""Pages as the coordinator wrote them, for the Trino door: nothing is decoded but the last."""

import logging

import msgspec

from queryflux.engines.trino.errors import translate
from queryflux.engines.trino.pages import decode_page, next_uri_of
from queryflux.engines.trino.statement import Ended, TrinoStatement
from queryflux.model.errors import EngineConnectionLost, QueryCancelled, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import EngineStats
from queryflux.wire.trino.native import TrinoFrames, TrinoPage

log = logging.getLogger(__name__)

NOT_FOR_CLIENTS = {"x-trino-started-transaction-id", "x-trino-clear-transaction-id"}
"""A transaction at the coordinator is the engine connection's business."""


class TrinoRelay(TrinoFrames):
    """One page for each pull; the first came with the POST."""

    protocol = ClientProtocol.TRINO_HTTP
    stats = EngineStats()  # replaced, and not filled, by the last page

    def __init__(
        self,
        statement: TrinoStatement,
        body: bytes | None,
        sql: str,
        ended: Ended,
        headers: tuple[tuple[str, str], ...] = (),
        had: int = 0,
    ) -> None:
        """``body`` and ``headers`` are those of the first page; None: the statement knows where the next one
        is, and the client has had the first ``had`` of those that follow. Raises EngineConnectionLost when
        the first page is none."""
        self._statement = statement
        self._sql = sql
        self._ended = ended
        self._had = had
        self._first: TrinoPage | None = self._page(body, headers) if body is not None else None

    def take(self) -> TrinoPage | None:
        page, self._first = self._first, None
        if page is not None and page.next_uri is None and not self._statement.cancelled:
            self.complete = True
        return page

    async def next(self) -> TrinoPage | None:
        page = self.take()
        if page is not None:
            return page
        statement = self._statement
        if statement.cancelled:
            raise QueryCancelled("the query was cancelled")
        if statement.ended:
            return None
        try:
            page = await self._get()
            while self._had and page.next_uri is not None:
                self._had -= 1
                page = await self._get()
        except QueryFluxError as error:
            await self._fail(error)
            raise
        self.complete = page.next_uri is None and not statement.cancelled
        return page

    async def _get(self) -> TrinoPage:
        response = await self._statement.get()
        return self._page(response.body, for_the_client(response.pairs))

    async def _fail(self, error: QueryFluxError) -> None:
        """The answer is over for us; the coordinator is told, in case it is not for it."""
        await self._statement.stop()
        self.failure = error
        self._over()

    def _page(self, body: bytes, headers: tuple[tuple[str, str], ...]) -> TrinoPage:
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
        self.stats = page.figures()
        if page.error is not None:
            self.failure = translate(page.error, self._sql)
        return page.next_uri

    def _over(self) -> None:
        ended, self._ended = self._ended, _nothing
        ended(self.failure or self._statement.why_ended())

    def detach(self) -> bool:
        self._statement.ended = True
        self._over()
        return True

    async def close(self) -> None:
        self._first = None
        if not self._statement.ended:
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


def for_the_client(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers of a response that its client must see."""
    found: tuple[tuple[str, str], ...] = ()
    for pair in pairs:
        name = pair[0]
        if name.startswith("x-trino-") and name not in NOT_FOR_CLIENTS:
            found = (*found, pair)
    return found


def _nothing(failure: Exception | None) -> None:
    """Told already."""
