"""A whole pipeline over scripted engines, without sockets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from queryflux.admission.slots import Admission, Group, Member
from queryflux.auth.groups import may_use_group
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import TrustAuthenticator
from queryflux.engines.port import Engine
from queryflux.history.memory import MemoryHistory
from queryflux.history.record import QueryRecord
from queryflux.history.redaction import Redaction
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.ids import QueryIds
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session, Statement
from queryflux.pipeline.conversation import Talk
from queryflux.pipeline.ending import Recorder
from queryflux.pipeline.generation import Cluster, Generation, GroupPlan
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.routing.chain import GroupAccess, compile_routing
from queryflux.sql.translate import TranslationMode, Translator
from queryflux.telemetry.logs import QueryLine
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock
from tests.kit.scripted import ScriptedEngine


class OpenHistory(MemoryHistory):
    """Keeps everything that it is told, whatever the configuration says."""

    def keep_to(self, redaction: Redaction) -> None:
        pass

    def told(self, record: QueryRecord) -> str | None:
        return record.error_message


class LineKeeper:
    """Keeps query log lines."""

    enabled = True

    def __init__(self) -> None:
        self._lines: list[QueryLine] = []
        self._catch_up: Callable[[], object] | None = None

    @property
    def lines(self) -> list[QueryLine]:
        """One for each query that has ended."""
        if self._catch_up is not None:
            self._catch_up()
        return self._lines

    def add(self, line: QueryLine) -> None:
        self._lines.append(line)

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        self._catch_up = catch_up


@dataclass
class Bench:
    """A pipeline with what a test looks at around it."""

    pipeline: QueryPipeline
    clock: ManualClock
    history: MemoryHistory
    metrics: PrometheusMetrics
    log: LineKeeper
    groups: Mapping[str, Group]
    members: Mapping[str, Member]
    engines: Mapping[str, Engine] = field(default_factory=dict)

    def talk(
        self,
        user: str = "ann",
        protocol: ClientProtocol = ClientProtocol.POSTGRES_WIRE,
        **session: Any,
    ) -> Talk:
        """A conversation of a client."""
        talk = self.pipeline.converse(identity(user), Session(protocol, **session))
        assert isinstance(talk, Talk)
        return talk

    @property
    def records(self) -> list[QueryRecord]:
        """History, oldest first."""
        return list(self.history.newest())[::-1]

    def metric(self, name: str, **labels: str) -> float:
        """The value of an exported sample; 0 when there is none."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def assert_idle(self) -> None:
        """Nothing runs, waits or is held."""
        assert self.pipeline.running == {}
        assert all(member.running == 0 for member in self.members.values())
        assert all(not group.waiters for group in self.groups.values())
        for engine in self.engines.values():
            if isinstance(engine, ScriptedEngine):
                assert engine.running == 0


def identity(user: str = "ann") -> VerifiedIdentity:
    """A client that said its name."""
    clock = ManualClock()
    return TrustAuthenticator(required=False, allow_plaintext=False, tokens=Tokens(clock)).trust(user)


def statement(text: str = "SELECT 1", dialect: str = "postgres") -> Statement:
    """A statement of a PostgreSQL client."""
    return Statement(text, dialect)


def bench(
    *engines: Engine,
    strict: bool = False,
    member_limit: int | None = None,
    clock: ManualClock | None = None,
    admission: Admission | None = None,
    tag: str = "test2",
    **group: Any,
) -> Bench:
    """One group ``main`` over ``engines``; ``group`` sets fields of GroupPlan and of admission's Group. Ids
    end with ``tag``."""
    clock = clock or ManualClock()
    metrics = PrometheusMetrics()
    history = OpenHistory(1000)
    log = LineKeeper()
    pipeline = QueryPipeline(
        clock=clock,
        metrics=metrics,
        recorder=Recorder(history, log, metrics, clock),
        ids=QueryIds(tag, clock.now),
        max_statement_bytes=group.pop("max_statement_bytes", 1 << 20),
        admission=admission,
    )
    plan_settings = {
        key: group.pop(key)
        for key in ("query_timeout_secs", "idle_in_transaction_secs", "default_tags")
        if key in group
    }
    routers = group.pop("routers", ())
    clusters = {engine.name: Cluster(engine, Member(engine.name, limit=member_limit)) for engine in engines}
    members = [cluster.member for cluster in clusters.values()]
    main = Group("main", members, **group)
    for member in members:
        member.groups.append(main)
    generation = Generation(
        revision="0" * 16,
        chain=compile_routing(routers, "main", {"main": GroupAccess()}, may_use=may_use_group),
        groups={"main": GroupPlan(main, **plan_settings)},
        clusters=clusters,
        translator=Translator(TranslationMode.STRICT if strict else TranslationMode.BEST_EFFORT),
    )
    pipeline.activate(generation)
    return Bench(
        pipeline,
        clock,
        history,
        metrics,
        log,
        {"main": main},
        {member.name: member for member in members},
        {engine.name: engine for engine in engines},
    )
