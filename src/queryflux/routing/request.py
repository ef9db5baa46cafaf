"""What a rule looks at, and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session

WITH_HEADERS = frozenset(
    {
        ClientProtocol.TRINO_HTTP,
        ClientProtocol.CLICKHOUSE_HTTP,
        ClientProtocol.SNOWFLAKE_HTTP,
        ClientProtocol.SNOWFLAKE_SQL_API,
        ClientProtocol.FLIGHT_SQL,
        ClientProtocol.MCP,
    }
)
"""Protocols whose ``session.extra`` are headers. Elsewhere it holds start-up parameters and the like, which
a rule about headers does not read."""


class RouteRequest:
    """One statement to be routed, as its client wrote it."""

    __slots__ = ("_utf8", "answers", "guessing", "identity", "protocol", "query_id", "session", "text")

    def __init__(
        self,
        protocol: ClientProtocol,
        identity: VerifiedIdentity,
        session: Session,
        text: str,
        query_id: str = "",
    ) -> None:
        """``query_id`` is for the log: what is routed before there is a query has none."""
        self.query_id = query_id
        self.protocol = protocol
        self.identity = identity
        self.session = session
        self.text = text
        self._utf8: bytes | None = None
        self.answers: Mapping[AskingRule, Hit | None] = _NO_ANSWERS
        """What rules that have to be asked have said of it."""
        self.guessing = False
        """A rule that was not asked counts as one that does not match."""

    def guess(self, answers: "Mapping[AskingRule, Hit | None]") -> None:
        """Be content with what rules said of another statement."""
        self.answers = answers
        self.guessing = True

    @property
    def utf8(self) -> bytes:
        """The text as regular expressions read it; encoded once."""
        if self._utf8 is None:
            self._utf8 = self.text.encode(errors="surrogatepass")
        return self._utf8

    def header(self, name: str) -> str | None:
        """The value of a header, by its lower-case name."""
        return self.session.extra.get(name) if self.protocol in WITH_HEADERS else None


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that matched: the ``group`` it names or, with ``denied``, the message for the client.

    ``detail`` says which part of the rule it was. Made when the chain is compiled, so that a match costs
    nothing.
    """

    group: str | None
    detail: str
    denied: str | None = None
    failed: str | None = None
    """The rule could not decide: why, in words for a client."""


class Rule(Protocol):
    """One compiled entry of ``routers``: a function of the request and of nothing else."""

    def match(self, request: RouteRequest) -> Hit | None:
        """What it says of a request; None: nothing."""


class AskingRule(Rule, Protocol):
    """A rule whose answer has to be waited for, and then stands in ``request.answers``."""

    async def ask(self, request: RouteRequest) -> Hit | None:
        """Its answer. Raises nothing."""


class Unanswered(Exception):
    """A rule has to be asked before the chain can be walked further."""

    def __init__(self, rule: AskingRule) -> None:
        super().__init__()
        self.rule = rule


_NO_ANSWERS: Mapping[AskingRule, Hit | None] = MappingProxyType({})
