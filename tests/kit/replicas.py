"""Several processes on one database, and a balancer of our own: each request goes to the next of them."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kit.databases import Database
from tests.kit.doors import HOST
from tests.kit.places import free_port
from tests.kit.process import Process, process

YAML = """
queryflux:
  instanceId: {name}
  frontends: {{trinoHttp: {{host: 127.0.0.1, port: {port}}}}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  advertiseAddress: {address}
  persistence: {{type: postgres, url: '{url}'}}
  coordination:
    {{leaseRenewSecs: 1, leaseExpirySecs: 30, sweepIntervalSecs: 2,
     claimRefreshSecs: {refresh}, claimStaleSecs: {stale}}}
  shutdownDrainTimeoutSecs: {drain}
clusters: {clusters}
clusterGroups: {{main: {{members: [{member}], maxRunningQueries: {limit}}}}}
routingFallback: main
"""
DUCK = "{duck: {engine: duckDb, threads: 1}}"


@dataclass(frozen=True)
class Answered:
    """One response."""

    status: int
    document: dict[str, Any]
    message: str


@dataclass
class Replica:
    """One process."""

    name: str
    port: int
    process: Process

    def ask(
        self, method: str, path: str, body: str | None = None, user: str = "ann", **headers: str
    ) -> Answered:
        """One request, on a connection of its own as a balancer may make it."""
        sent = {"X-Trino-User": user, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request(method, path, body.encode() if body is not None else None, sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        document = json.loads(content) if content else {}
        if not isinstance(document, dict):
            document = {"is": document}
        message = document.get("error", {}).get("message", "")
        return Answered(response.status, document, message)


class Balancer:
    """Sends each request to the next process, past those that are not there."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = list(replicas)
        self._turn = 0

    def ask(self, method: str, path: str, body: str | None = None, user: str = "ann") -> Answered:
        """One request, wherever it goes."""
        for _ in self.replicas:
            replica = self.replicas[self._turn % len(self.replicas)]
            self._turn += 1
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                return replica.ask(method, path, body, user)
        raise AssertionError("no process is there")

    def follow(self, page: dict[str, Any]) -> dict[str, Any]:
        """The page after this one."""
        deadline = time.monotonic() + 60
        while True:
            answered = self.ask("GET", path_of(page))
            if answered.status != 503:
                assert answered.status == 200, answered
                return answered.document
            assert time.monotonic() < deadline, answered

    def finish(self, page: dict[str, Any]) -> list[list[Any]]:
        """All rows from a page on."""
        rows: list[list[Any]] = page.get("data", [])
        while "nextUri" in page:
            page = self.follow(page)
            rows += page.get("data", [])
        assert "error" not in page, page["error"]
        return rows

    def until(self, page: dict[str, Any], what: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first page of which ``what`` is true."""
        while not what(page):
            assert "nextUri" in page, page
            page = self.follow(page)
        return page


def path_of(page: dict[str, Any]) -> str:
    """Of the next page."""
    path: str = urlsplit(page["nextUri"]).path
    return path


@contextlib.contextmanager
def replicas(
    folder: Path,
    database: Database,
    *names: str,
    clusters: str = DUCK,
    reachable: bool = True,
    limit: int | None = 4,
    stale: int = 3,
    refresh: int = 1,
    drain: int = 20,
) -> Iterator[list[Replica]]:
    """Processes of these names; their groups have one cluster."""
    with contextlib.ExitStack() as stack:
        made = []
        for name in names:
            place = folder / name
            place.mkdir()
            port = free_port()
            text = YAML.format(
                name=name,
                port=port,
                address=f"127.0.0.1:{port}" if reachable else "~",
                url=database.dsn,
                stale=stale,
                clusters=clusters,
                member=clusters.partition(":")[0].strip("{ "),
                limit="~" if limit is None else limit,
                refresh=refresh,
                drain=drain,
            )
            made.append(Replica(name, port, stack.enter_context(process(place, text))))
        yield made


def endings(database: Database) -> list[tuple[str, str, str]]:
    """Of each record: status, reason, and whose it is."""
    return database.rows("SELECT status, reason, instance_id FROM query_records ORDER BY id")


def rows_left(database: Database) -> int:
    """Rows of queries under way."""
    sql = "SELECT (SELECT count(*) FROM queued_queries) + (SELECT count(*) FROM executing_queries)"
    count: int = database.rows(sql)[0][0]
    return count
