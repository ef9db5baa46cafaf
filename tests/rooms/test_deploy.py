"""The manifests and the load balancer of deploy/: what Kubernetes and we ourselves would take, and parts
that fit together."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from queryflux.config.loader import load_file
from tests.kit.kubernetes import problems
from tests.kit.pki import Authority

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
SECRETS = "/run/secrets/queryflux"
LONGEST_WAIT = 60
HISTORY_SECS = 5
KEYS = {
    "queryflux-database": {"url"},
    "queryflux-worker": {"secret"},
    "queryflux-admin": {"password"},
    "queryflux-control-tls": {"tls.crt", "tls.key"},
    "queryflux-workers-tls": {"tls.crt", "tls.key"},
    "queryflux-ca": {"ca.crt"},
}


def objects(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


ALL = [
    pytest.param(it, id=f"{it['kind']}-{it['metadata']['name']}") for file in FILES for it in objects(file)
]


def of_kind(kind: str, files: list[Path] = FILES) -> list[dict[str, Any]]:
    return [it for file in files for it in objects(file) if it["kind"] == kind]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod template, and the container in it that is ours."""
    for deployment in of_kind("Deployment"):
        template = deployment["spec"]["template"]
        spec = template["spec"]
        both = chain(spec.get("initContainers", ()), spec["containers"])
        (ours,) = [it for it in both if it["name"] == "queryflux"]
        yield template, ours


PODS = [pytest.param(*pod, id=pod[0]["metadata"]["labels"]["app.kubernetes.io/name"]) for pod in pods()]


