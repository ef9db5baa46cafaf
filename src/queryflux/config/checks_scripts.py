"""Scripts: those that are named exist, and all of them compile."""

from collections.abc import Sequence

from queryflux.config.checks import Context
from queryflux.config.problems import Path, one_of, show
from queryflux.config.routers import PythonRouter
from queryflux.config.scripts import Script, scripts_of


def check_scripts(context: Context) -> None:
    """Complain about names that lead nowhere, and about scripts that cannot be used."""
    config = context.config
    for name in context.names("scripts"):
        if not name.strip():
            context.reading.problem(("scripts", name), "a name must not be empty")
    for group_name, group in config.cluster_groups.items():
        _references(context, ("clusterGroups", group_name, "translationScripts"), group.translation_scripts)
    placed = [
        (_in_file(context, path), script)
        for path, script in scripts_of(config.routers, config.translation, config.scripts)
    ]
    for index, router in enumerate(config.routers):
        if isinstance(router, PythonRouter) and not router.script.strip():
            path = context.reading.item_path(("routers",), index)
            placed = [one for one in placed if one[0] != (*path, "script")]
            if not context.reading.is_broken((*path, "scriptFile")):
                context.reading.problem(
                    (*path, "script"), "a script is needed", "or scriptFile to read it from"
                )
    _compile(context, placed)


def _references(context: Context, path: Path, names: Sequence[str]) -> None:
    known = context.names("scripts")
    scripts = context.config.scripts
    seen: set[str] = set()
    for index, name in enumerate(names):
        here = context.reading.item_path(path, index)
        if name not in known:
            context.reading.problem(here, f"there is no script {show(name)}", one_of(name, known, "scripts"))
        elif name in scripts and scripts[name].kind != "translation_fixup":
            message = f"script {show(name)} is of kind {scripts[name].kind}"
            context.reading.problem(here, message, "only those of kind translation_fixup change SQL")
        elif name in seen:
            context.reading.problem(here, f"{show(name)} is listed twice", "keep one")
        seen.add(name)


def _in_file(context: Context, path: Path) -> Path:
    """Where a script stands, earlier items of whose list may have been left out."""
    for length, key in enumerate(path):
        if isinstance(key, int):
            return (*context.reading.item_path(path[:length], key), *path[length + 1 :])
    return path


def _compile(context: Context, placed: Sequence[tuple[Path, Script]]) -> None:
    if placed:
        wrong = context.scripts([script for _, script in placed])
        for (path, _), problem in zip(placed, wrong, strict=True):
            if problem:
                context.reading.problem(path, f"the script cannot be used: {problem}")
