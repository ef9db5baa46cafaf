"""Stored scripts: edited by id, listed by groups, never stored when they do not compile."""

from typing import Any

import pytest

from queryflux.config.problems import ConfigProblems
from queryflux.config.process import ProcessConfig
from queryflux.controlplane.config_service import ConfigService, Rules
from queryflux.controlplane.errors import InUse, NameTaken, NotThere, Refused
from queryflux.controlplane.scripts_service import ScriptLibrary
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.routing.regex import check_regex
from queryflux.scripts.check import ScriptCheck
from queryflux.scripts.limits import Limits
from tests.kit.operators import FILE
from tests.rooms.config.reading import load
from tests.rooms.controlplane.test_config_service import Applied

FIX = "def transform(sql, src, dst):\n    return sql"
ROUTE = "def route(query, ctx):\n    return None"


class Shelf:
    """A service whose edits compile scripts, and its library, over FILE."""

    def __init__(self, check: ScriptCheck | None = None) -> None:
        self.store = MemoryConfigStore()
        self.file = load(FILE).snapshot
        rules = Rules(ProcessConfig(), check_regex, lambda text: None, check or ScriptCheck())
        self.service = ConfigService(self.store, self.file, rules, durable=False, apply=Applied())
        self.kept = ScriptLibrary(self.service)

    async def document(self) -> dict[str, Any]:
        """What is stored, in clear."""
        return (await self.service.current()).clear

    async def add(self, name: str, body: str = FIX, kind: str = "translation_fixup") -> int:
        """The id of a new script."""
        _, record = await self.kept.add({"name": name, "kind": kind, "body": body})
        assert isinstance(record["id"], int)
        return record["id"]


@pytest.fixture
async def shelf() -> Shelf:
    shelf = Shelf()
    await shelf.store.seed(shelf.file)
    return shelf


async def test_a_script_has_an_id_that_edits_keep(shelf: Shelf) -> None:
    first = await shelf.add("one")
    second = await shelf.add("two", ROUTE, "routing")
    assert [it["id"] for it in await shelf.kept.scripts()] == [first, second]
    assert [it["name"] for it in await shelf.kept.scripts("routing")] == ["two"]
    changed = {"name": "one", "description": "what", "kind": "translation_fixup", "body": FIX + "\n"}
    await shelf.kept.put(str(first), changed)
    await shelf.service.put_routing({"routers": [], "routingFallback": "bi"})
    assert await shelf.kept.script(str(first)) == {"id": first, **changed}


async def test_groups_list_scripts_by_id_in_order(shelf: Shelf) -> None:
    one, two = await shelf.add("one"), await shelf.add("two")
    await shelf.service.patch_group("bi", {"translationScriptIds": [two, one]})
    assert (await shelf.service.group("bi"))["translationScriptIds"] == [two, one]
    assert (await shelf.document())["clusterGroups"]["bi"]["translationScripts"] == ["two", "one"]
    outcome, record = await shelf.kept.put(
        str(two), {"name": "renamed", "kind": "translation_fixup", "body": FIX}
    )
    assert record["id"] == two
    assert outcome.shown["clusterGroups"]["bi"]["translationScripts"] == ["renamed", "one"]
    assert (await shelf.service.group("bi"))["translationScriptIds"] == [two, one]
    await shelf.service.put_group("bi", {"members": ["east"]})
    assert (await shelf.service.group("bi"))["translationScriptIds"] == []


