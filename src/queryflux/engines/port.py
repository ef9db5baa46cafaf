"""What an engine must be able to do. One Engine per runtime cluster; each concrete engine is a folder here.

Life of a query: ``engine.connect(spec)`` (cheap, no I/O) gives the client's EngineConnection;
``connection.execute(request)`` starts one statement and returns its Answer once the engine has accepted it
and the shape of the result is known; the answer is drained or closed; ``connection.close()`` when the client
has gone. One connection runs one statement at a time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType

from msgspec import Struct

from queryflux.model.errors import NotSupported
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Answer, Frames, Shape

NO_TAGS: Mapping[str, str | None] = MappingProxyType({})


class Capability(StrEnum):
    """What doors, the pipeline and tests may ask an engine for; nobody asks for an engine by name."""

    __hash__ = object.__hash__

    TRANSACTIONS = "transactions"
    SAVEPOINTS = "savepoints"
    PARAMETERS = "parameters"
    WRITES = "writes"
    CANCEL = "cancel"
    DESCRIBE = "describe"
    RESUME = "resume"
    """Results are kept at the engine under addresses of its own: another process may go on with one."""
    CATALOGS = "catalogs"
    """Its schemas are those of many catalogs: a client that names none means any of them."""


class TransactionStatus(Enum):
    """The state of an EngineConnection between two statements."""

    IDLE = "idle"
    OPEN = "open"
    FAILED = "failed"


class ConnectionSpec(Struct, frozen=True, gc=False):
    """On whose behalf a connection is made, and its first session."""

    identity: VerifiedIdentity
    session: Session


class EngineRequest(Struct, frozen=True, gc=False):
    """One statement for the engine: ``sql`` is in the engine's dialect, ``parameters`` are for engines with
    Capability.PARAMETERS (others get them written into ``sql``). ``native`` is set only when the client's
    protocol is the engine's ``native_protocol``; the engine then answers with Frames."""

    query_id: str
    sql: str
    session: Session
    identity: VerifiedIdentity
    parameters: tuple[Parameter, ...] = ()
    native: object | None = None
    tags: Mapping[str, str | None] = NO_TAGS


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table or view. ``kind`` is ``table`` or ``view``."""

    catalog: str
    schema: str
    name: str
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column; ``type_name`` in the engine's spelling, ``position`` from 1."""

    table: TableRef
    name: str
    type_name: str
    nullable: bool
    position: int


class AskedFrames(Frames):
    """The answer to what an engine was asked without being waited for (``EngineConnection.ask``)."""

    @abstractmethod
    async def begin(self) -> None:
        """Wait until it has begun, as ``execute`` does. Raises the same."""


class EngineConnection(ABC):
    """One client's way to the engine. Holds a real connection only while a statement, a transaction or
    session state needs one."""

    @property
    @abstractmethod
    def transaction(self) -> TransactionStatus:
        """Where the transaction stands now."""

    @property
    def running_id(self) -> str | None:
        """The engine's own id of the statement that runs now; None while none does, the engine has not said
        it, or has no such ids."""
        return None

    @abstractmethod
    async def execute(self, request: EngineRequest) -> Answer:
        """Start a statement. Raises EngineError, EngineUnavailable (nothing was started),
        EngineConnectionLost, QueryCancelled (``cancel`` came first). Cancelling the awaiting task stops the
        engine's work too."""

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        """Start a statement that its door has handed over in a form of its own, if that can be done at once;
        None: nothing was done, ``execute`` does it. ``answered`` is called later, once, and must not raise:
        when the answer is ``complete``, and ``native`` has it, or as soon as only ``begin`` goes on."""
        return None

    @abstractmethod
    async def describe(self, request: EngineRequest) -> Shape:
        """Parameter types and result columns, without running it. Raises as ``execute``; NotSupported."""

    def resume(self, request: EngineRequest, uri: str, had: int) -> Answer:
        """Go on with a statement that another process has begun (Capability.RESUME): what the engine keeps
        at ``uri``, of which the client has had ``had`` parts already. Nothing is asked of the engine yet.
        Raises NotSupported, EngineUnavailable."""
        raise NotSupported(f"nobody can go on with query {request.query_id} on this engine")

    @abstractmethod
    async def cancel(self) -> None:
        """Stop the statement that runs now and return when the engine has stopped it (or the attempt failed,
        which is logged). Harmless when nothing runs; never hits a later statement. Callable from any task."""

    @abstractmethod
    async def sync(self) -> None:
        """The client's batch of statements ends here (PostgreSQL Sync); nothing to do for most engines."""

    @abstractmethod
    async def close(self) -> None:
        """Cancel what runs, roll back what is open, give the real connection back. May be called twice."""

    def leave(self) -> bool:
        """``close`` for a connection that holds nothing, without waiting: True when it is closed now. False:
        it may hold something, and has to be closed by ``close``."""
        return False


class Engine(ABC):
    """The adapter of one runtime cluster. Building one touches no network."""

    name: str
    """Name of the runtime cluster."""
    engine_key: str
    """``trino``, ``duckDb``, ``postgres``, ... as in ``clusters.<c>.engine``."""
    dialect: str
    """sqlglot name of the dialect it takes."""
    native_protocol: ClientProtocol | None = None
    """The client protocol whose frames it relays, if any."""
    capabilities: frozenset[Capability] = frozenset()

    @abstractmethod
    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        """A logical connection; no I/O happens before its first statement."""

    @abstractmethod
    async def probe(self) -> None:
        """Returns when the engine answers a trivial question; else EngineUnavailable with the reason."""

    @abstractmethod
    async def tables(self) -> list[TableRef]:
        """Every table and view a client could name, as seen by the cluster's own credentials."""

    @abstractmethod
    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        """Columns of every table, or of those that match, ordered by table and position."""

    async def count_running(self, query: str | None = None) -> int | None:
        """How many queries the engine itself says it runs; ``query`` is SQL of the operator's own that counts
        them. None: it cannot tell. Raises EngineUnavailable, EngineError, EngineConnectionLost."""
        return None

    async def schemas(self) -> list[tuple[str, str]] | None:
        """Catalogs and schemas, also those without tables; None when this engine cannot list them."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Cancel everything and free everything. No thread, task or socket is left after it returns."""
