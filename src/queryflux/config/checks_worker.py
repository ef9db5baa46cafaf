"""Role ``worker``: its file says where its control plane is, and nothing that the control plane decides."""

from urllib.parse import urlsplit

from queryflux.config.checks import Context
from queryflux.config.checks_serving import is_loopback, is_sent
from queryflux.config.fleet import CallerTls, ControlPlaneConfig, PeerBootstrapConfig, peer_address
from queryflux.config.listeners import OpsListenerConfig
from queryflux.config.persistence import InMemoryPersistence
from queryflux.config.problems import Path, show

_PROCESS: Path = ("queryflux",)
_CONTROL: Path = ("queryflux", "controlPlane")
_PEERS: Path = (*_CONTROL, "peerBootstrap")
_HISTORY: Path = ("queryflux", "historyUplink")
_CARRIES = "the configuration, with credentials of engines, and the secret"

CENTRAL = (
    "clusters",
    "clusterGroups",
    "routers",
    "routingFallback",
    "translation",
    "scripts",
    "catalogProvider",
    "auth",
    "authorization",
    "guardrails",
    "accessControl",
)
"""What a worker is given."""
ELSEWHERE = {
    "adminApi": "a worker has no admin API; its operator port is opsListener",
    "workerApi": "a worker serves no workers",
    "queryHistory": "what records may say is decided on the control plane",
    "queryHistoryRetentionDays": "the control plane keeps the records",
    "configReloadIntervalSecs": "a worker reads no store; it hears of changes from its control plane",
    "distributed": "a worker shares limits through its control plane; see coordination.mode",
}
"""Keys of ``queryflux`` that a worker has no use for, and why."""
WORKERS_ONLY = ("workerName", "opsListener", "historyUplink")
MOST_NAME = 200
"""Characters of a name. Every call carries it in a header, and a process of several cores lengthens it."""


def check_worker(context: Context) -> None:
    """A worker's file, or the keys of one in the file of another role."""
    process = context.config.queryflux
    _name(context, "workerName", process.worker_name)
    if process.role == "worker":
        _name(context, "instanceId", process.instance_id)
        _local_only(context)
        _control_plane(context)
        _history(context)
    else:
        _not_a_worker(context)


def _name(context: Context, key: str, name: str | None) -> None:
    if name is None or (is_sent(name.replace(" ", "_")) and name == name.strip() and len(name) <= MOST_NAME):
        return
    message = "is no name that calls can carry in a header"
    hint = f"at most {MOST_NAME} ASCII characters, with no space at an end"
    context.reading.problem((*_PROCESS, key), message, hint)


def _not_a_worker(context: Context) -> None:
    marks, reading = context.reading.marks, context.reading
    if reading.is_broken((*_PROCESS, "role")):
        return
    if _CONTROL in marks:
        message = "is for workers, and this process is none"
        reading.problem(_CONTROL, message, "set queryflux.role: worker, or remove it")
    for key in WORKERS_ONLY:
        if (*_PROCESS, key) in marks:
            reading.warn((*_PROCESS, key), "has no effect: only a worker looks at it", "remove it")
    coordination = context.config.queryflux.coordination
    for key, usual in (("mode", "controlPlane"), ("onUnavailable", "failClosed")):
        path = (*_PROCESS, "coordination", key)
        value = (
            coordination and {"mode": coordination.mode, "onUnavailable": coordination.on_unavailable}[key]
        )
        if path in marks and value not in (None, usual):
            reading.warn(path, "has no effect: only a worker looks at it", "remove it")


def _local_only(context: Context) -> None:
    """Everything central is refused where it stands: it would be ignored, and its owner would not know."""
    reading, process = context.reading, context.config.queryflux
    for section in CENTRAL:
        if (section,) in reading.marks:
            message = "belongs into the configuration of the control plane: a worker is given it"
            reading.problem((section,), message, "remove it here")
    for key, reason in ELSEWHERE.items():
        if (*_PROCESS, key) in reading.marks:
            reading.problem((*_PROCESS, key), reason, "remove it here")
    path: Path = (*_PROCESS, "persistence")
    if not isinstance(process.persistence, InMemoryPersistence):
        message = "belongs into the file of the control plane: a worker opens no database"
        reading.problem(path, message, "remove it here")
    if (*_PROCESS, "history") in reading.marks:
        message = "has no effect: a worker sends its records to the control plane"
        reading.warn((*_PROCESS, "history"), message, "see historyUplink")


