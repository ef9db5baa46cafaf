"""``GET /admin/config/status``: whether this process uses what is stored, and why not."""

from collections.abc import Callable
from datetime import UTC, datetime

from starlette.responses import Response

from queryflux.controlplane.endpoints import Call, Endpoint, answer
from queryflux.controlplane.reload import Following


def following_endpoint(following: Callable[[], Following], revision: Callable[[], str | None]) -> Endpoint:
    """``revision`` gives that of the configuration in use, if there is one."""

    async def status(call: Call) -> Response:
        state, used = following(), revision()
        return answer(
            {
                "sequence": state.sequence,
                "epoch": state.epoch,
                "revision": used,
                "since": moment(state.since),
                "current": used is not None and not state.failure,
                "failure": state.failure or None,
                "stage": state.stage or None,
                "failingSince": moment(state.failing_since),
                "warnings": list(state.warnings),
            }
        )

    return Endpoint(
        "GET",
        "/admin/config/status",
        "What this process uses of the stored configuration, and why it does not use the newest.",
        status,
    )


def moment(seconds: float | None) -> str | None:
    """Seconds since the epoch as clients read them, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
