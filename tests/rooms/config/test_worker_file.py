"""A worker's file: what it has to say, what it must not, and the keys of one elsewhere."""

from pathlib import Path

import pytest

from queryflux.config.checks_worker import CENTRAL, ELSEWHERE
from queryflux.config.fleet import peer_address
from tests.kit.pki import Authority
from tests.rooms.config.reading import SOUND, load, only, paths, problems, warnings

SECRET = "0123456789abcdef0123"


def worker(more: str = "", control: str = "", url: str = "https://control:9000") -> str:
    return f"""
queryflux:
  role: worker
  controlPlane: {{ url: "{url}", secret: {SECRET}{control} }}
  opsListener: {{ host: 127.0.0.1 }}
{more}
"""


def test_the_smallest_worker() -> None:
    loaded = load(worker())
    assert loaded.warnings == ()
    assert loaded.config.queryflux.control_plane is not None
    assert loaded.config.queryflux.control_plane.addresses == ("https://control:9000",)


def test_everything_that_is_local() -> None:
    text = worker(
        """
  instanceId: i1
  workerName: w1
  advertiseAddress: 10.0.0.1:8080
  frontends: { trinoHttp: { port: 0 }, postgresWire: { port: 0 } }
  logging: { level: info }
  metrics: { tagsDenyList: [team] }
  coordination: { mode: controlPlane, acquireTimeoutSecs: 5, leaseRenewSecs: 1, leaseExpirySecs: 5 }
  historyUplink: { flushIntervalSecs: 1 }
  shutdownDrainTimeoutSecs: 5
  maxStatementBytes: 1048576
""",
        ", pollTimeoutSecs: 5, heartbeatIntervalSecs: 2, urls: ['https://control:9000', 'https://b:9000']",
    )
    assert warnings(text) == []
    settings = load(text).config.queryflux.control_plane
    assert settings is not None
    assert settings.addresses == ("https://control:9000", "https://b:9000")


def test_a_worker_needs_a_control_plane_and_a_secret() -> None:
    assert only("queryflux: { role: worker }").path == "queryflux.controlPlane"
    found = problems("queryflux: { role: worker, controlPlane: {} }")
    assert [item.path for item in found] == ["queryflux.controlPlane.url", "queryflux.controlPlane.secret"]
    assert "workerApi.secret" in found[1].message
    assert paths("queryflux: { role: worker, controlPlane: { urls: ['https://a'], secret: '' } }") == [
        "queryflux.controlPlane.secret"
    ]


def test_a_secret_that_no_header_carries_is_refused_and_not_shown() -> None:
    problem = only("queryflux: { role: worker, controlPlane: { url: 'https://a', secret: 'pä ss' } }")
    assert problem.path == "queryflux.controlPlane.secret"
    assert "pä" not in problem.message + problem.hint


@pytest.mark.parametrize("key", ["workerName", "instanceId"])
@pytest.mark.parametrize("name", ["zürich", "東京", "a\\tb", "a\\r\\nX: y", " a", "a" * 201])
def test_a_name_that_no_header_carries_is_refused(key: str, name: str) -> None:
    assert only(worker(f'  {key}: "{name}"')).path == f"queryflux.{key}"


@pytest.mark.parametrize("name", ["site 3 / rack 7", "a" * 200, "w_1.example-2"])
def test_names_of_workers(name: str) -> None:
    assert warnings(worker(f'  workerName: "{name}"\n  instanceId: "{name}"')) == []


def test_the_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    loaded = load(f"queryflux: {{ role: worker, controlPlane: {{ url: 'https://a', secretFile: {file} }} }}")
    settings = loaded.config.queryflux.control_plane
    assert settings is not None
    assert settings.secret is not None
    assert settings.secret.reveal() == SECRET


@pytest.mark.parametrize(
    "url",
    ["control:9000", "ftp://control", "https://", "https://x:0", "https://x?y=1", "https://x:99999", ""],
)
def test_an_address_that_is_none(url: str) -> None:
    assert only(worker(url=url)).path == "queryflux.controlPlane.url"


def test_an_address_with_credentials_is_not_shown() -> None:
    problem = only(worker(url="https://me:hunter2@control:9000"))
    assert problem.path == "queryflux.controlPlane.url"
    assert "hunter2" not in problem.message + problem.hint


