"""Describe, and what has been told by it."""

from collections.abc import Sequence
from typing import cast

from queryflux.frontends.postgres.answers import columns_of
from queryflux.frontends.postgres.client import DIALECT, Client
from queryflux.frontends.postgres.commands import (
    CONTROL,
    NumberCommand,
    ShowCommand,
    TypesCommand,
    foreign,
    text_columns,
)
from queryflux.frontends.postgres.introspection import COLUMNS, PARAMETERS
from queryflux.frontends.postgres.portals import Portals
from queryflux.frontends.postgres.prepared import Described, Portal, Prepared, split_description
from queryflux.model.errors import NotSupported
from queryflux.model.statement import Parameter, Statement
from queryflux.pipeline.face import StatementKind
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.errors import CHANGED_RESULT, PostgresError
from queryflux.wire.postgres.native import QUERIES, DescribeStatement
from queryflux.wire.postgres.relayed import same_columns, with_formats
from queryflux.wire.postgres.types import name_of, oid_of


class Describer:
    """Tells one client of its statements. Methods raise QueryFluxError."""

    def __init__(self, client: Client, portals: Portals) -> None:
        self._client = client
        self._portals = portals
        self._cursors = 0

    async def statement(self, statement: Prepared) -> None:
        """Describe of a statement."""
        described = await self._shape(statement)
        outbox = self._client.outbox
        outbox.add(messages.parameter_description(statement.parameter_oids()))
        if described.native is not None:
            outbox.add(described.native)
        elif described.columns is None:
            outbox.add(messages.NO_DATA)
        else:
            outbox.add(messages.row_description(described.columns, (0,) * len(described.columns)))

    async def portal(self, portal: Portal) -> None:
        """Describe of a portal."""
        described = await self._shape(portal.statement)
        self.tell(described, portal.bound.result_formats)

    async def cursor(self, name: str) -> None:
        """A cursor made by DECLARE is a portal of the server's own. FETCH from it has the same columns; each
        question is a text of its own, since a cursor of that name may be another one next time."""
        self._cursors += 1
        quoted = name.replace('"', '""')
        text = f'FETCH 0 FROM "{quoted}" /* {self._cursors} */'
        described = await self._look(Prepared(text, (), None))
        self.tell(described, ())

    def tell(self, described: Described, formats: Sequence[int]) -> None:
        """RowDescription or NoData; ``formats`` as in Bind."""
        outbox = self._client.outbox
        if described.native is not None:
            plain = not formats or described.native[:1] == messages.NO_DATA[:1]
            outbox.add(described.native if plain else with_formats(described.native, formats))
        elif described.columns is None:
            outbox.add(messages.NO_DATA)
        else:
            codes = messages.expand(formats, len(described.columns))
            outbox.add(messages.row_description(described.columns, codes))

    async def _shape(self, statement: Prepared) -> Described:
        described = statement.described
        if described is None:
            described = await self._look(statement)
            self._client.prepared.describe(statement, described)
        return described

    async def _look(self, statement: Prepared) -> Described:
        client = self._client
        kind = statement.classification.kind if statement.classification is not None else None
        if statement.empty or kind in CONTROL:
            return Described(())
        command = statement.command
        if command is not None and not client.native():
            if isinstance(command, TypesCommand):
                return Described(PARAMETERS, COLUMNS)
            if isinstance(command, NumberCommand):
                return Described((), command.columns)
            if not isinstance(command, ShowCommand):
                return Described(())
            shown = client.settings.shown(command.name)
            names = (shown,) if command.name else ("name", "setting", "description")
            return Described((), text_columns(*names))
        if command is None and not client.native():
            refuse_foreign(statement)
        await self._portals.make_way(None)
        native = DescribeStatement(statement.sql, statement.oids)
        named = tuple(Parameter(None, name_of(oid)) for oid in statement.oids)
        shape = await client.conversation.describe(Statement(statement.sql, DIALECT, named, native))
        if shape.native is not None:
            oids, row_description = split_description(cast(bytes, shape.native))
            return Described(oids, native=row_description)
        oids = tuple(oid_of(name) for name in shape.parameter_types)
        return Described(oids, None if shape.schema is None else await columns_of(shape.schema))

    async def check(self, statement: Prepared) -> None:
        """What may change something must not run when its rows would not be those that the client was told
        of; an engine that speaks PostgreSQL looks itself. Raises PostgresError 0A000."""
        classification = statement.classification
        writes = classification.writes if classification else statement.sql[:6].lower() not in QUERIES
        if not writes or self._client.native():
            return
        described = await self._look(statement)
        if not same_columns(described.told, statement.told):
            raise PostgresError(CHANGED_RESULT, "0A000")


def refuse_foreign(statement: Prepared) -> None:
    """Raises NotSupported for what only an engine that speaks PostgreSQL can do."""
    if statement.classification is None:
        return
    refusal = foreign(statement.sql, statement.classification)
    if refusal is not None and statement.classification.kind is StatementKind.COPY:
        raise NotSupported("COPY is supported here in a simple query only", hint="do not prepare it")
    if refusal is not None:
        raise refusal
