"""Scripts in a configuration: where their text comes from, who may name them, what is said of mistakes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from queryflux.config.candidate import check_document, read_sections
from queryflux.config.loader import load_bytes
from queryflux.config.problems import ConfigProblems
from queryflux.config.process import ProcessConfig
from queryflux.config.routers import PythonRouter
from queryflux.config.scripts import Script
from queryflux.scripts.check import ScriptCheck
from queryflux.scripts.limits import Limits
from tests.rooms.config.reading import SOUND, load, only, problems

ROUTE = "def route(query, ctx): return None"


def fine(text: str) -> None:
    return None


def test_the_file_of_a_script_becomes_its_text(tmp_path: Path) -> None:
    file = tmp_path / "pick.py"
    file.write_text(ROUTE)
    router = f"routers: [{{ type: pythonScript, script: 'not this', scriptFile: {file} }}]"
    config = load(SOUND + router)
    assert config.snapshot.routers == (PythonRouter(script=ROUTE),)


def test_a_script_file_that_is_not_there_is_a_problem_with_its_path(tmp_path: Path) -> None:
    problem = only(SOUND + f"routers: [{{ type: pythonScript, scriptFile: {tmp_path}/none.py }}]")
    assert problem.path == "routers[0].scriptFile"
    assert "No such file" in problem.message
    assert problem.line > 1


def test_a_router_without_a_script_is_a_problem() -> None:
    assert only(SOUND + "routers: [{ type: pythonScript }]").path == "routers[0].script"


def test_sections_of_a_file_carry_the_text_of_scripts(tmp_path: Path) -> None:
    file = tmp_path / "pick.py"
    file.write_text(ROUTE)
    text = f"routers: [{{ type: pythonScript, scriptFile: {file} }}]"
    assert read_sections(text.encode(), {})["routers"] == [{"type": "pythonScript", "script": ROUTE}]


def checked(document: dict[str, Any], check: ScriptCheck | None = None) -> Any:
    clusters = {"clusters": {"duck": {"engine": "duckDb"}}, "clusterGroups": {"pool": {"members": ["duck"]}}}
    scripts = (check,) if check is not None else ()
    return check_document({**clusters, **document}, ProcessConfig(), fine, fine, *scripts).snapshot


def test_what_is_stored_names_no_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("the secret")
    with pytest.raises(ConfigProblems) as caught:
        checked({"routers": [{"type": "pythonScript", "scriptFile": str(file)}]})
    assert [problem.path for problem in caught.value.problems] == ["routers[0].scriptFile"]
    assert "files are not read here" in caught.value.problems[0].message
    assert "the secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        (["nome"], "clusterGroups.pool.translationScripts[0]", "there is no script"),
        (["r"], "clusterGroups.pool.translationScripts[0]", "is of kind routing"),
        (["t", "t"], "clusterGroups.pool.translationScripts[1]", "listed twice"),
    ],
)
def test_a_group_lists_fix_ups_that_exist_once(names: list[str], path: str, message: str) -> None:
    scripts = {
        "t": {"kind": "translation_fixup", "body": "def transform(sql, src, dst): return sql"},
        "r": {"kind": "routing", "body": ROUTE},
    }
    group = {"members": ["duck"], "translationScripts": names}
    with pytest.raises(ConfigProblems) as caught:
        checked({"scripts": scripts, "clusterGroups": {"pool": group}})
    (problem,) = caught.value.problems
    assert (problem.path, message in problem.message) == (path, True)


def test_every_script_that_does_not_compile_is_named_where_it_stands() -> None:
    document = {
        "routers": [
            {"type": "pythonScript", "script": ROUTE},
            {"type": "pythonScript", "script": "\nimport no_such_thing"},
        ],
        "translation": {"pythonScripts": ["def transform(sql, src, dst):\n    return (", "x = 1"]},
        "scripts": {"g": {"kind": "guard", "body": "def route(): pass"}},
    }
    with pytest.raises(ConfigProblems) as caught:
        checked(document, ScriptCheck())
    said = {problem.path: problem.message for problem in caught.value.problems}
    assert list(said) == [
        "routers[1].script",
        "translation.pythonScripts[0]",
        "translation.pythonScripts[1]",
        "scripts.g.body",
    ]
    assert "line 2: ModuleNotFoundError" in said["routers[1].script"]
    assert "line 2: SyntaxError" in said["translation.pythonScripts[0]"]
    assert "no function transform" in said["translation.pythonScripts[1]"]
    assert "no function check" in said["scripts.g.body"]


def test_a_script_that_ends_its_process_does_not_hide_the_others() -> None:
    check = ScriptCheck()
    scripts = [Script("routing", "import os; os._exit(0)"), Script("routing", ROUTE), Script("routing", "x")]
    first, second, third = check(scripts)
    assert "end their process" in first
    assert second == ""
    assert "NameError" in third
    assert check(scripts) == (first, second, third)


def test_scripts_that_compile_alone_and_not_together_are_refused() -> None:
    check = ScriptCheck(Limits(compile_secs=2))
    quick, other = Script("routing", ROUTE), Script("routing", f"import sys; sys.other = True\n{ROUTE}")
    beside = "import sys, time; time.sleep(60 if hasattr(sys, 'other') else 0.8)"
    slow = Script("routing", f"{beside}\n{ROUTE}")
    assert check([other, quick]) == ("", "")
    first, second, third = check([other, slow, quick])
    assert (first, third) == ("", "")
    assert "all 3 scripts together cannot be compiled" in second
    assert "take over 2 s to compile" in second
    assert check([slow]) == ("",)


def test_whoever_edits_is_not_kept_until_the_last_of_many_was_asked(tmp_path: Path) -> None:
    seen = "import time; open({file!r}, 'w'); time.sleep(0.3)\n"
    files = [tmp_path / str(number) for number in range(8)]
    slow = [Script("routing", seen.format(file=str(file)) + ROUTE) for file in files]
    answers = ScriptCheck(Limits(compile_secs=0.4))(slow)
    assert len(answers) == 8
    assert [answer for answer in answers if answer]
    assert files[0].exists()
    assert not files[7].exists()


def test_what_came_of_a_busy_machine_is_asked_again(tmp_path: Path) -> None:
    there = tmp_path / "there"
    once = f"import os, time\nif not os.path.exists({str(there)!r}): time.sleep(9)\n{ROUTE}"
    check = ScriptCheck(Limits(compile_secs=0.5))
    assert "take over 0.5 s" in check([Script("routing", once)])[0]
    there.touch()
    assert check([Script("routing", once)]) == ("",)


def test_a_file_is_held_to_the_check_too() -> None:
    asked: list[Sequence[Script]] = []

    def check(scripts: Sequence[Script]) -> list[str]:
        asked.append(scripts)
        return ["bad"]

    text = SOUND + "translation: { pythonScripts: [x] }"
    with pytest.raises(ConfigProblems) as caught:
        load_bytes(text.encode(), {}, scripts=check)
    assert asked == [[Script("translation_fixup", "x")]]
    assert caught.value.problems[0].path == "translation.pythonScripts[0]"
    assert problems(text) == ()
