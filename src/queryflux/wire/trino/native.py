"""How the Trino door hands a statement to a Trino engine, and what comes back: pages as Trino wrote them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrinoStatement:
    """The client's own X-Trino-* headers, to be forwarded: session, prepared statements, transaction, time
    zone. Never Authorization or X-Trino-User, which are the cluster's business."""

    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TrinoPage:
    """One response of the coordinator. ``headers`` are those of the response that a client must see
    (X-Trino-Set-Session and its kin); ``next_uri`` is the coordinator's own, None on the last page.
    ``body`` is the document as it came, uncompressed."""

    body: bytes
    headers: tuple[tuple[str, str], ...]
    next_uri: str | None
