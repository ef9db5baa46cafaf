"""What a process has for workers: the calls under /worker, mounted on the operator port, and the snapshot
document behind the first of them.

``endpoints`` is a plain list that each part adds its own to; ``mounted`` puts it beside the operator's.
"""

import logging

from starlette.types import ASGIApp, Receive, Scope, Send

from queryflux.config.fleet import WorkerApiConfig
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.controlplane.config_calls import ConfigCalls
from queryflux.controlplane.publisher import Offer, Publishing, SnapshotPublisher
from queryflux.controlplane.reload import Reloader
from queryflux.controlplane.worker_app import WorkerApp, WorkerEndpoint
from queryflux.controlplane.worker_login import WorkerLogin
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.runtime.metrics import Metrics
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

PREFIX = "/worker/"
CONFIRM_SECS = 10.0
"""How often the store is asked whether it still says what is published."""


class WorkerApi:
    """Serving workers."""

    def __init__(self, config: WorkerApiConfig, store: ConfigStore, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self.publisher = SnapshotPublisher(
            clock=clock,
            metrics=metrics,
            build_secs=config.snapshot_build_timeout_secs,
            most_sends=config.max_concurrent_snapshot_sends,
        )
        secrets = config.secrets if config.secret is None else (config.secret, *config.secrets)
        self.guard = WorkerLogin(secrets, clock)
        self.endpoints: list[WorkerEndpoint] = ConfigCalls(self.publisher).endpoints()
        self._tasks = TaskGroup("worker api")

    def use(self, stored: StoredConfig, snapshot: Snapshot, read_at: float) -> None:
        """This is in use now, and was stored when the store was read."""
        self.publisher.offer(Offer(snapshot, stored.epoch, stored.sequence, read_at))

    async def ready(self) -> None:
        """Return when the first document is there, or cannot be made."""
        await self.publisher.built()

    def follow(self, reloader: Reloader) -> None:
        """From now on, see to it that the document is what is stored, and reload when it is not."""
        self._tasks.spawn("confirm", self._confirm(reloader))

    async def _confirm(self, reloader: Reloader) -> None:
        told: tuple[str, int] | None = None
        while True:
            await self._clock.sleep(CONFIRM_SECS)
            read_at = self._clock.monotonic()
            try:
                position = await self._store.revision()
            except StoreUnavailable as error:
                log.debug("the snapshot for workers cannot be confirmed: %s", error.message)
                continue  # its age tells
            except Exception:
                log.exception("confirming the snapshot for workers failed inside QueryFlux")
                continue
            if not reloader.state.failure and self.publisher.confirm(*position, read_at):
                told = None
            elif position != told:
                told = position  # once: what is stored may be of no use, and the reload has said so
                reloader.want()

    @property
    def state(self) -> Publishing:
        """For operators."""
        return self.publisher.state

    def mounted(self, operator: ASGIApp) -> ASGIApp:
        """The operator port's application with ours under /worker."""
        return mounted(operator, WorkerApp(self.endpoints, self.guard))

    def begin_drain(self) -> None:
        """Waits are answered at once; the other calls go on."""
        self.publisher.begin_drain()

    async def close(self) -> None:
        """Ends what goes on in the background."""
        await self._tasks.close()
        await self.publisher.close()


def mounted(operator: ASGIApp, workers: ASGIApp) -> ASGIApp:
    """One application: calls under /worker go to the second."""

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (workers if ours else operator)(scope, receive, send)

    return both
