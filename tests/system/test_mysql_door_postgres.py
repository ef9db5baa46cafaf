"""PyMySQL through the MySQL door to PostgreSQL."""

from contextlib import closing
from typing import Any

import pymysql
import pytest

from tests.kit.postgres import DATABASE, PASSWORD, PostgresServer, postgres_server
from tests.kit.serving import Serving, serving

__all__ = ["postgres_server"]


def connect(place: Serving, database: str | None) -> Any:
    """A PyMySQL connection."""
    port = place.port("mysqlWire")
    return pymysql.connect(host="127.0.0.1", port=port, user="ann", database=database, autocommit=True)


def fetch(connection: Any, text: str) -> list[Any]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())


def test_over_postgres_plain_names_mean_the_same_everywhere(postgres_server: PostgresServer) -> None:
    made = "CREATE TABLE shop_orders (id serial PRIMARY KEY, v text)"
    grants = "GRANT ALL ON shop_orders, shop_orders_id_seq TO PUBLIC"
    with postgres_server.admin() as admin:
        admin.execute(made)
        admin.execute(grants)
    yaml = f"""
queryflux:
  frontends:
    trinoHttp: {{enabled: false}}
    mysqlWire: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
  logging: {{level: warning}}
clusters:
  shop:
    engine: postgres
    endpoint: "{postgres_server.host}:{postgres_server.port}"
    database: {DATABASE}
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
clusterGroups:
  main: {{members: [shop]}}
routingFallback: main
"""
    try:
        with serving(yaml) as place:
            for database in (None, DATABASE, "public", "nonsense"):
                with closing(connect(place, database=database)) as connection:
                    assert fetch(connection, "SELECT count(*) FROM shop_orders") == [(0,)]
                    rows = fetch(connection, "DESCRIBE shop_orders")
                    assert [row[:2] for row in rows] == [("id", "int"), ("v", "longtext")]
            with closing(connect(place, database=DATABASE)) as connection:
                assert ("shop_orders",) in fetch(connection, "SHOW TABLES")
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO shop_orders (v) VALUES ('a')")
                    with pytest.raises(pymysql.MySQLError) as caught:
                        cursor.execute("SELECT LAST_INSERT_ID()")
                    assert caught.value.args[0] == 1235
                inserted = fetch(connection, "INSERT INTO shop_orders (v) VALUES ('b') RETURNING id")
                assert inserted == [(2,)]
    finally:
        with postgres_server.admin() as admin:
            admin.execute("DROP TABLE shop_orders")
