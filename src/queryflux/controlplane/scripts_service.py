"""The stored scripts: edits of one section of the configuration, addressed by id. No HTTP."""

from collections.abc import Mapping
from typing import Any

from queryflux.config.left_out import LeftOut
from queryflux.config.problems import Problem, render_path, show
from queryflux.config.tables import ScriptRow
from queryflux.controlplane.config_service import ConfigService
from queryflux.controlplane.edits import Current, Outcome, Renaming, Subject
from queryflux.controlplane.errors import InUse, NameTaken, NotThere, Refused
from queryflux.controlplane.references import Document, rename_script

SECTION = "scripts"


class ScriptLibrary:
    """Scripts by id, over the service that edits the whole."""

    def __init__(self, service: ConfigService) -> None:
        self._service = service

    async def scripts(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every script's record, or those of one kind; those last that cannot be read."""
        current = await self._service.current()
        records = [script_record(row) for row in current.stored.tables.scripts if kind in (None, row.kind)]
        return [*records, *(_unreadable_record(it) for it in current.entries_left_out(SECTION))]

    async def script(self, script_id: str) -> dict[str, Any]:
        """One script's record. Raises NotThere."""
        current = await self._service.current()
        for it in current.entries_left_out(SECTION):
            if _has_id(it, script_id):
                return _unreadable_record(it)
        return script_record(_row(current, script_id))

    async def add(self, record: Mapping[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        """A new script, and its record. Raises NameTaken, ConfigProblems when it does not compile."""
        name = _name_in(record)

        def change(current: Current) -> Document:
            return _with_script(current.clear, name, record, taken=True)

        outcome = await self._service.edit(change, [Subject(SECTION, name, partial=True)])
        return outcome, _stored(outcome, name, record)

    async def put(self, script_id: str, record: Mapping[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        """Replace a script, also its name wherever a group lists it. Raises as ``add``, NotThere."""
        name = _name_in(record)
        old = _name(await self._service.current(), script_id)
        renaming = Renaming(SECTION, old, name) if name != old else None

        def change(current: Current) -> Document:
            if _name(current, script_id) != old:
                raise NotThere(f"script {script_id} has another name now", hint="read it again")
            document = rename_script(current.clear, old, name) if renaming is not None else current.clear
            if renaming is not None and name in current.clear.get("scripts", {}):
                raise _taken(name)
            return _with_script(document, name, record)

        outcome = await self._service.edit(change, [Subject(SECTION, old)], renaming=renaming)
        return outcome, _stored(outcome, name, record)

    async def delete(self, script_id: str) -> Outcome:
        """Remove a script. Raises NotThere, InUse when a group lists it."""

        name = _name(await self._service.current(), script_id)

        def change(current: Current) -> Document:
            if _name(current, script_id) != name:
                raise NotThere(f"script {script_id} has another name now", hint="read it again")
            if places := _places(current.clear, name):
                raise InUse(
                    f"script {show(name)} is still in use",
                    hint="take it out of these groups first, then delete it",
                    problems=[Problem(0, 0, place, f"lists {name}") for place in places],
                )
            scripts = {key: it for key, it in current.clear.get(SECTION, {}).items() if key != name}
            return {**current.clear, SECTION: scripts}

        return await self._service.edit(change, [Subject(SECTION, name, removed=True)])


def script_record(row: ScriptRow) -> dict[str, Any]:
    """A script as operators see it."""
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "kind": row.kind,
        "body": row.body,
    }


def _unreadable_record(it: LeftOut) -> dict[str, Any]:
    row = ScriptRow(id=it.row.id if it.row is not None else None, name=it.name, kind="", body="")
    return {**dict.fromkeys(script_record(row)), "id": row.id, "name": row.name, "notServed": it.reason}


def _has_id(it: LeftOut, script_id: str) -> bool:
    return it.row is not None and str(it.row.id) == script_id


def _name(current: Current, script_id: str) -> str:
    """Also of one that cannot be read. Raises NotThere."""
    for it in (*current.leaving, *current.entries_left_out(SECTION)):
        if it.section == SECTION and _has_id(it, script_id):
            return it.name
    return _row(current, script_id).name


def _row(current: Current, script_id: str) -> ScriptRow:
    """Raises NotThere."""
    for row in current.stored.tables.scripts:
        if str(row.id) == script_id:
            return row
    raise NotThere(f"there is no script {show(script_id)}")


def _name_in(record: Mapping[str, Any]) -> str:
    """Raises Refused."""
    name = str(record["name"])
    if not name.strip():
        problem = Problem(0, 0, "name", "a name must not be empty")
        raise Refused("the body is not what this path takes", problems=[problem])
    return name


def _with_script(
    document: Document, name: str, record: Mapping[str, Any], *, taken: bool = False
) -> Document:
    scripts = document.get("scripts", {})
    if taken and name in scripts:
        raise _taken(name)
    script = {key: record[key] for key in ("kind", "body", "description") if record.get(key) is not None}
    return {**document, "scripts": {**scripts, name: script}}


def _taken(name: str) -> NameTaken:
    return NameTaken(f"there is a script {show(name)} already", hint="choose another name")


def _stored(outcome: Outcome, name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": outcome.ids.scripts.get(name),
        "name": name,
        "description": record.get("description") or "",
        "kind": record["kind"],
        "body": record["body"],
    }


def _places(document: Document, script: str) -> list[str]:
    """Where groups list a script."""
    return [
        render_path(("clusterGroups", group, "translationScripts", index))
        for group, it in document.get("clusterGroups", {}).items()
        for index, name in enumerate(it.get("translationScripts", ()))
        if name == script
    ]
