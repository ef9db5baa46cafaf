"""Where the worker API has what: on the control plane's operator port, with ``Authorization: Bearer``.

``CONFIG`` is the snapshot, its ETag the revision; ``CONFIG_WAIT`` answers when there is a newer one. The last
two are on a worker's own ops listener. Each call says in two headers from which start of which worker it
comes.
"""

INSTANCE_HEADER = "x-queryflux-instance"
"""Id of this start of the worker: whose leases these are."""
WORKER_HEADER = "x-queryflux-worker"
"""Name of the worker, the same after a restart."""

CONFIG = "/worker/config"
CONFIG_WAIT = "/worker/config/wait"
REGISTER = "/worker/register"
HEARTBEAT = "/worker/heartbeat"
ACQUIRE = "/worker/capacity/acquire"
ACQUIRE_BATCH = "/worker/capacity/acquire-batch"
RENEW = "/worker/capacity/renew"
RELEASE = "/worker/capacity/release"
RELEASE_BATCH = "/worker/capacity/release-batch"
RELEASE_ALL = "/worker/capacity/release-all"
COUNTS = "/worker/capacity/counts"
RUNNING = "/worker/capacity/running"
SWEEP_ACQUIRE = "/worker/sweep-lock/acquire"
SWEEP_RELEASE = "/worker/sweep-lock/release"
HISTORY = "/worker/history"

STATUS = "/worker/status"
PEER_CONFIG = "/worker/peer-config"