def config_of(template: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    """The file that the container serves."""
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    (mount,) = [it for it in container["volumeMounts"] if it["mountPath"] == "/etc/queryflux"]
    name = volumes[mount["name"]]["configMap"]["name"]
    (found,) = [it for it in of_kind("ConfigMap") if it["metadata"]["name"] == name]
    document: dict[str, Any] = yaml.safe_load(found["data"]["queryflux.yaml"])
    return document


@pytest.mark.parametrize("it", ALL)
def test_kubernetes_knows_every_field(it: dict[str, Any]) -> None:
    assert problems(it) == []


def test_mistakes_are_found() -> None:
    (service,) = [it for it in of_kind("Service") if it["metadata"]["name"] == "queryflux"]
    assert problems(service | {"kind": "Servise"})
    assert problems(service | {"spec": service["spec"] | {"selectors": {}}})
    assert problems(service | {"spec": service["spec"] | {"ports": [{"name": "trino"}]}}) == [
        "Service.spec.ports[0].port: is missing"
    ]
    assert problems(service | {"spec": service["spec"] | {"ports": [{"port": "8080"}]}})
    assert problems(service | {"spec": service["spec"] | {"ports": {"port": 8080}}})
    assert problems(service | {"metadata": {"name": "Query_Flux"}})
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    assert problems(scaler | {"spec": scaler["spec"] | {"minReplicas": True}})


@pytest.mark.parametrize("it", [pytest.param(it, id=it["metadata"]["name"]) for it in of_kind("ConfigMap")])
def test_our_file_in_a_config_map_loads_and_warns_of_open_doors_alone(
    it: dict[str, Any], tmp_path: Path
) -> None:
    """Who may query in somebody's cluster is not ours to say; the workers are told by their control plane."""
    certificate = Authority(tmp_path / "pki")
    server = certificate.server()
    values = {"secret": "f" * 64, "url": "postgres://queryflux:x@db.data/queryflux", "password": "opensesame"}
    for place in ("worker", "database", "admin", "tls", "ca"):
        (tmp_path / place).mkdir()
    for place, key in (("worker", "secret"), ("database", "url"), ("admin", "password")):
        (tmp_path / place / key).write_text(values[key])
    shutil.copy(certificate.ca_file, tmp_path / "ca" / "ca.crt")
    shutil.copy(server.cert_file, tmp_path / "tls" / "tls.crt")
    shutil.copy(server.key_file, tmp_path / "tls" / "tls.key")
    file = tmp_path / "queryflux.yaml"
    file.write_text(it["data"]["queryflux.yaml"].replace(SECRETS, str(tmp_path)), encoding="utf-8")
    loaded = load_file(file, {"POD_IP": "10.1.2.3", "POD_NAME": "queryflux-workers-7d9f-abcde"})
    is_open = loaded.config.queryflux.role == "controlPlane"
    assert [warning.path for warning in loaded.warnings] == ["auth.provider"] * is_open


@pytest.mark.parametrize(("template", "container"), PODS)
def test_a_pod_has_what_its_file_names(template: dict[str, Any], container: dict[str, Any]) -> None:
    """Secrets are mounted where the file looks for them, and variables and ports are those it uses."""
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    there = set()
    for mount in container["volumeMounts"]:
        if secret := volumes[mount["name"]].get("secret"):
            there |= {f"{mount['mountPath']}/{key}" for key in KEYS[secret["secretName"]]}
    text = yaml.safe_dump(config_of(template, container))
    assert set(re.findall(rf"{SECRETS}/[\w./-]+", text)) == there
    assert set(re.findall(r"\$\{(\w+)", text)) == {one["name"] for one in container["env"]}
    process = config_of(template, container)["queryflux"]
    operators = process.get("adminApi") or process["opsListener"]
    doors = {door["port"] for door in process["frontends"].values() if door.get("host") != "127.0.0.1"}
    assert {port["containerPort"] for port in container["ports"]} == doors | {operators["port"]}


@pytest.mark.parametrize(("template", "container"), PODS)
def test_probes_and_the_end_of_a_pod(template: dict[str, Any], container: dict[str, Any]) -> None:
    process = config_of(template, container)["queryflux"]
    scheme = "HTTPS" if (process.get("adminApi") or process["opsListener"]).get("tls") else None
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/health")):
        asked = container[probe]["httpGet"]
        assert (asked["path"], asked["port"], asked.get("scheme")) == (path, "operators", scheme)
    sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed = sleep + process["shutdownDrainTimeoutSecs"] + HISTORY_SECS
    assert template["spec"]["terminationGracePeriodSeconds"] > needed


@pytest.mark.parametrize(("template", "container"), PODS)
def test_a_pod_may_do_little(template: dict[str, Any], container: dict[str, Any]) -> None:
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["image"] == "registry.example/queryflux:0.1.0"


def test_an_application_waits_for_its_sidecar() -> None:
    (billing,) = [it for it in of_kind("Deployment") if it["metadata"]["name"] == "billing"]
    (sidecar,) = billing["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"


def test_what_selects_pods_finds_some() -> None:
    labels = [template["metadata"]["labels"] for template, _ in pods()]
    selectors = [it["spec"]["selector"] for it in of_kind("Service")]
    for kind in ("Deployment", "PodDisruptionBudget"):
        selectors += [it["spec"]["selector"]["matchLabels"] for it in of_kind(kind)]
    selectors += [it["spec"]["podSelector"]["matchLabels"] for it in of_kind("NetworkPolicy")]
    for selector in selectors:
        assert any(selector.items() <= one.items() for one in labels), selector
    for service in of_kind("Service"):
        names = {
            port["name"]
            for template, container in pods()
            if service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
            for port in container["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    target = scaler["spec"]["scaleTargetRef"]["name"]
    (scaled,) = [it for it in of_kind("Deployment") if it["metadata"]["name"] == target]
    assert "replicas" not in scaled["spec"], "an apply would undo what the scaler did"


def test_control_planes_are_several_and_one_of_them_stays() -> None:
    (control,) = [it for it in of_kind("Deployment") if it["metadata"]["name"] == "queryflux-control"]
    assert control["spec"]["replicas"] == 2
    assert control["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    (budget,) = [it for it in of_kind("PodDisruptionBudget") if it["metadata"]["name"] == "queryflux-control"]
    assert budget["spec"]["minAvailable"] == 1


def test_peers_are_listed_when_they_are_ready_by_the_name_that_workers_ask() -> None:
    (peers,) = [it for it in of_kind("Service") if it["spec"].get("clusterIP") == "None"]
    (config,) = [it for it in of_kind("ConfigMap") if it["metadata"]["name"] == "queryflux-workers"]
    process = yaml.safe_load(config["data"]["queryflux.yaml"])["queryflux"]
    (port,) = peers["spec"]["ports"]
    address = f"{peers['metadata']['name']}:{port['port']}"
    assert process["controlPlane"]["peerBootstrap"]["address"] == address
    assert not peers["spec"].get("publishNotReadyAddresses")


@pytest.mark.parametrize("name", ["queryflux-workers", "billing"])
def test_workers_reach_control_planes_and_engines_and_no_database(name: str) -> None:
    (policy,) = [it for it in of_kind("NetworkPolicy") if it["metadata"]["name"] == name]
    assert "Egress" in policy["spec"]["policyTypes"]
    reached = set()
    for rule in policy["spec"]["egress"]:
        assert rule["to"], "a rule without a destination allows all"
        for to in rule["to"]:
            selectors = {
                **to.get("podSelector", {}).get("matchLabels", {}),
                **to.get("namespaceSelector", {}).get("matchLabels", {}),
            }
            where = selectors.get("app.kubernetes.io/component") or selectors["kubernetes.io/metadata.name"]
            reached |= {(where, port["port"]) for port in rule["ports"]}
    workers = {("worker", 9100)} if name == "queryflux-workers" else set()
    assert reached == {("kube-system", 53), ("control-plane", 9000), ("data", 8080)} | workers


def test_only_workers_and_operators_reach_the_port_with_the_configuration() -> None:
    (policy,) = [it for it in of_kind("NetworkPolicy") if it["metadata"]["name"] == "queryflux-control"]
    (rule,) = [it for it in policy["spec"]["ingress"] if {"port": "operators"} in it["ports"]]
    workers = [
        template for template, _ in pods() if template["metadata"]["labels"].get("queryflux.example/worker")
    ]
    assert len(workers) == 2
    assert {"namespaceSelector": {}} not in rule["from"]
    assert rule["from"][0]["podSelector"]["matchLabels"] == {"queryflux.example/worker": "true"}


def test_the_load_balancer_waits_longer_than_any_worker() -> None:
    text = HAPROXY.read_text(encoding="utf-8")
    (control,) = re.findall(r"^backend control_planes\n((?:    .*\n)+)", text, re.M)
    (front,) = re.findall(r"^frontend control\n((?:    .*\n)+)", text, re.M)
    assert int(re.findall(r"timeout server (\d+)s", control)[0]) > LONGEST_WAIT + 10
    assert int(re.findall(r"timeout client (\d+)s", front)[0]) > LONGEST_WAIT + 10
    assert text.count("option httpchk GET /readyz") == text.count("\nbackend ")


def test_haproxy_takes_its_file() -> None:
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("no haproxy (apt-get install haproxy)")
    page = (ROOT / "docs" / "worker-mode.md").read_text(encoding="utf-8")
    exports = "\n".join(re.findall(r"^export .*_(?:BIND|OPS)=.*$", page, re.M))
    command = f"set -e\n{exports}\n{program} -c -f {HAPROXY}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_secrets_that_the_page_makes_are_those_that_pods_mount(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "worker-mode.md").read_text(encoding="utf-8")
    authority = Authority(tmp_path / "pki")
    server = authority.server()
    for name in ("control", "workers"):
        shutil.copy(server.cert_file, tmp_path / f"{name}.pem")
        shutil.copy(server.key_file, tmp_path / f"{name}.key")
    shutil.copy(authority.ca_file, tmp_path / "ca.pem")
    made = {}
    for line in re.findall(r"^    (kubectl -n queryflux create secret .*?)(?: +#.*)?$", page, re.M):
        command = f"DATABASE_URL=postgres://db/queryflux; {line} --dry-run=client -o json"
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        secret = yaml.safe_load(done.stdout)
        made[secret["metadata"]["name"]] = set(secret["data"])
    assert made == KEYS
