"""Session statements, prepared statements and transactions on engines that know nothing of Trino."""

from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.port import Capability, EngineRequest, TransactionStatus
from queryflux.model.errors import EngineError
from queryflux.wire.http1 import Response
from tests.kit.scripted import ScriptedConnection, ScriptedEngine, Step
from tests.rooms.frontends_trino.served import Client, RelayEngine, coordinator_page, document, served


def echo() -> ScriptedEngine:
    """Answers with the SQL it was asked."""
    return ScriptedEngine("duck", lambda request: Step(pa.table({"sql": [request.sql]})), dialect="trino")


async def post(client: Client, sql: str, **headers: str) -> tuple[Response, dict[str, Any]]:
    response = await client.ask("POST", "/v1/statement", sql.encode(), **headers)
    return response, document(response)


def failure(page: dict[str, Any]) -> str:
    return str(page["error"]["errorName"])


@pytest.mark.parametrize(
    ("sql", "kind", "headers"),
    [
        ("SET SESSION a = 'x y'", "SET SESSION", {"x-trino-set-session": "a=x+y"}),
        ("SET SESSION c.a = 5", "SET SESSION", {"x-trino-set-session": "c.a=5"}),
        ("SET TIME ZONE 'UTC'", "SET TIME ZONE", {"x-trino-set-session": "time_zone_id=UTC"}),
        ("SET SESSION query_tags = 'team:x'", "SET SESSION", {"x-trino-set-session": "query_tags=team%3Ax"}),
        ("RESET SESSION a", "RESET SESSION", {"x-trino-clear-session": "a"}),
        ("USE s", "USE", {"x-trino-set-schema": "s"}),
        ("USE c.s", "USE", {"x-trino-set-catalog": "c", "x-trino-set-schema": "s"}),
        ("PREPARE p FROM SELECT ?", "PREPARE", {"x-trino-added-prepare": "p=SELECT+%3F"}),
    ],
)
async def test_what_changes_the_clients_session(sql: str, kind: str, headers: dict[str, str]) -> None:
    duck = echo()
    async with served(duck) as run:
        response, page = await post(await run.client(), sql)
        assert (page["updateType"], page["columns"]) == (kind, [])
        assert page["stats"]["state"] == "FINISHED"
        changed = {name: value for name, value in response.headers.items() if name.startswith("x-trino-")}
        assert changed == headers
        assert duck.statements == []


async def test_the_session_reaches_the_engine() -> None:
    duck = echo()
    async with served(duck) as run:
        client = await run.client()
        await client.post("SELECT 1", X_TRINO_CATALOG="c", x_trino_schema="s", X_Trino_Client_Tags="a")
        (request,) = duck.requests
        assert (request.session.catalog, request.session.database) == ("c", "s")
        assert request.tags == {"a": None}


@pytest.mark.parametrize(
    ("sql", "name", "column"),
    [
        ("USE a.b.c", "SYNTAX_ERROR", 8),
        ("SET SESSION a 5", "SYNTAX_ERROR", 15),
        ('USE "a\nb"', "SYNTAX_ERROR", 5),
        ('USE "a\r\nb"', "SYNTAX_ERROR", 5),
        ('USE c."a\rb"', "SYNTAX_ERROR", 7),
        ('RESET SESSION "a\r\nb"', "SYNTAX_ERROR", 15),
        ("EXECUTE p", "NOT_FOUND", None),
        ("DEALLOCATE PREPARE p", "NOT_FOUND", None),
        ("DESCRIBE INPUT p", "NOT_FOUND", None),
        ("EXECUTE IMMEDIATE 'SELECT ?'", "INVALID_PARAMETER_USAGE", None),
        ("COMMIT", "NOT_IN_TRANSACTION", None),
        ("ROLLBACK", "NOT_IN_TRANSACTION", None),
    ],
)
async def test_what_is_wrong_with_a_session_statement(sql: str, name: str, column: int | None) -> None:
    async with served(echo()) as run:
        _, page = await post(await run.client(), sql)
        assert failure(page) == name
        location = page["error"].get("errorLocation", {})
        assert location.get("columnNumber") == column


