"""The operator port: alive, ready or why not, metrics; and faults of its own configuration."""

import json
import ssl
import urllib.error
import urllib.request
from asyncio import to_thread
from pathlib import Path

import pytest

from queryflux.app.ops import OpsListener, ops_app
from queryflux.config.listeners import Address, ListenerTls
from queryflux.model.errors import ConfigError, ShuttingDown
from tests.kit.pki import Authority


def get(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10, context=context) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Readiness:
    """Ready until told otherwise."""

    draining = False

    def check(self) -> None:
        if self.draining:
            raise ShuttingDown("this server is shutting down")


def listener(readiness: Readiness, tls: ListenerTls | None = None, port: int = 0) -> OpsListener:
    app = ops_app(readiness.check, lambda: (b"queryflux_up 1\n", "text/plain"))
    return OpsListener(Address(host="127.0.0.1", port=port, tls=tls), app)


async def test_health_readiness_and_metrics() -> None:
    readiness = Readiness()
    ops = listener(readiness)
    await ops.start()
    base = f"http://127.0.0.1:{ops.port}"
    assert await to_thread(get, f"{base}/health") == (200, "ok")
    assert await to_thread(get, f"{base}/readyz") == (200, '{"ready":true}')
    assert await to_thread(get, f"{base}/metrics") == (200, "queryflux_up 1\n")
    readiness.draining = True
    status, body = await to_thread(get, f"{base}/readyz")
    assert status == 503
    assert json.loads(body) == {
        "ready": False,
        "code": "SHUTTING_DOWN",
        "reason": "this server is shutting down",
    }
    assert (await to_thread(get, f"{base}/health"))[0] == 200
    assert (await to_thread(get, f"{base}/admin/clusters"))[0] == 404
    await ops.close()


async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.server()
    ops = listener(Readiness(), ListenerTls(cert_file=str(made.cert_file), key_file=str(made.key_file)))
    await ops.start()
    url = f"https://localhost:{ops.port}/health"
    assert await to_thread(get, url, authority.client_context()) == (200, "ok")
    await ops.close()


async def test_a_taken_port_and_a_bad_certificate_are_configuration_errors(tmp_path: Path) -> None:
    first = listener(Readiness())
    await first.start()
    with pytest.raises(ConfigError, match="cannot bind"):
        await listener(Readiness(), port=first.port).start()
    await first.close()
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    with pytest.raises(ConfigError, match="nonsense"):
        await listener(Readiness(), ListenerTls(cert_file=str(nonsense), key_file=str(nonsense))).start()
