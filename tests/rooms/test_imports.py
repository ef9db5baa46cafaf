"""The tree is held to the import table of docs/map.md."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "queryflux"

BASE = {"model", "runtime"}
LAYER_1 = {"sql", "config", "wire", "results", "history", "telemetry"}
LAYER_2 = {"routing", "auth", "admission", "metadata", "scripts"}

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "runtime": set(),
    "sql": {"model"},
    "config": {"model"},
    "wire": {"model", "results"},
    "results": {"model"},
    "history": BASE,
    "telemetry": BASE,
    "fleet": {"model", "config", "history.stored"},
    "scripts": {*BASE, "config", "sql"},
    "routing": {*BASE, "config", "sql", "scripts"},
    "auth": {*BASE, "config", "results", "sql"},
    "admission": {*BASE, "config", "results", "sql"},
    "metadata": {*BASE, "results", "sql", "engines.port"},
    "engines": {*BASE, "config", "results"},
    "persistence": {*BASE, "config", "fleet", "admission.port", "admission.claims", "history"},
    "pipeline": {*BASE, *LAYER_1, *LAYER_2, "engines.port"},
    "worker": {*BASE, "config", "fleet", "admission", "history", "wire"},
    "controlplane": {*BASE, "config", "fleet", "admission", "history", "auth", "routing"},
    "frontends": {*BASE, "config", "wire", "auth", "results", "pipeline.face", "pipeline.claims"},
}
ANYTHING = {"app", "cli"}

FENCES: dict[str, set[str]] = {
    "sqlglot": {"sql"},
    "pyarrow": {"results", "wire", "engines", "frontends.flight_sql", "cache", "metadata", "pipeline"},
    "asyncpg": {"persistence"},
    "sqlite3": {"persistence", "metadata"},
    "duckdb": {"engines.duckdb"},
    "adbc_driver_manager": {"engines"},
    "adbc_driver_postgresql": {"engines"},
    "starlette": {"controlplane", "worker", "studio", "app"},
    "uvicorn": {"controlplane", "worker", "studio", "app"},
    "prometheus_client": {"telemetry"},
    "bcrypt": {"auth"},
    "re2": {"routing", "metadata"},
    "yaml": {"config"},
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if not path.stem.endswith("_pb2"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def within(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_room_imports_only_what_the_table_allows(path: Path) -> None:
    name = module_name(path)
    room = name.partition(".")[0]
    if room in ANYTHING or not name:
        return
    for imported in imports(path):
        if not imported.startswith("queryflux."):
            continue
        target = imported.removeprefix("queryflux.")
        if target.partition(".")[0] == room:
            assert siblings_apart(name, target), f"{name} imports its sibling {target}"
            continue
        allowed = MAY_IMPORT[room] | ({"wire"} if room == "engines" and name.count(".") else set())
        assert within(target, allowed), f"{name} imports {target}"


def siblings_apart(name: str, target: str) -> bool:
    """Engine and engine, protocol and protocol: folders of a room that do not know each other."""
    room, _, rest = name.partition(".")
    if room not in {"engines", "frontends", "wire"} or "." not in rest:
        return True
    own = rest.partition(".")[0]
    other = target.partition(".")[2].partition(".")[0]
    return other == own or not (SOURCE / room / other).is_dir()


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_a_library_is_used_only_in_its_rooms(path: Path) -> None:
    name = module_name(path)
    for imported in imports(path):
        library = imported.partition(".")[0]
        if library in FENCES and name.partition(".")[0] not in ANYTHING:
            assert within(name, FENCES[library]), f"{name} imports {library}"
        if imported == "os.environ":
            assert within(name, {"app", "cli", "config.loader"}), f"{name} reads the environment"


def test_only_auth_makes_a_verified_identity() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "VerifiedIdentity":
                assert within(module_name(path), {"auth"}), f"{module_name(path)} makes a VerifiedIdentity"


def test_there_is_no_room_for_odds_and_ends() -> None:
    banned = {"utils", "helpers", "common", "base", "manager", "util", "misc"}
    for path in modules():
        assert not banned & set(module_name(path).split(".")), path
