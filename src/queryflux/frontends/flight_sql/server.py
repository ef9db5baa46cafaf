"""pyarrow's Flight server: each method runs in a gRPC thread, and only carries requests to the loop and
answers back."""

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from queryflux.frontends.flight_sql.bridge import Bridge
from queryflux.frontends.flight_sql.caller import MIDDLEWARE, Client, Doorkeeper, Handshake
from queryflux.frontends.flight_sql.errors import to_status
from queryflux.frontends.flight_sql.parameters import rows_of
from queryflux.frontends.flight_sql.service import FlightSqlService
from queryflux.frontends.flight_sql.stream import Opened, Pull
from queryflux.frontends.flight_sql.updates import Row, Update
from queryflux.model.errors import InvalidRequest, NotSupported, ProtocolViolation, QueryFluxError
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message, decode, encode

log = logging.getLogger(__name__)

T = TypeVar("T")

ACTIONS = (
    ("CreatePreparedStatement", "Prepare a statement."),
    ("ClosePreparedStatement", "Forget a prepared statement."),
    ("BeginTransaction", "Begin a transaction."),
    ("EndTransaction", "Commit a transaction or roll it back."),
    ("CancelFlightInfo", "Cancel a query."),
    ("CancelQuery", "Cancel a query (older spelling)."),
    ("CloseSession", "Roll back what the client leaves open."),
)


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serving begins when it is made."""

    def __init__(
        self,
        location: str,
        certificates: list[tuple[bytes, bytes]],
        service: FlightSqlService,
        bridge: Bridge,
        doorkeeper: Doorkeeper,
        announced: str | None = None,
    ) -> None:
        """``announced`` is the URI, up to the port, where clients are to fetch results; None: where they
        asked for them."""
        self._service = service
        self._bridge = bridge
        super().__init__(
            location,
            auth_handler=Handshake(),
            tls_certificates=certificates or None,
            middleware={MIDDLEWARE: doorkeeper},
        )
        self._locations = [f"{announced}:{self.port}"] if announced is not None else []

    # Results.

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """A ticket for what the descriptor asks."""
        return answering(lambda: self._flight_info(context, descriptor))

    def _flight_info(self, context: Any, descriptor: Any) -> Any:
        client = client_of(context)
        command = command_of(descriptor)
        ticket, schema = self._call(context, self._service.ticket(client, command))
        endpoint = flight.FlightEndpoint(ticket, self._locations)
        return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def list_flights(self, context: Any, criteria: bytes) -> Any:
        """There are none to list: a flight is made by a command."""
        return answering(lambda: _unsupported("ListFlights"))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Nothing in Flight SQL uses it."""
        answering(lambda: _unsupported("DoExchange"))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """The schema of what the descriptor asks."""
        return answering(
            lambda: flight.SchemaResult(
                self._call(context, self._service.schema(client_of(context), command_of(descriptor)))
            )
        )

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The rows of a ticket."""
        return answering(lambda: self._rows(context, ticket.ticket))

    def _rows(self, context: Any, ticket: bytes) -> Any:
        opened = Opened()
        try:
            self._call(context, self._service.open(client_of(context), ticket, opened))
        except BaseException:
            # The client may have gone just as the result was opened: nobody would ever close it.
            self._bridge.post(opened.close())
            raise
        return flight.GeneratorStream(opened.schema, Pull(opened, self._bridge, context.is_cancelled))

    # Updates and parameters.

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Run an update, or bind parameters."""
        answer = answering(lambda: self._put(context, command_of(descriptor), reader))
        writer.write(pa.py_buffer(encode(answer)))

    def _put(self, context: Any, command: Message, reader: Any) -> Message:
        client = client_of(context)
        if isinstance(command, m.CommandPreparedStatementQuery):
            row, size = bound_row(reader)
            self._call(context, self._service.bind(client, command.handle, row, size))
            return m.DoPutPreparedStatementResult(command.handle)
        update = Update()
        try:
            bound = self._call(context, self._service.update(client, command, update))
            self._run_update(context, command, reader, update, bound)
        except BaseException:
            self._bridge.post(update.end(failed=True))
            raise
        return m.DoPutUpdateResult(self._call(context, update.end(failed=False)))

    def _run_update(self, context: Any, command: Message, reader: Any, update: Update, bound: Row) -> None:
        # A plain update sends no Arrow data at all, and must not be waited for.
        batches = batches_of(reader) if isinstance(command, m.CommandPreparedStatementUpdate) else iter(())
        rows = next(batches, None)
        if rows is None:
            self._call(context, update.run([bound], more=False))
        while rows is not None:
            following = next(batches, None)
            self._call(context, update.run(rows, more=following is not None))
            rows = following

    # Actions.

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """The actions there are."""
        return list(ACTIONS)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Run an action; each answers at most one message."""
        answer = answering(lambda: self._act(context, action.type, action.body.to_pybytes()))
        return iter([] if answer is None else [flight.Result(pa.py_buffer(answer))])

    def _act(self, context: Any, name: str, body: bytes) -> bytes | None:
        client, service = client_of(context), self._service
        if name == "CancelFlightInfo":
            info = decode(m.CancelFlightInfoRequest, body).info
            return encode(m.CancelFlightInfoResult(self._call(context, service.cancel(client, info))))
        if name == "CloseSession":
            return encode(m.CloseSessionResult(self._call(context, service.close_session(client))))
        if name not in dict(ACTIONS):
            raise NotSupported(f"Flight SQL: the action {name[:64]!r} is not supported")
        match m.unpack(body):
            case m.ActionCreatePreparedStatementRequest() as request:
                return m.pack(self._call(context, service.prepare(client, request)))
            case m.ActionClosePreparedStatementRequest(handle):
                self._call(context, service.close_prepared(client, handle))
                return None
            case m.ActionBeginTransactionRequest():
                return m.pack(m.ActionBeginTransactionResult(self._call(context, service.begin(client))))
            case m.ActionEndTransactionRequest(transaction_id, how):
                self._call(context, service.end(client, transaction_id, how))
                return None
            case m.ActionCancelQueryRequest(info):
                return m.pack(m.ActionCancelQueryResult(self._call(context, service.cancel(client, info))))
            case request:
                raise ProtocolViolation(f"{type(request).__name__} is no request of an action")

    def _call(self, context: Any, work: Any) -> Any:
        return self._bridge.call(work, context.is_cancelled)


def answering(work: Callable[[], T]) -> T:
    """Run a handler's work; whatever it raises becomes a status that shows a client what it may see."""
    try:
        return work()
    except QueryFluxError as error:
        raise to_status(error) from None
    except flight.FlightError:
        raise
    except Exception:
        log.exception("Flight SQL: a call failed inside QueryFlux")
        raise flight.FlightInternalError("internal error; the operator finds the cause in the log") from None


