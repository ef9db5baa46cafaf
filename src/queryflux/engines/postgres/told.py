"""Whether a statement still gives the columns that its client was told.

PostgreSQL refuses to run a prepared statement whose result has changed since (0A000), and drivers prepare it
anew. A statement of ours may be prepared on many connections, later than its client heard of its columns:
so each connection keeps what its statements give, and compares.
"""

from queryflux.engines.postgres.describe import describe_on
from queryflux.engines.postgres.link import ServerLink, StatementKey
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.wire.postgres.errors import CHANGED_RESULT
from queryflux.wire.postgres.native import Native, SimpleQuery
from queryflux.wire.postgres.relayed import first_description, same_columns


def agrees(link: ServerLink, native: Native) -> bool:
    """Whether the connection has the statement, and is known to give what the client was told."""
    assert not isinstance(native, SimpleQuery)
    name = link.statements.get((native.sql, native.parameter_oids), b"")
    shape = link.shapes.get(name)
    if shape == native.told:
        return True
    if shape is None or not same_columns(shape, native.told):
        return False
    link.shapes[name] = native.told  # it is the same to everybody, and compared faster the next time
    return True


async def check(link: ServerLink, native: Native) -> None:
    """Ask the server. Raises EngineError 0A000 when the columns are others, and as ``describe_on``."""
    assert not isinstance(native, SimpleQuery)
    found = await describe_on(link, native.sql, native.parameter_oids)
    if not same_columns(found.result, native.told):
        raise EngineError(CHANGED_RESULT, kind=EngineErrorKind.NOT_SUPPORTED, sqlstate="0A000")


def learn(link: ServerLink, key: StatementKey, frame: bytes | None) -> None:
    """Keep what a statement gives that was prepared a moment ago: ``frame`` is where the answer to it, with
    its columns, begins."""
    name = link.statements.get(key)
    shape = first_description(frame) if name and frame else b""
    if name and shape:
        link.shapes[name] = shape
