"""P3: a million rows of eight columns from DuckDB to a PostgreSQL client that drains, beside PostgreSQL."""

import socket
import statistics
import struct
import tempfile
import time
from pathlib import Path

import duckdb

from bench.processes import postgres, queryflux
from bench.result import Result
from tests.kit.places import free_port

ID = "P3"
TITLE = "1M rows x 8 columns to a PostgreSQL client, beside PostgreSQL serving the same table"
ROWS = 1_000_000
RUNS = 5
QUERY = "SELECT id, small, big, price, ratio, day, at, name FROM wide"

CONFIG = """
queryflux:
  frontends:
    trinoHttp: {{enabled: false, port: 0}}
    postgresWire: {{host: 127.0.0.1, port: {door}}}
  adminApi: {{host: 127.0.0.1, port: {admin}}}
  logging: {{level: info, format: json}}
clusters:
  duck: {{engine: duckDb, databasePath: "{path}", readOnly: true}}
clusterGroups:
  main: {{members: [duck]}}
routingFallback: main
"""

POSTGRES_TABLE = f"""
CREATE TABLE wide AS
SELECT i::int AS id, (i % 1000)::smallint AS small, i::bigint * 1000003 AS big,
       (i / 100.0)::numeric(12, 2) AS price, i / 7.0::float8 AS ratio,
       DATE '1992-01-01' + (i % 2500)::int AS day,
       TIMESTAMP '2020-01-01' + i * INTERVAL '1 second' AS at, 'name of row ' || i AS name
FROM generate_series(1, {ROWS}) AS series(i)
"""
DUCKDB_TABLE = f"""
CREATE TABLE wide AS
SELECT i::INT AS id, (i % 1000)::SMALLINT AS small, i::BIGINT * 1000003 AS big,
       (i / 100.0)::DECIMAL(12, 2) AS price, i / 7.0::DOUBLE AS ratio,
       DATE '1992-01-01' + (i % 2500)::INT AS day,
       TIMESTAMP '2020-01-01' + to_seconds(i) AS at, 'name of row ' || i AS name
FROM range(1, {ROWS + 1}) AS series(i)
"""


class Drain:
    """A PostgreSQL client that asks and throws away, as fast as bytes come."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        body = b"\x00\x03\x00\x00user\x00trusted\x00database\x00qf\x00\x00"
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready()

    def _until_ready(self) -> int:
        """Bytes up to and with ReadyForQuery, which nothing follows."""
        total = 0
        tail = b""
        buffer = bytearray(1 << 20)
        while True:
            count = self._socket.recv_into(buffer)
            assert count, "the server closed the connection"
            total += count
            tail = (tail + bytes(buffer[max(0, count - 6) : count]))[-6:]
            if tail[:5] == b"Z\x00\x00\x00\x05":
                return total

    def simple(self, sql: str) -> tuple[float, int]:
        """Seconds and bytes of a query in text format."""
        body = sql.encode() + b"\x00"
        return self._timed(b"Q" + struct.pack("!i", len(body) + 4) + body)

    def binary(self, sql: str) -> tuple[float, int]:
        """Seconds and bytes of a query in binary format."""
        parts = [
            (b"P", b"\x00" + sql.encode() + b"\x00\x00\x00"),
            (b"B", b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01"),
            (b"E", b"\x00\x00\x00\x00\x00"),
            (b"S", b""),
        ]
        return self._timed(b"".join(tag + struct.pack("!i", len(body) + 4) + body for tag, body in parts))

    def _timed(self, message: bytes) -> tuple[float, int]:
        started = time.perf_counter()
        self._socket.sendall(message)
        size = self._until_ready()
        return time.perf_counter() - started, size


def run() -> Result:
    """Medians of several runs, text and binary, both servers in turn."""
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        path = Path(folder, "wide.duckdb")
        with duckdb.connect(str(path)) as connection:
            connection.execute(DUCKDB_TABLE)
        with server.admin() as admin:
            admin.execute(POSTGRES_TABLE.encode())
            admin.execute(b"VACUUM (ANALYZE) wide")
        door, port = free_port(), free_port()
        with queryflux(CONFIG.replace("{path}", str(path)), door=door, admin=port):
            return measure(Drain(door), Drain(server.port))


def measure(ours: Drain, theirs: Drain) -> Result:
    """Both, in both formats."""
    result = Result(
        peer="PostgreSQL serving the same table to the same client", notes=f"{ROWS} rows, median of {RUNS}"
    )
    for name in ("simple", "binary"):
        label = "text" if name == "simple" else name
        seconds: dict[str, list[float]] = {"queryflux": [], "postgresql": []}
        sizes: dict[str, int] = {}
        for _ in range(RUNS):
            for who, client in (("queryflux", ours), ("postgresql", theirs)):
                took, size = getattr(client, name)(QUERY)
                seconds[who].append(took)
                sizes[who] = size
        medians = {who: statistics.median(times) for who, times in seconds.items()}
        for who, took in medians.items():
            result.figures[f"{label}_{who}_rows_per_s"] = ROWS / took
            result.figures[f"{label}_{who}_bytes"] = sizes[who]
        result.ratio[label] = medians["postgresql"] / medians["queryflux"]
    return result