def _unsupported(call: str) -> None:
    raise NotSupported(f"Flight SQL: {call} is not supported", hint="ask by GetFlightInfo with a command")


def client_of(context: Any) -> Client:
    """Who the middleware let in."""
    caller = context.get_middleware(MIDDLEWARE)
    return Client(caller.identity, caller.headers, peer_of(context.peer()))


def peer_of(address: str) -> str:
    """``host:port`` of gRPC's ``ipv4:host:port``."""
    return address.partition(":")[2] if address.startswith(("ipv4:", "ipv6:")) else address


def command_of(descriptor: Any) -> Message:
    """The Flight SQL command of a descriptor. Raises InvalidRequest and its kin."""
    if descriptor.descriptor_type != flight.DescriptorType.CMD:
        raise InvalidRequest("Flight SQL takes commands, not paths")
    return m.unpack(descriptor.command)


def bound_row(reader: Any) -> tuple[Row, int]:
    """The one row of parameters that a client binds to a query, and its size in bytes; an empty one for
    none. Raises InvalidRequest and its kin."""
    row: Row = ()
    size = count = 0
    for chunk in reader:
        count += chunk.data.num_rows if chunk.data is not None else 0
        if count > 1:
            raise InvalidRequest(
                "a query takes one row of parameters, and several were sent", hint="run it once for each row"
            )
        if chunk.data is not None and chunk.data.num_rows:
            row, size = rows_of(chunk.data)[0], chunk.data.nbytes
    return row, size


def batches_of(reader: Any) -> Iterator[list[Row]]:
    """The rows of parameters that the client sends, batch by batch; batches without rows are left out."""
    for chunk in reader:
        if chunk.data is not None and chunk.data.num_rows:
            yield rows_of(chunk.data)
