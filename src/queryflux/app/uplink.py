"""A worker's history on its way: to its control plane, or to an endpoint of its own that is called as one.

The shared secret goes to the control plane alone: another endpoint gets the secret that the configuration has
for it, or none.
"""

from collections.abc import Sequence
from dataclasses import replace

from queryflux.app.history import ProcessHistory
from queryflux.config.fleet import HistoryUplinkConfig
from queryflux.fleet.registry import MAX_TEXT
from queryflux.fleet.registry import Uplink as Report
from queryflux.history.buffer import DEFAULT_PACE
from queryflux.runtime.clock import Clock
from queryflux.worker.client import Caller, HttpControlPlane, address_of
from queryflux.worker.port import ControlPlane
from queryflux.worker.uplink import HistoryUplink

BATCHES = 4
"""So many are on their way at a time: one whose answer was lost keeps no other waiting."""


class Uplink:
    """Where a worker's records go. Turned off they go nowhere and count for nothing."""

    def __init__(
        self,
        settings: HistoryUplinkConfig,
        control_plane: ControlPlane,
        addresses: Sequence[str],
        caller: Caller,
        clock: Clock,
    ) -> None:
        """``addresses`` are those of the control plane. Raises ConfigError."""
        self._settings = settings
        self._records: ProcessHistory | None = None
        self._own: HttpControlPlane | None = None
        if settings.endpoint is not None and settings.endpoint not in addresses:
            address = address_of(settings.endpoint, settings.tls)
            self._own = HttpControlPlane([address], replace(caller, secret=settings.secret), clock)
        self._uplink = HistoryUplink(self._own or control_plane, caller.worker, caller.instance)

    def start(self, records: ProcessHistory) -> None:
        """Take these from now on."""
        settings = self._settings
        if not settings.enabled:
            return
        pace = DEFAULT_PACE._replace(
            flush_secs=settings.flush_interval_secs,
            flush_records=min(settings.max_batch_records, max(1, settings.max_buffered_records // 2)),
            batch_records=settings.max_batch_records,
            batches=BATCHES,
            max_records=settings.max_buffered_records,
        )
        records.send_to(self._uplink.send, pace)
        self._records = records

    def report(self) -> Report:
        """For operators."""
        buffer = self._records.buffer if self._records is not None else None
        if buffer is None:
            return Report(enabled=self._settings.enabled)
        stored, dropped, rejected, waiting, error = buffer.delivery
        return Report(
            delivered=stored, dropped=dropped, rejected=rejected, waiting=waiting, error=error[:MAX_TEXT]
        )

    def close(self) -> None:
        """Break off calls that are left; the records are closed before."""
        if self._own is not None:
            self._own.close()
