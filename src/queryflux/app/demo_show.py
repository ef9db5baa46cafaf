"""What the demo does with a fleet that is up: shows it, asks it, and reads history back.

The expected answers come from DuckDB asked directly, without QueryFlux in between; which worker took a query
comes from the control plane's history.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from queryflux.app.demo_clients import CLIENTS, Client, Rows
from queryflux.app.demo_data import QUESTIONS, ask_duckdb, same
from queryflux.app.demo_fleet import WORKERS, Watcher
from queryflux.app.folder import how_to_connect
from queryflux.app.parent import Parent, names_of
from queryflux.app.remote import RemoteError

LEGEND = """\
Each question goes through each door twice, over two connections that are open together: the workers share
them. Each answer is compared with DuckDB's own. Behind it stands where the control plane's history says that
it went: the worker, the cluster group that the question was routed to, the cluster of the group that answered
(there is one of each: the folder), and how long that took."""
MORE_ROUNDS = 20
"""How often a question is asked again through a door where one worker has taken none."""


class Show:
    """One run of it."""

    def __init__(self, parent: Parent, host: str, data: Path) -> None:
        self._ports = parent.ports()
        self._workers = names_of(parent.config.queryflux, WORKERS)
        self._host = host
        self._data = data
        self._watcher = Watcher(host, self._ports["adminApi"], self._workers)
        self._seen: dict[str, set[str]] = {client.door: set() for client in CLIENTS}
        """By door, the workers that took a query there."""
        self._asked = 0
        self._wrong = 0

    async def run(self) -> list[str]:
        """Gives what was not as it should be."""
        try:
            print(self._how_to_connect())
            print(f"The fleet: {_command()} status --url {self._watcher.url}")
            print(_indented(await self._watcher.status()), end="\n\n")
            print(LEGEND, flush=True)
            expected = await asyncio.to_thread(ask_duckdb, self._data)
            for (question, sql), right in zip(QUESTIONS, expected, strict=True):
                print(f"\n{question}\n  {sql}")
                await self._ask(CLIENTS, sql, right)
                for row in right:
                    print("    " + " | ".join(str(value) for value in row))
            await self._ask_the_others(QUESTIONS[0][1], expected[0])
            faults = await self._read_history()
        except RemoteError as error:
            faults = [error.message]
        print(f"\n{self._asked} answers, {self._wrong} wrong.", flush=True)
        if self._wrong:
            faults.append(f"{self._wrong} answers were wrong")
        return faults + [
            f"not all workers took queries through {client.door}" for client in self._not_all_seen()
        ]

    def _how_to_connect(self) -> str:
        text = how_to_connect(self._host, self._ports)
        port = self._ports["flightSql"]
        return f"{text}gRPC cannot share a port: that of {self._workers[1]} is {port + 1}\n"

    def _ports_of(self, client: Client) -> list[int]:
        port = self._ports[client.door]
        return [port + number if client.door == "flightSql" else port for number in range(WORKERS)]

    async def _ask(self, clients: Sequence[Client], sql: str, right: Rows) -> None:
        """Ask through doors, and show what came. Raises RemoteError when history does not say where from."""
        asked: dict[str, list[bool] | str] = {}
        for client in clients:
            try:
                answers = await asyncio.to_thread(client.ask_each, self._host, self._ports_of(client), sql)
                asked[client.door] = [same(rows, right) for rows in answers]
            except Exception as error:  # the client libraries' own errors have no common root
                asked[client.door] = f"{type(error).__name__}: {error}"
        answered = [client for client in clients if isinstance(asked[client.door], list)]
        records = await self._watcher.new_records(answered, sql, WORKERS)
        for client in clients:
            self._show(client, asked[client.door], records.get(client.door, []))

    def _show(self, client: Client, good: list[bool] | str, records: Sequence[dict[str, Any]]) -> None:
        self._asked += WORKERS
        if isinstance(good, str):
            self._wrong += WORKERS
            print(f"  {client.name:<16} WRONG  {good}", flush=True)
            return
        self._wrong += good.count(False)
        self._seen[client.door] |= {record["worker"] for record in records}
        for number, record in enumerate(records[:WORKERS]):
            name = client.name if not number else ""
            print(f"  {name:<16} {'right' if good[number] else 'WRONG':<6} {_went_to(record)}", flush=True)

    def _not_all_seen(self) -> list[Client]:
        return [client for client in CLIENTS if self._seen[client.door] != set(self._workers)]

    async def _ask_the_others(self, sql: str, right: Rows) -> None:
        """On a busy machine one worker may have taken both connections each time: ask again."""
        for _ in range(MORE_ROUNDS):
            missing = self._not_all_seen()
            if not missing or self._wrong:
                return
            print("\nAgain, where one worker has taken all")
            await self._ask(missing, sql, right)

    async def _read_history(self) -> list[str]:
        """Show how much of it the control plane has; gives what is wrong with it."""
        print(
            f"\nHistory, at the control plane: {_command()} queries --url {self._watcher.url} --worker NAME"
        )
        count, faults = 0, []
        for worker in self._workers:
            rows = await self._watcher.records(worker)
            bad = [row for row in rows if row["status"] != "Success"]
            count += len(rows)
            print(f"  {worker:<16} {len(rows)} queries, {len(bad)} of them failed", flush=True)
            if bad:
                faults.append(f"{worker} has queries that failed: {bad[0]['error_message']}")
        if count < self._asked - self._wrong:
            faults.append(f"history has {count} of {self._asked} queries")
        return faults


def _went_to(record: dict[str, Any]) -> str:
    """Where a query went."""
    return (
        f"{record['worker']}, group {record['cluster_group']}, cluster {record['cluster_name']}, "
        f"{record['execution_duration_ms']:.1f} ms"
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _command() -> str:
    """How this program was called."""
    return sys.argv[0] if Path(sys.argv[0]).name == "queryflux" else "queryflux"