async def test_prepared_statements() -> None:
    duck = echo()
    async with served(duck) as run:
        client = await run.client()
        response, _ = await post(client, "PREPARE p FROM SELECT ?, '?', ?")
        prepared = response.headers["x-trino-added-prepare"]
        rows = await client.rows("EXECUTE p USING 1, 'it''s'", X_Trino_Prepared_Statement=f"x=y,{prepared}")
        assert rows == [["SELECT 1, '?', 'it''s'"]]
        assert await client.rows("EXECUTE IMMEDIATE 'SELECT ?' USING -1") == [["SELECT (-1)"]]
        assert [record.sql_text for record in run.bench.records] == ["SELECT 1, '?', 'it''s'", "SELECT (-1)"]
        response, page = await post(client, "DEALLOCATE PREPARE p", X_Trino_Prepared_Statement=prepared)
        assert response.headers["x-trino-deallocated-prepare"] == "p"
        assert page["updateType"] == "DEALLOCATE"


async def test_describe_output_and_input() -> None:
    async with served(echo()) as run:
        client = await run.client()
        header = {"X_Trino_Prepared_Statement": "p=SELECT+%3F"}
        _, page = await post(client, "DESCRIBE OUTPUT p", **header)
        assert [column["name"] for column in page["columns"]][:1] == ["Column Name"]
        assert page["data"] == [["sql", "", "", "", "varchar", 0, False]]
        _, page = await post(client, "DESCRIBE INPUT p", **header)
        assert page["data"] == [[0, "unknown"]]


async def test_describe_goes_on_with_nulls_where_the_engine_cannot_take_placeholders() -> None:
    def script(request: EngineRequest) -> Step:
        if "?" in request.sql:
            raise EngineError("no placeholders here")
        return Step(pa.table({"sql": [request.sql]}))

    async with served(ScriptedEngine("duck", script, dialect="trino")) as run:
        client = await run.client()
        header = {"X_Trino_Prepared_Statement": "p=SELECT+%3F"}
        _, page = await post(client, "DESCRIBE OUTPUT p", **header)
        assert page["data"][0][0] == "sql"
        _, page = await post(client, "DESCRIBE INPUT p", **header)
        assert page["data"] == [[0, "unknown"]]


# Transactions.


async def begin(client: Client) -> str:
    response, page = await post(client, "START TRANSACTION", X_Trino_Transaction_Id="NONE")
    assert page["updateType"] == "START TRANSACTION"
    return response.headers["x-trino-started-transaction-id"]


async def test_a_transaction() -> None:
    duck = echo()
    async with served(duck) as run:
        client = await run.client()
        transaction = await begin(client)
        await client.rows("SELECT 1", X_Trino_Transaction_Id=transaction)
        other = await run.client()
        await other.rows("SELECT 2", X_Trino_Transaction_Id=transaction)
        response, page = await post(client, "COMMIT", X_Trino_Transaction_Id=transaction)
        assert page["updateType"] == "COMMIT"
        assert response.headers["x-trino-clear-transaction-id"] == "true"
        assert duck.statements == ["BEGIN", "SELECT 1", "SELECT 2", "COMMIT"]
        assert len([c for c in duck.connections if isinstance(c, ScriptedConnection)]) == 1
        _, page = await post(client, "SELECT 3", X_Trino_Transaction_Id=transaction)
        assert failure(page) == "UNKNOWN_TRANSACTION"


async def test_a_transaction_belongs_to_its_owner_and_does_not_nest() -> None:
    async with served(echo()) as run:
        client, stranger = await run.client(), await run.client("bob")
        transaction = await begin(client)
        response = await stranger.ask(
            "POST", "/v1/statement", b"SELECT 1", X_Trino_Transaction_Id=transaction
        )
        assert response.status == 403
        _, page = await post(client, "START TRANSACTION", X_Trino_Transaction_Id=transaction)
        assert failure(page) == "NOT_SUPPORTED"


