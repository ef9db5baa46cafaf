"""How the Trino door hands a statement to a Trino engine, and what comes back: pages as Trino wrote them."""

from abc import abstractmethod

from msgspec import Struct

from queryflux.results.answer import Frames


class TrinoStatement(Struct, frozen=True, gc=False):
    """The client's own X-Trino-* headers, names in lower case, to be forwarded: session, prepared statements,
    time zone, capabilities. Never Authorization, X-Trino-User or X-Trino-Transaction-Id: credentials are the
    cluster's business, and a transaction is the engine connection's (its id at the coordinator never reaches
    a client, whose transactions are named by us)."""

    headers: tuple[tuple[str, str], ...]


class TrinoPage(Struct, frozen=True, gc=False):
    """One response of the coordinator. ``headers`` are those of the response that a client must see
    (X-Trino-Set-Session and its kin); ``next_uri`` is the coordinator's own, None on the last page.
    ``body`` is the document as it came, uncompressed."""

    body: bytes
    headers: tuple[tuple[str, str], ...]
    next_uri: str | None


class TrinoFrames(Frames):
    """Frames that are TrinoPages. What a client may ask besides the next page is passed on as well."""

    @abstractmethod
    async def partial_cancel(self, uri: str) -> None:
        """DELETE the ``partialCancelUri`` of a page: the stage it names stops, the query goes on with what it
        has. Raises EngineConnectionLost."""

    @abstractmethod
    async def heartbeat(self) -> None:
        """HEAD the next page's URI: the query is not abandoned although nobody reads on. Never raises."""
