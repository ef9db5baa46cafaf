"""Statements whose clients were told of the columns before."""

from dataclasses import replace

import pytest

from queryflux.engines.postgres import told
from queryflux.engines.postgres.describe import describe_on
from queryflux.engines.postgres.engine import PostgresEngine
from queryflux.engines.postgres.link import ServerLink
from queryflux.model.errors import EngineError
from queryflux.wire.postgres.relayed import first_description
from tests.contract.test_postgres_relay import Client, client, engine, extended, make, postgres_server

__all__ = ["client", "engine", "make", "postgres_server"]


@pytest.mark.parametrize("rows", [1, 20_000])
async def test_a_connection_that_gave_the_columns_is_not_asked_for_them(
    engine: PostgresEngine, client: Client, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Whoever had the statement prepared there, and in whatever format it wanted them."""
    asked = []

    async def counted(link: ServerLink, sql: str, oids: tuple[int, ...]) -> object:
        asked.append(sql)
        return await describe_on(link, sql, oids)

    monkeypatch.setattr(told, "describe_on", counted)
    sql = f"SELECT n FROM generate_series(1, {rows}) n"
    for _ in range(3):
        description = first_description(b"".join((await client.ask(extended(sql, describe=True))).frames))
    other = Client(engine)
    asks = replace(extended(sql, results=(1,)), told=description)
    for _ in range(2):
        assert len((await other.ask(asks)).rows) == rows
    assert asked == []
    await other.close()


async def test_what_it_gave_before_a_change_is_not_taken_for_what_it_gives(client: Client) -> None:
    await client.simple("DROP TABLE IF EXISTS told_changes; CREATE TABLE told_changes (a int)")
    for _ in range(3):
        result = await client.ask(extended("SELECT * FROM told_changes", describe=True))
    asks = replace(extended("SELECT * FROM told_changes"), told=first_description(b"".join(result.frames)))
    assert (await client.ask(asks)).error is None
    await client.simple("ALTER TABLE told_changes ADD b text")
    for _ in range(2):
        with pytest.raises(EngineError) as raised:
            await client.ask(asks)
        assert raised.value.sqlstate == "0A000"
    await client.simple("DROP TABLE told_changes")