async def test_a_failed_transaction_can_only_be_rolled_back() -> None:
    def script(request: EngineRequest) -> Step:
        return Step(error=EngineError("no") if "bad" in request.sql else None)

    async with served(ScriptedEngine("duck", script, dialect="trino")) as run:
        client = await run.client()
        for ending, name in (("COMMIT", "TRANSACTION_ALREADY_ABORTED"), ("ROLLBACK", None)):
            transaction = await begin(client)
            await post(client, "SELECT bad", X_Trino_Transaction_Id=transaction)
            _, page = await post(client, "SELECT 1", X_Trino_Transaction_Id=transaction)
            assert "error" in page
            response, page = await post(client, ending, X_Trino_Transaction_Id=transaction)
            assert (failure(page) if "error" in page else None) == name
            assert response.headers["x-trino-clear-transaction-id"] == "true"


async def test_a_transaction_that_nobody_comes_back_to_ends() -> None:
    duck = echo()
    async with served(duck, idle_in_transaction_secs=60.0) as run:
        client = await run.client()
        transaction = await begin(client)
        await client.rows("SELECT 1", X_Trino_Transaction_Id=transaction)
        await run.advance(61)
        run.bench.assert_idle()
        _, page = await post(client, "SELECT 2", X_Trino_Transaction_Id=transaction)
        assert failure(page) == "TRANSACTION_ALREADY_ABORTED"
        await run.advance(302)
        _, page = await post(client, "ROLLBACK", X_Trino_Transaction_Id=transaction)
        assert failure(page) == "UNKNOWN_TRANSACTION"
        assert all(c.transaction is TransactionStatus.IDLE for c in duck.connections)


async def test_one_statement_at_a_time_in_a_transaction() -> None:
    big = pa.table({"t": ["some text"] * 300_000})
    async with served(ScriptedEngine("duck", lambda r: Step(big, rows_per_batch=100_000))) as run:
        client = await run.client()
        transaction = await begin(client)
        page = await client.post("SELECT 1", X_Trino_Transaction_Id=transaction)
        _, other = await post(client, "SELECT 2", X_Trino_Transaction_Id=transaction)
        assert failure(other) == "TRANSACTION_CONFLICT"
        await client.ask("DELETE", page["nextUri"])
        _, page = await post(client, "ROLLBACK", X_Trino_Transaction_Id=transaction)
        assert "error" not in page


# A Trino engine checks the session itself.


async def test_a_trino_engine_is_asked_about_sessions_but_not_about_ours() -> None:
    trino = RelayEngine([coordinator_page(0, last=True)])
    async with served(trino) as run:
        client = await run.client()
        for sql in ("SET SESSION a = 1", "USE c.s", "RESET SESSION a"):
            await client.post(sql)
        assert trino.statements == ["SET SESSION a = 1", "USE c.s", "RESET SESSION a"]
        trino.requests.clear()
        await client.post("SET SESSION query_tags = 'a'")
        await client.post("PREPARE p FROM SELECT ?")
        assert trino.statements == []
        header = {"X_Trino_Prepared_Statement": "p=SELECT+%3F,q=x"}
        await client.post("EXECUTE p USING 5", **header)
        await client.post("DESCRIBE OUTPUT p", **header)
        assert trino.statements == ["SELECT 5", "DESCRIBE OUTPUT p"]
        sent = [dict(getattr(request.native, "headers", ())) for request in trino.requests]
        assert "x-trino-prepared-statement" not in sent[0]
        assert sent[1]["x-trino-prepared-statement"] == "p=SELECT+%3F"


async def test_capabilities_are_not_needed_for_a_session() -> None:
    plain = ScriptedEngine("plain", capabilities=frozenset({Capability.CANCEL}))
    async with served(plain) as run:
        _, page = await post(await run.client(), "SET SESSION a = 1")
        assert page["updateType"] == "SET SESSION"