@pytest.mark.parametrize("url", ["http://control:9000", "http://10.0.0.1", "http://[fd00::1]:9000"])
def test_a_control_plane_over_plain_http_is_warned_about(url: str) -> None:
    assert warnings(worker(url=url)) == ["queryflux.controlPlane.url"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"])
def test_this_machine_may_be_asked_in_clear(url: str) -> None:
    assert warnings(worker(url=url)) == []


def test_tls_towards_the_control_plane(tmp_path: Path) -> None:
    ca = Authority(tmp_path).ca_file
    assert warnings(worker(control=f", tls: {{ caFile: {ca} }}")) == []
    assert only(worker(control=f", tls: {{ caFile: {tmp_path}/none }}")).path == (
        "queryflux.controlPlane.tls.caFile"
    )
    assert warnings(worker(control=", tls: { insecureSkipVerify: true }")) == [
        "queryflux.controlPlane.tls.insecureSkipVerify"
    ]
    assert warnings(worker(url="http://localhost:1", control=f", tls: {{ caFile: {ca} }}")) == [
        "queryflux.controlPlane.tls"
    ]


@pytest.mark.parametrize("section", CENTRAL)
def test_what_the_control_plane_decides_is_refused_with_the_reason(section: str) -> None:
    values = {"routers": "[]", "routingFallback": "pool", "catalogProvider": "{ type: null }"}
    found = problems(worker() + f"{section}: {values.get(section, '{}')}\n")
    assert next(item.message for item in found if item.path == section) == (
        "belongs into the configuration of the control plane: a worker is given it"
    )


def test_a_whole_central_file_is_refused_where_it_stands() -> None:
    assert paths(worker() + SOUND) == ["clusters", "clusterGroups", "routingFallback"]


@pytest.mark.parametrize("key", ELSEWHERE)
def test_keys_of_other_roles_are_refused_with_the_reason(key: str) -> None:
    values = {"queryHistoryRetentionDays": "3", "configReloadIntervalSecs": "3", "distributed": "true"}
    problem = only(worker(f"  {key}: {values.get(key, '{}')}"))
    assert (problem.path, problem.message) == (f"queryflux.{key}", ELSEWHERE[key])


@pytest.mark.parametrize(
    "persistence", ["{ type: postgres, url: 'postgres://u:p@h/d' }", "{ type: sqlite, path: x.db }"]
)
def test_a_worker_has_no_database(persistence: str) -> None:
    problem = only(worker(f"  persistence: {persistence}"))
    assert problem.path == "queryflux.persistence"
    assert "opens no database" in problem.message
    assert warnings(worker("  persistence: { type: inMemory }")) == []


def test_the_ops_listener_is_a_listener() -> None:
    assert only(worker("  frontends: { trinoHttp: { port: 9100 } }")).path == "queryflux.opsListener.port", (
        "9100 is its usual port"
    )
    assert load(worker("  frontends: { trinoHttp: { port: 9000 } }")), "there is no admin API"


def peers(address: str = "127.0.0.1:9100", more: str = "") -> str:
    return worker(control=f", peerBootstrap: {{ address: '{address}'{more} }}")


def test_peers() -> None:
    assert warnings(peers()) == []
    assert warnings(peers("qf-workers:9100")) == ["queryflux.controlPlane.peerBootstrap.address"]
    assert warnings(peers("qf-workers:9100", ", tls: {}")) == []
    for address in ("qf-workers", "qf-workers:", ":9100", "http://x:1", "x:0", "x:99999", "::1:5", "a b:1"):
        assert only(peers(address)).path == "queryflux.controlPlane.peerBootstrap.address", address
    open_to_all = peers().replace("host: 127.0.0.1", "host: 0.0.0.0")
    assert warnings(open_to_all) == ["queryflux.opsListener"]


def test_addresses_of_peers() -> None:
    assert peer_address("qf:9100") == ("qf", 9100)
    assert peer_address("10.0.0.1:1") == ("10.0.0.1", 1)
    assert peer_address("[fd00::1]:9100") == ("fd00::1", 9100)


def test_keys_of_a_worker_in_another_file() -> None:
    problem = only("queryflux: { controlPlane: { url: 'https://a', secret: x } }" + SOUND)
    assert problem.path == "queryflux.controlPlane"
    assert "role: worker" in problem.hint
    text = "queryflux: { workerName: w, opsListener: {}, historyUplink: {} }" + SOUND
    assert warnings(text) == ["queryflux.workerName", "queryflux.opsListener", "queryflux.historyUplink"]


def test_a_lease_is_renewed_in_time() -> None:
    text = worker("  coordination: { leaseRenewSecs: 10, leaseExpirySecs: 29 }")
    assert only(text).path == "queryflux.coordination.leaseRenewSecs"


# History elsewhere.


def uplink(settings: str) -> str:
    return worker(f"  historyUplink: {{ {settings} }}")


def test_an_endpoint_for_history_and_what_it_gets() -> None:
    assert warnings(uplink("endpoint: 'https://history/qf', secret: of-its-own")) == []
    assert warnings(uplink("endpoint: 'http://history/qf'")) == ["queryflux.historyUplink.endpoint"]
    assert warnings(uplink("maxBufferedRecords: 0")) == ["queryflux.historyUplink.maxBufferedRecords"]
    assert warnings(uplink("enabled: false, maxBufferedRecords: 0")) == []
    assert only(uplink("endpoint: history")).path == "queryflux.historyUplink.endpoint"
    assert only(uplink("endpoint: 'https://history', tls: { caFile: /none }")).path == (
        "queryflux.historyUplink.tls.caFile"
    )


def test_the_shared_secret_is_for_the_control_plane_alone() -> None:
    problem = only(uplink(f"endpoint: 'https://history', secret: {SECRET}"))
    assert problem.path == "queryflux.historyUplink.secret"
    assert SECRET not in problem.message + problem.hint
    assert only(uplink("endpoint: 'https://history', secret: 'pä ss'")).path == (
        "queryflux.historyUplink.secret"
    )


@pytest.mark.parametrize("endpoint", ["", "endpoint: 'https://control:9000', "])
def test_a_secret_for_no_other_endpoint_has_no_effect(endpoint: str) -> None:
    assert warnings(uplink(f"{endpoint}secret: x")) == ["queryflux.historyUplink.secret"]
