"""A query as every process knows it that shares a database: what one needs to answer its client in the place
of another."""

from collections.abc import Mapping

from msgspec import Struct


class SharedQuery(Struct, frozen=True, kw_only=True):
    """What does not change while it runs. Never credentials: what was sent of them is left out, and ``whole``
    is False then."""

    id: str
    user: str
    slug: str
    """Hash of the unguessable part of its URIs; empty where there is none."""
    text: str
    """The statement: all of it while it waits, its beginning once it runs."""
    dialect: str
    created_at: float
    """Seconds since the epoch."""
    protocol: str
    group: str
    catalog: str | None = None
    database: str | None = None
    tags: Mapping[str, str | None] = {}
    extra: Mapping[str, str] = {}
    """The session's own string pairs."""
    peer: str = ""
    native: tuple[tuple[str, str], ...] = ()
    """The headers that a coordinator of the client's protocol gets."""
    whole: bool = True
    """Another process could begin with it."""
    waited_secs: float | None = None
    """How long it waited for room; None: it did not."""


class Kept(Struct, frozen=True):
    """Where the engine keeps what its client has not had. ``token`` numbers the page of ours that is next,
    ``uri`` is the engine's own address of it, ``before`` that of the page before, empty if there is none."""

    token: int
    uri: str
    before: str = ""


class SharedRow(Struct, frozen=True, kw_only=True):
    """A query as the database has it. ``owner`` is the instance that answers for it; None: nobody."""

    query: SharedQuery
    executing: bool
    owner: str | None
    address: str | None = None
    """How the owner is reached."""
    stale: bool = False
    """The owner has not said for too long that it is alive, by the database's clock."""
    cluster: str = ""
    kept: Kept | None = None
    """None: what was produced is the owner's alone."""
