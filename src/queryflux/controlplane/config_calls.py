"""``GET /worker/config`` and ``GET /worker/config/wait``: the configuration, and news of it.

Both answers say in headers which revision they speak of (ETag), where it stands in order, and how old its
confirmation is. A 304 confirms what its caller runs only when the ETag is the caller's own revision: a
control plane that is behind, or that publishes what the caller refused, has nothing new for it either.
"""

import re

from queryflux.controlplane.publisher import Asker, Published, SnapshotPublisher
from queryflux.controlplane.worker_app import WorkerAnswer, WorkerCall, WorkerEndpoint
from queryflux.fleet.paths import CONFIG, CONFIG_WAIT
from queryflux.fleet.snapshot import (
    CONFIRMED_AGE,
    EPOCH,
    MAX_EPOCH_LENGTH,
    MAX_SEQUENCE,
    MEDIA_TYPE,
    SEQUENCE,
)
from queryflux.model.errors import InvalidRequest

MOST_SECS = 60.0
"""Longest wait, whatever its caller asks for."""
USUAL_SECS = 30.0
_REVISION = re.compile(r"[0-9a-f]{16}\Z")
_WHOLE = re.compile(r"-?[0-9]{1,19}\Z")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?\Z")


class ConfigCalls:
    """Answers with what a publisher has."""

    def __init__(self, publisher: SnapshotPublisher) -> None:
        self._publisher = publisher

    def endpoints(self) -> list[WorkerEndpoint]:
        """For the worker API."""
        return [
            WorkerEndpoint("GET", CONFIG, self._config),
            WorkerEndpoint("GET", CONFIG_WAIT, self._wait, patient=True),
        ]

    async def _config(self, call: WorkerCall) -> WorkerAnswer:
        there = self._publisher.current
        if _is_known(call.headers.get("if-none-match", ""), there.revision):
            return self._not_modified()
        return self._document(call, there)

    async def _wait(self, call: WorkerCall) -> WorkerAnswer:
        asker, seconds = asked(call)
        news = await self._publisher.wait(asker, seconds)
        return self._document(call, news) if news is not None else self._not_modified()

    def _not_modified(self) -> WorkerAnswer:
        return WorkerAnswer(304, headers=self._about(self._publisher.current))

    def _document(self, call: WorkerCall, there: Published) -> WorkerAnswer:
        headers = {**self._about(there), "Vary": "Accept-Encoding"}
        body = there.body
        if _takes_gzip(call.headers.get("accept-encoding", "")):
            headers["Content-Encoding"] = "gzip"
            body = there.zipped
        return WorkerAnswer(200, body, MEDIA_TYPE, headers, self._publisher.sends)

    def _about(self, there: Published) -> dict[str, str]:
        return {
            "ETag": f'"{there.revision}"',
            EPOCH: there.epoch,
            SEQUENCE: str(there.sequence),
            CONFIRMED_AGE: f"{self._publisher.age():.3f}",
        }


def asked(call: WorkerCall) -> tuple[Asker, float]:
    """What a wait is for, and how long it may last. Raises InvalidRequest."""
    params = call.params  # a later worker may say more than this version understands
    seconds = params.get("timeoutSecs", f"{USUAL_SECS:g}")
    if not _SECONDS.match(seconds):
        raise _wrong("timeoutSecs", "is a number of seconds")
    revisions = {name: params.get(name, "") for name in ("revision", "rejected")}
    for name, value in revisions.items():
        if value and not _REVISION.match(value):
            raise _wrong(name, "is a revision: 16 hexadecimal digits")
    epoch, sequence = params.get("epoch", ""), params.get("sequence", "-1")
    if len(epoch) > MAX_EPOCH_LENGTH:
        raise _wrong("epoch", f"has at most {MAX_EPOCH_LENGTH} characters")
    if not _WHOLE.match(sequence) or not -1 <= int(sequence) <= MAX_SEQUENCE:
        raise _wrong("sequence", "is a whole number")
    asker = Asker(revisions["revision"], epoch, int(sequence), revisions["rejected"])
    return asker, min(float(seconds), MOST_SECS)


def _wrong(name: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"the parameter {name} {what}")


def _is_known(if_none_match: str, revision: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return f'"{revision}"' in tags or "*" in tags


def _takes_gzip(accept_encoding: str) -> bool:
    """Whether the header allows gzip: by name, else by ``*``, and not with a weight of nothing."""
    weights = {}
    for item in accept_encoding.lower().split(","):
        name, _, weight = item.partition(";")
        weights[name.strip()] = weight.replace(" ", "").removeprefix("q=")
    allowed = weights.get("gzip", weights.get("*"))
    return allowed is not None and not re.fullmatch(r"0(\.0*)?", allowed)
