"""``queryflux status``: one look at a control plane and its workers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from queryflux.app.admin_commands import table
from queryflux.app.remote import Remote, RemoteError, plain

HEAD = ("WORKER", "STATE", "REVISION", "SOURCE", "RUNNING", "LEASES", "SENT", "DROPPED", "VERSION", "CURRENT")
STOPPED = "stopped"
MOST_NAMED = 10


def status(remote: Remote, *, as_json: bool) -> str:
    """The fleet as the operator port sees it. Workers that cannot be listed, as while the database is away,
    do not cost the rest. Raises RemoteError."""
    process: Mapping[str, Any] = remote.call("GET", "/admin/status").document
    fleet: dict[str, Any] = {"workers": None, "revision": None, "warnings": []}
    failure = None
    try:
        fleet = remote.call("GET", "/admin/workers").document
    except RemoteError as error:
        failure = error.message
    if as_json:
        document = {
            "url": remote.url,
            "controlPlane": process,
            "publishedRevision": fleet["revision"],
            "workers": fleet["workers"],
            "workersFailure": failure,
            "warnings": [*process["warnings"], *fleet["warnings"]],
        }
        return json.dumps(document, indent=2, ensure_ascii=False)
    lines = [*_process(remote.url, process), ""]
    lines += [f"workers: cannot be listed: {plain(failure)}"] if failure else _fleet(process, fleet)
    warnings = [*process["warnings"], *fleet["warnings"], *_of_workers(fleet["workers"] or [])]
    return "\n".join([*lines, *(f"warning: {plain(warning)}" for warning in warnings)])


def _process(url: str, process: Mapping[str, Any]) -> list[str]:
    config, store, queries, capacity = (process[part] for part in ("config", "store", "queries", "capacity"))
    away = "" if store["reachable"] else ", cannot be reached"
    lines = [
        f"{url}: {process['role']} {process['instance_id']}, version {process['version']}, "
        f"{process['phase']}",
        f"  configuration  {config['revision'] or 'none'} at {config['sequence']}, since {config['since']}",
        f"  store          {store['type']}{away}",
        f"  queries        {queries['running']} running, {queries['queued']} waiting",
    ]
    if capacity is not None:
        lines.append(f"  leases         {capacity['leases_held']} held, {capacity['leases_lost']} lost")
    return [plain(line) for line in lines]


def _fleet(process: Mapping[str, Any], fleet: Mapping[str, Any]) -> list[str]:
    workers: Sequence[Mapping[str, Any]] = fleet["workers"]
    if not workers:
        why = "none has registered"
        if not process["serves_workers"]:
            why = "this process serves none (queryflux.workerApi.enabled)"
        return [f"no workers: {why}"]
    shown = [worker for worker in workers if not _has_stopped(worker)]
    lines = table(HEAD, [_row(worker) for worker in shown]).splitlines() if shown else []
    if stopped := [plain(worker["workerName"]) for worker in workers if _has_stopped(worker)]:
        more = f" and {len(stopped) - MOST_NAMED} more" if len(stopped) > MOST_NAMED else ""
        lines.append(f"stopped, and not started again: {', '.join(stopped[:MOST_NAMED])}{more}")
    return lines


def _has_stopped(worker: Mapping[str, Any]) -> bool:
    return not worker["online"] and worker["phase"] == STOPPED


def _row(worker: Mapping[str, Any]) -> tuple[object, ...]:
    history, coordination = worker["historyUplink"], worker["coordination"]
    return (
        worker["workerName"],
        _state(worker),
        worker["activeRevision"] or "none",
        (worker["configSource"] or "") + (", stale" if worker["stale"] else ""),
        coordination["slotsHeld"],
        coordination["leasesHeld"],
        history["delivered"],
        history["dropped"],
        worker["version"],
        worker["notCurrent"] or ("yes" if worker["current"] else "nothing is published"),
    )


def _state(worker: Mapping[str, Any]) -> str:
    if not worker["online"]:
        return f"offline {_time(worker['lastSeenSecs'])}"
    return "online" if worker["phase"] == "serving" else f"online, {worker['phase']}"


def _time(seconds: float) -> str:
    """A length of time, at most two digits long."""
    for unit, size in (("s", 60.0), ("min", 60.0), ("h", 24.0)):
        if seconds < size:
            return f"{seconds:.0f} {unit}"
        seconds /= size
    return f"{seconds:.0f} d"


def _of_workers(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with each that has not stopped, whole."""
    found = []
    for worker in workers:
        if _has_stopped(worker):
            continue
        history, sync = worker["historyUplink"], worker["sync"]
        wrong = [
            *(worker["warnings"]),
            worker["notCurrent"],
            worker["current"] and sync["error"] and f"cannot reach its control plane: {sync['error']}",
            worker["stale"] and f"its configuration is not confirmed{_age(worker['confirmedAgeSecs'])}",
            history["error"] and f"history is not taken: {history['error']}",
            history["dropped"] and f"{history['dropped']} records of history are lost",
            not worker["online"] and f"not heard of for {_time(worker['lastSeenSecs'])}",
        ]
        found += [f"{worker['workerName']}: {text}" for text in dict.fromkeys(wrong) if text]
    return found


def _age(seconds: float | None) -> str:
    return f" for {_time(seconds)}" if seconds is not None else ""