def _control_plane(context: Context) -> None:
    settings, reading = context.config.queryflux.control_plane, context.reading
    if settings is None:
        if not reading.is_broken(_CONTROL):
            message = "is required with role: worker"
            reading.problem(_CONTROL, message, "with url and secretFile")
        return
    written = {(*_CONTROL, "url"): settings.url} if settings.url is not None else {}
    urls = {**written, **{(*_CONTROL, "urls", at): url for at, url in enumerate(settings.urls)}}
    if not urls and not any(reading.is_broken((*_CONTROL, key)) for key in ("url", "urls")):
        reading.problem((*_CONTROL, "url"), "is required", "or urls, several that are tried in turn")
    schemes = {_url(context, path, url) for path, url in urls.items()}
    _secret(context, settings)
    _tls(context, (*_CONTROL, "tls"), settings.tls)
    if settings.tls is not None and schemes == {"http"}:
        reading.warn((*_CONTROL, "tls"), "has no effect: the address is plain http", "use https")
    if settings.peer_bootstrap is not None:
        _peers(context, settings.peer_bootstrap)


def _history(context: Context) -> None:
    """An endpoint that is not the control plane, and what it gets."""
    uplink, reading = context.config.queryflux.history_uplink, context.reading
    if uplink is None:
        return
    if uplink.enabled and uplink.max_buffered_records == 0:
        message = "nothing is kept until it is sent: every record is dropped"
        reading.warn((*_HISTORY, "maxBufferedRecords"), message, "give it room, or set enabled: false")
    control = context.config.queryflux.control_plane or ControlPlaneConfig()
    if uplink.endpoint is None or uplink.endpoint in control.addresses:
        for key in ("secret", "secretFile", "tls"):
            if (*_HISTORY, key) in reading.marks:
                message = "has no effect: records go to the control plane"
                reading.warn((*_HISTORY, key), message, "remove it, or set endpoint")
        return
    _url(context, (*_HISTORY, "endpoint"), uplink.endpoint, "records of queries")
    _tls(context, (*_HISTORY, "tls"), uplink.tls)
    if uplink.secret is None:
        return
    path: Path = (*_HISTORY, "secret")
    if not is_sent(uplink.secret.reveal()):
        reading.problem(path, "has characters that no HTTP header can carry", "use letters and digits")
    elif uplink.secret == control.secret:
        message = "is the secret of the control plane, which goes nowhere else"
        reading.problem(path, message, "give the endpoint one of its own, or none")


def _url(context: Context, path: Path, url: str, carries: str = _CARRIES) -> str:
    """The scheme of an address; complains of one that cannot be used, or should not."""
    reading = context.reading
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        reading.problem(path, "is not a URL", "such as https://control:9000")
        return ""
    if "@" in parts.netloc:
        # Not shown: it holds a password.
        reading.problem(path, "must hold no credentials", "workers show the shared secret: secretFile")
    elif not good or parts.query or parts.fragment:
        reading.problem(path, f"{show(url, 200)} is no http or https URL", "such as https://control:9000")
    elif parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        message = f"{carries} travel over plain http"
        reading.warn(path, message, "use https, or keep it inside a network that you trust")
    return parts.scheme


def _secret(context: Context, settings: ControlPlaneConfig) -> None:
    reading = context.reading
    path: Path = (*_CONTROL, "secret")
    broken = any(reading.is_broken((*_CONTROL, key)) for key in ("secret", "secretFile"))
    text = settings.secret.reveal() if settings.secret is not None else ""
    if not text.strip():
        if not broken:
            message = "is required: what the control plane has as workerApi.secret"
            reading.problem(path, message, "or secretFile, a file to read it from")
    elif not is_sent(text):
        reading.problem(path, "has characters that no HTTP header can carry", "use letters and digits")


def _tls(context: Context, path: Path, tls: CallerTls | None) -> None:
    if tls is None:
        return
    context.readable((*path, "caFile"), tls.ca_file)
    if tls.insecure_skip_verify:
        message = "any certificate is taken: whoever answers gets the secret"
        context.reading.warn((*path, "insecureSkipVerify"), message, "use caFile")


def _peers(context: Context, peers: PeerBootstrapConfig) -> None:
    reading = context.reading
    path: Path = (*_PEERS, "address")
    address = peer_address(peers.address)
    if address is None:
        reading.problem(path, f"{show(peers.address)} is no host and port", "such as workers:9100")
    elif peers.tls is None and not is_loopback(address.host):
        message = "peers are asked over plain http, for a configuration with credentials of engines"
        reading.warn(path, message, "set tls, or keep it inside a network that you trust")
    _tls(context, (*_PEERS, "tls"), peers.tls)
    ops = context.config.queryflux.ops_listener or OpsListenerConfig()
    if ops.tls is None and not is_loopback(ops.host):
        message = "peers fetch the configuration, with credentials of engines, over plain http here"
        hint = "set tls, or keep the port inside a network that you trust"
        reading.warn((*_PROCESS, "opsListener"), message, hint)
