"""A worker's ops listener: health, metrics, its status, and its configuration for peers.

Only the last of these needs the shared secret, and it is only there with ``controlPlane.peerBootstrap``. The
status shows no credentials, ever: there are none in what it is made of.
"""

from typing import TYPE_CHECKING

import msgspec
from starlette.types import ASGIApp

from queryflux.app.worker_api import mounted
from queryflux.config.fleet import ControlPlaneConfig
from queryflux.controlplane.app import operator_app
from queryflux.controlplane.login import Caller
from queryflux.controlplane.public_api import public_endpoints
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerApp, WorkerCall, WorkerEndpoint
from queryflux.controlplane.worker_login import WorkerLogin
from queryflux.fleet.paths import PEER_CONFIG, STATUS
from queryflux.fleet.snapshot import CONFIRMED_AGE, EPOCH, MEDIA_TYPE, SEQUENCE
from queryflux.model.errors import AuthenticationFailed, NotConfigured
from queryflux.worker.status import status_document

if TYPE_CHECKING:
    from queryflux.app.worker import Worker


def worker_ops(worker: "Worker") -> ASGIApp:
    """The application."""
    process = worker.config.queryflux
    calls = [WorkerEndpoint("GET", STATUS, StatusCall(worker).answer, public=True)]
    if (process.control_plane or ControlPlaneConfig()).peer_bootstrap is not None:
        calls.append(WorkerEndpoint("GET", PEER_CONFIG, PeerCall(worker).answer))
    public = operator_app(public_endpoints(worker.check_ready, worker.exposition), _nobody)
    return mounted(public, WorkerApp(calls, WorkerLogin([worker.secret], worker.clock)))


async def _nobody(caller: Caller, credentials: tuple[str, str] | None) -> None:
    raise AuthenticationFailed("a worker has no operators")


class StatusCall:
    """GET /worker/status."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    async def answer(self, call: WorkerCall) -> WorkerAnswer:
        """How it is now."""
        worker = self._worker
        document = status_document(
            worker.report(),
            worker.sync.status,
            ready=worker.not_ready(),
            control_plane=worker.control_plane.answering,
            unreported=worker.reports.failing,
        )
        return WorkerAnswer(body=msgspec.json.encode(document))


class PeerCall:
    """GET /worker/peer-config: the bytes that this worker received, and how sure it is of them."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker

    async def answer(self, call: WorkerCall) -> WorkerAnswer:
        """Raises NotConfigured and ShuttingDown while there is nothing to copy."""
        worker = self._worker
        worker.check_ready()
        snapshot, position = worker.sync.active, worker.sync.stands
        if snapshot is None or position is None:
            raise NotConfigured("no configuration is active yet", hint="ask another worker")
        headers = {
            "ETag": f'"{snapshot.revision}"',
            EPOCH: position.epoch,
            SEQUENCE: str(position.sequence),
            CONFIRMED_AGE: f"{worker.sync.confirmed_age or 0.0:.3f}",
        }
        return WorkerAnswer(200, snapshot.data, MEDIA_TYPE, headers)
