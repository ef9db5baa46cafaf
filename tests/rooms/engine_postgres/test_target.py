"""Reading a cluster's configuration, and what it becomes for libpq."""

import pytest

from queryflux.config.clusters import ClusterConfig, EngineAuth, EngineTls
from queryflux.engines.postgres.libpq import uri_of
from queryflux.engines.postgres.target import Target, target_of
from queryflux.model.errors import ConfigError
from queryflux.model.secret import Secret


def target(endpoint: str | None, **more: object) -> Target:
    auth = EngineAuth(type="basic", username="me", password=Secret("p@ss/word"))
    config = {"engine": "postgres", "endpoint": endpoint, "auth": auth} | more
    return target_of("pg", ClusterConfig(**config))  # type: ignore[arg-type]


def test_endpoints() -> None:
    found = target("db.example:6000", database="sales", pool_size=3)
    assert (found.host, found.port, found.database, found.user) == ("db.example", 6000, "sales", "me")
    assert (found.pool_size, found.where, found.tls) == (3, "db.example:6000", None)
    assert target("db.example").port == 5432
    assert target("db.example").database == "me"
    assert target("postgresql://[::1]:7000/a%20b").database == "a b"
    assert target("postgresql://[::1]:7000/x").host == "::1"
    assert target("db.example", auth=None).user == "postgres"


def test_tls() -> None:
    assert target("postgres://h/x?sslmode=require").tls == EngineTls(insecure_skip_verify=True)
    assert target("postgres://h/x?sslmode=verify-full").tls == EngineTls()
    assert target("postgres://h/x?sslmode=disable", tls=EngineTls()).tls is None
    assert target("h", tls=EngineTls(server_name="n")).server_name == "n"
    context = target("h", tls=EngineTls(insecure_skip_verify=True)).context()
    assert context is not None
    assert not context.check_hostname
    assert target("h").context() is None


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        "",
        "mysql://h",
        "postgres://me:secret@h/x",
        "postgres://h:99999/x",
        "h:port",
        "postgres://h/x?sslmode=prefer",
        "postgres://h/x?sslcert=a",
    ],
)
def test_what_is_refused(endpoint: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        target(endpoint)
    assert "secret" not in str(caught.value)


def test_the_password_does_not_show() -> None:
    assert "p@ss" not in repr(target("h"))


def test_the_uri_for_libpq() -> None:
    plain = uri_of(target("h"))
    assert plain.startswith("postgresql://me:p%40ss%2Fword@h:5432/me?")
    assert "sslmode=disable" in plain
    assert "require_auth=scram-sha-256%2Cmd5%2Cnone" in plain
    assert "@[::1]:7000/" in uri_of(target("postgres://[::1]:7000/x"))
    verified = uri_of(target("h", tls=EngineTls(ca_file="/a b.pem")))
    assert "sslmode=verify-full" in verified
    assert "sslrootcert=%2Fa%20b.pem" in verified
    assert "require_auth" not in verified
    assert "sslrootcert=system" in uri_of(target("h", tls=EngineTls()))
    assert "sslmode=require" in uri_of(target("h", tls=EngineTls(insecure_skip_verify=True)))
    named = uri_of(target("127.0.0.1", tls=EngineTls(server_name="db.example")))
    assert "@db.example:5432/" in named
    assert "hostaddr=127.0.0.1" in named
