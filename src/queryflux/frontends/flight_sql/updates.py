"""One DoPut that changes rows: a statement run once for each row of parameters, a batch of them at a time."""

from collections.abc import Awaitable, Callable

from queryflux.frontends.flight_sql.statements import DIALECT
from queryflux.frontends.flight_sql.transactions import run
from queryflux.model.statement import Parameter, Statement
from queryflux.pipeline.face import Conversation
from queryflux.results.answer import Done

Row = tuple[Parameter, ...]


class Update:
    """Outside a transaction, several rows are changed all or none, on an engine with transactions."""

    def __init__(self) -> None:
        """Made in its thread; ``begin`` fills it on the loop, so that ``end`` finds what was begun even when
        the client goes at that moment."""
        self._talk: Conversation | None = None
        self._leave: Callable[[], Awaitable[None]] | None = None
        self._text = ""
        self._alone = False
        self._implicit = False
        self._count: int | None = 0

    def begin(
        self, talk: Conversation, leave: Callable[[], Awaitable[None]], text: str, *, in_transaction: bool
    ) -> None:
        """``leave`` is awaited once, at the end."""
        self._talk, self._leave = talk, leave
        self._text = text
        self._alone = not in_transaction

    async def run(self, rows: list[Row], *, more: bool) -> None:
        """Run it for some rows; ``more``: there are or were others. Raises QueryFluxError; the update has
        then failed and is over."""
        assert self._talk is not None
        try:
            if self._alone and not self._implicit and (more or len(rows) > 1):
                self._implicit = True
                await self._talk.begin_implicit()
            for row in rows:
                answer = await run(self._talk, Statement(self._text, DIALECT, row))
                count = answer.rows if isinstance(answer, Done) else None
                self._count = None if count is None or self._count is None else self._count + count
        except BaseException:
            await self.end(failed=True)
            raise

    async def end(self, *, failed: bool) -> int:
        """Commit, or roll back when ``failed``. The number of changed rows; -1 when the engine does not say.
        May be called again after a failure, and before ``begin``."""
        leave, self._leave = self._leave, None
        if leave is not None:
            assert self._talk is not None
            try:
                if self._implicit:
                    await self._talk.sync(failed=failed)
            finally:
                await leave()
        return -1 if self._count is None else self._count
