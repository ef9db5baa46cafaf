"""A client of a DuckDB engine with the words these tests want to say."""

from pathlib import Path
from typing import Any

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.duckdb import build
from queryflux.engines.duckdb.engine import DuckDbEngine
from queryflux.engines.port import ConnectionSpec, EngineRequest
from queryflux.model.errors import EngineError
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Parameter, Session
from queryflux.results.answer import Answer, Batches, Done
from queryflux.runtime.clock import Clock, SystemClock

SESSION = Session(ClientProtocol.POSTGRES_WIRE)
WHO = VerifiedIdentity("tester")


def engine_on_folder(folder: Path, clock: Clock | None = None, **more: Any) -> DuckDbEngine:
    config = ClusterConfig(engine="duckDb", data_path=str(folder), **more)
    return build("lake", config, clock or SystemClock())


class Asking:
    """One connection."""

    def __init__(self, engine: DuckDbEngine, session: Session = SESSION) -> None:
        self.session = session
        self.connection = engine.connect(ConnectionSpec(WHO, session))

    def request(self, sql: str, *values: Any) -> EngineRequest:
        return EngineRequest("q", sql, self.session, WHO, tuple(Parameter(value) for value in values))

    async def answer(self, sql: str, *values: Any) -> Answer:
        return await self.connection.execute(self.request(sql, *values))

    async def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        answer = await self.answer(sql, *values)
        assert isinstance(answer, Batches), answer
        found: list[tuple[Any, ...]] = []
        while (batch := await answer.next()) is not None:
            columns = [column.to_pylist() for column in batch.columns]
            found.extend(zip(*columns, strict=True))
        await answer.close()
        return found

    async def done(self, sql: str) -> Done:
        answer = await self.answer(sql)
        assert isinstance(answer, Done), answer
        return answer

    async def error(self, sql: str, *values: Any) -> EngineError:
        try:
            await self.rows(sql, *values)
        except EngineError as error:
            return error
        raise AssertionError(f"no error from {sql}")
