"""``queryflux config``, ``queryflux queries`` and ``queryflux cancel``: what they ask and how it is shown."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queryflux.app.remote import Remote, RemoteError, in_path, plain
from queryflux.config.access import as_yaml
from queryflux.config.candidate import read_sections
from queryflux.config.document import MAX_BYTES
from queryflux.config.problems import ConfigProblems, one_of, render_problems, show
from queryflux.controlplane.changes import change_of, rendered
from queryflux.model.errors import ConfigError, QueryNotFound

PREVIEW_LENGTH = 60
NOTHING_TO_APPLY = (
    "has no section that is applied (queryflux is not: a process reads it from its own file when it starts)"
)
ELSEWHERE = (
    "queries of workers that this process has not started itself are not listed here: "
    "queryflux status has how many each runs"
)


def config_get(remote: Remote, part: str, *, as_json: bool) -> str:
    """The configuration, or the part of it at a path such as ``clusters.east``. Raises RemoteError."""
    answer = remote.call("GET", "/admin/config").document
    document = part_of(answer["document"], part)
    if as_json:
        return json.dumps(document, indent=2, ensure_ascii=False)
    head = "" if part else f"# {remote.url}, at {answer['sequence']}\n"
    return head + as_yaml(document).removesuffix("...\n").rstrip("\n")  # YAML ends a lone scalar with dots


def config_put(
    remote: Remote, file: Path, environ: Mapping[str, str], *, at: int | None, dry_run: bool, as_json: bool
) -> str:
    """Give the sections of a file to the operator port: what changed, or would. Raises RemoteError,
    ConfigError."""
    sections = _sections(file, environ)
    if at is None:
        at = int(remote.call("GET", "/admin/config").document["sequence"])
    body = {"document": sections, "expectedSequence": at}
    params = {"dryRun": "true"} if dry_run else None
    done = remote.call("PUT", "/admin/config", body, params).document
    if as_json:
        return json.dumps(done, indent=2, ensure_ascii=False)
    lines = [plain(rendered(change_of(change))) for change in done["changes"]]
    lines += [f"warning: {_problem(warning)}" for warning in done["warnings"]]
    lines += [f"note: {note}" for note in done["notes"]]
    count = len(done["changes"])
    what = "would change" if dry_run else "changed"
    lines.append(f"{count} {what}; the configuration is at {done['sequence']}" if count else "no changes")
    if not sections:
        lines[-1] += f": {file} {NOTHING_TO_APPLY}"
    return "\n".join(lines)


def queries(remote: Remote, wanted: Mapping[str, str], *, as_json: bool) -> str:
    """Queries that have ended, newest first. Raises RemoteError."""
    rows = remote.call("GET", "/admin/queries", params=wanted).document
    if as_json:
        return json.dumps(rows, indent=2, ensure_ascii=False)
    fleet = any(row["worker"] for row in rows)
    head = ("ID", "SUBMITTED", "STATUS", *fleet * ("WORKER",))
    head += ("USER", "GROUP", "CLUSTER", "MS", "ROWS", "SQL")
    return table(
        head,
        [
            (
                row["proxy_query_id"],
                _time(row["created_at"]),
                row["status"],
                *fleet * (row["worker"],),
                row["username"],
                row["cluster_group"],
                row["cluster_name"],
                f"{row['execution_duration_ms']:.0f}",
                row["rows_returned"],
                row["sql_preview"],
            )
            for row in rows
        ],
    )


def running(remote: Remote, *, as_json: bool) -> str:
    """Queries that run or wait in the process that is asked, and what that knows of others. Raises
    RemoteError."""
    answer = remote.call("GET", "/admin/queries/running")
    rows = answer.document
    if as_json:
        return json.dumps(rows, indent=2, ensure_ascii=False)
    owners = {row.get("instance_id") for row in rows}
    several = len(owners) > 1
    head = ("ID", "ENGINE ID", "STATE", *several * ("PROCESS",), "USER", "GROUP", "CLUSTER", "SECONDS", "SQL")
    shown = table(
        head,
        [
            (
                row["id"],
                row["backend_query_id"],
                row["state"],
                *several * (row["instance_id"],),
                row["submitted_by"],
                row["group"],
                row["cluster"],
                f"{row['elapsed_secs']:.1f}",
                row["sql_preview"],
            )
            for row in rows
        ],
    )
    notes = [*answer.notes, *_of_workers(remote)]
    return "\n".join([shown, *(f"note: {plain(note)}" for note in notes)])


def _of_workers(remote: Remote) -> list[str]:
    """What to say where workers run queries that the process which is asked does not know."""
    try:
        if not remote.call("GET", "/admin/status").document["serves_workers"]:
            return []
        workers = remote.call("GET", "/admin/workers").document["workers"]
    except RemoteError:  # what runs has been told; queryflux status says what is wrong
        return []
    return [ELSEWHERE] if any(worker["online"] for worker in workers) else []


def cancel(remote: Remote, query_id: str) -> str:
    """End a query. Raises RemoteError when none runs under that id."""
    try:
        remote.call("DELETE", f"/admin/queries/{in_path(query_id)}")
    except RemoteError as error:
        if error.told != QueryNotFound.code:
            raise
        raise RemoteError(
            error.message,
            hint="it may have ended; queryflux queries --running lists those that can be cancelled here;"
            " those of workers that this process has not started itself are ended by their clients",
        ) from None
    return f"cancelled {query_id}"


def part_of(document: Any, path: str) -> Any:
    """What stands at a path: keys behind dots, positions in brackets; a key may have dots itself, and may
    stand in quotes as ``config diff`` writes it. Raises RemoteError."""
    if not path:
        return document
    if isinstance(document, list) and path.startswith("["):
        number, _, rest = path[1:].partition("]")
        if number.isdigit() and int(number) < len(document):
            return part_of(document[int(number)], rest.removeprefix("."))
    known = document if isinstance(document, dict) else {}
    written = {form: key for key in known for form in (key, show(key))}
    fitting = [form for form in written if path == form or path.startswith((f"{form}.", f"{form}["))]
    if not fitting:
        name = path.partition(".")[0]
        raise RemoteError(f"the configuration has no {show(path)}", hint=one_of(name, known))
    form = max(fitting, key=len)
    return part_of(known[written[form]], path[len(form) :].removeprefix("."))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as they need; the last one is cut."""
    cells = [head, *([plain("" if it is None else str(it)) for it in row] for row in rows)]
    cells = [[*row[:-1], _cut(row[-1])] for row in cells]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= PREVIEW_LENGTH else text[: PREVIEW_LENGTH - 3] + "..."


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _sections(file: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None
    try:
        return read_sections(data, environ)
    except ConfigProblems as error:
        raise ConfigError(
            f"{file} cannot be read as a configuration\n{render_problems(error.problems)}"
        ) from None


def _problem(problem: Mapping[str, str]) -> str:
    hint = f" ({problem['hint']})" if problem["hint"] else ""
    return plain(f"{problem['path']}: {problem['message']}{hint}")