async def test_a_script_in_use_is_not_removed(shelf: Shelf) -> None:
    one = await shelf.add("one")
    await shelf.service.patch_group("bi", {"translationScriptIds": [one]})
    with pytest.raises(InUse) as caught:
        await shelf.kept.delete(str(one))
    assert [it.path for it in caught.value.problems] == ["clusterGroups.bi.translationScripts[0]"]
    await shelf.service.patch_group("bi", {"translationScriptIds": []})
    await shelf.kept.delete(str(one))
    assert await shelf.kept.scripts() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def transform(sql, src, dst):\n  x = (\n", "line 2: SyntaxError"),
        ("import nothing_like_it", "line 1: ModuleNotFoundError"),
        (ROUTE, "it defines no function transform"),
    ],
)
async def test_a_script_that_does_not_compile_is_not_stored(shelf: Shelf, body: str, said: str) -> None:
    before = await shelf.store.load()
    with pytest.raises(ConfigProblems) as caught:
        await shelf.add("one", body)
    (problem,) = caught.value.problems
    assert problem.path == "scripts.one.body"
    assert said in problem.message
    assert await shelf.store.load() == before


async def test_what_is_refused(shelf: Shelf) -> None:
    one = await shelf.add("one")
    route = await shelf.add("route", ROUTE, "routing")
    record: dict[str, Any] = {"name": "one", "kind": "translation_fixup", "body": FIX}
    with pytest.raises(NameTaken):
        await shelf.kept.add(record)
    with pytest.raises(NameTaken):
        await shelf.kept.put(str(route), record)
    with pytest.raises(NotThere):
        await shelf.kept.put("99", record)
    with pytest.raises(NotThere):
        await shelf.kept.script("one")
    with pytest.raises(Refused, match="the body is not what this path takes"):
        await shelf.kept.add({**record, "name": " "})
    with pytest.raises(ConfigProblems) as caught:
        await shelf.service.patch_group("bi", {"translationScriptIds": [route]})
    assert "is of kind routing" in caught.value.problems[0].message
    with pytest.raises(Refused) as refused:
        await shelf.service.patch_group("bi", {"translationScriptIds": [one, "one"]})
    assert refused.value.problems[0].path == "translationScriptIds[1]"


async def test_variants_follow_their_cluster(shelf: Shelf) -> None:
    variants = [{"name": "a", "overrides": {"auth": {"password": "v4riant"}}}, {"name": "b"}]
    record = {**await shelf.service.cluster("east"), "variants": variants}
    members = {"members": ["east::a", "files"]}

    def change(current: Any) -> Any:
        clusters = {**current.clear["clusters"]}
        clusters["east"] = {**clusters["east"], "variants": variants}
        groups = {**current.clear["clusterGroups"]}
        groups["bi"] = {**groups["bi"], **members}
        return {**current.clear, "clusters": clusters, "clusterGroups": groups}

    with pytest.raises(ConfigProblems) as caught:
        await shelf.service.put_cluster("east", record)
    assert "east::a or east::b" in caught.value.problems[0].hint
    await shelf.service.edit(change)
    assert "v4riant" not in str(await shelf.service.cluster("east"))
    shown = (await shelf.service.cluster("east"))["variants"]
    await shelf.service.patch_cluster("east", {"variants": shown, "maxRunningQueries": 3})
    assert (await shelf.document())["clusters"]["east"]["variants"] == variants
    await shelf.service.patch_cluster("east", {}, "west")
    assert (await shelf.service.group("bi"))["members"] == ["west::a", "files"]
    await shelf.service.delete_cluster("west")
    assert (await shelf.service.group("bi"))["members"] == ["files"]


async def test_what_cannot_be_compiled_together_is_not_stored() -> None:
    shelf = Shelf(ScriptCheck(Limits(compile_secs=1.5)))
    await shelf.store.seed(shelf.file)
    before = await shelf.store.revision()
    second = "import sys, time; time.sleep(60 * hasattr(sys, 'first')); sys.first = True"
    slow = {"type": "pythonScript", "script": f"{second}\n{ROUTE}"}
    with pytest.raises(ConfigProblems) as caught:
        await shelf.service.put_routing({"routers": [slow, slow], "routingFallback": "bi"})
    (problem,) = caught.value.problems
    assert "all 2 scripts together cannot be compiled" in problem.message
    assert await shelf.store.revision() == before
    await shelf.service.put_routing({"routers": [slow], "routingFallback": "bi"})
