"""Configurations of the simulated fleet as rows of the database, and the revisions they are served under."""

from collections.abc import Mapping
from dataclasses import dataclass

from queryflux.auth.hashes import check_password
from queryflux.config.candidate import check_document, read_document
from queryflux.config.process import ProcessConfig
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.config.tables import Tables
from queryflux.controlplane.publisher import Offer
from queryflux.routing.regex import check_regex
from tests.sim.process import GROUPS, WAIT_SECS
from tests.sim.virtual import NEWER, made
from tests.sim.worker import UNUSABLE

CAPS = {"one": 1, "few": 3}


@dataclass(frozen=True)
class Edit:
    """What an operator has written. ``note`` tells one from another that is like it."""

    note: int
    caps: Mapping[str, int]
    redaction: str = "none"
    extra: str = ""
    """A cluster that makes it one which workers, or old ones, cannot use."""

    def usable(self, schema_version: int) -> bool:
        """Whether a worker can use it that knows snapshots up to this version."""
        return self.extra != UNUSABLE and (self.extra != NEWER or schema_version > 1)

    def tables(self) -> Tables:
        """As rows."""
        caps = dict(self.caps) | ({self.extra: 1} if self.extra else {})
        clusters = {
            name: {"engine": "trino", "endpoint": f"http://{name}:8080", "maxRunningQueries": cap}
            for name, cap in caps.items()
        }
        groups = {
            name: {
                "members": list(members),
                "capacityWaitTimeoutSecs": WAIT_SECS,
                "defaultTags": {"edit": str(self.note)},
            }
            for name, members in GROUPS.items()
        }
        document = {
            "clusters": clusters,
            "clusterGroups": groups,
            "routingFallback": "one",
            "queryHistory": {"redaction": self.redaction},
        }
        return updated(Tables(), read_document(document))


def revision_of(stored: StoredConfig) -> str:
    """The revision that workers are served it under."""
    document, _ = stored.document(Snapshot())
    snapshot = check_document(document, ProcessConfig(), check_regex, check_password).snapshot
    return made(Offer(snapshot, stored.epoch, stored.sequence, 0.0), 0.0, 0.0).revision
