"""What a parent asks its workers for operators."""

import asyncio
from typing import Any

import pytest

from queryflux.app import siblings as module
from queryflux.app.live import MemberChange
from queryflux.app.siblings import WorkersBySiblings, cancel_there, running_there
from queryflux.controlplane.live import RunningQuery
from queryflux.model.errors import Unavailable
from queryflux.runtime.siblings import Question, Siblings
from tests.kit.siblings import siblings


def query(number: int) -> dict[str, Any]:
    return {
        "id": f"20261130_101500_{number:05}_aaaaa",
        "backend_query_id": None,
        "submitted_by": "ann",
        "group": "main",
        "cluster": "duck",
        "sql_preview": "SELECT 1",
        "state": "executing",
        "frontend_protocol": "PostgresWire",
        "created_at": float(number),
        "elapsed_secs": 1.0,
        "instance_id": "one",
    }


def knows(sibling: Siblings, *ids: str, asked: list[str], hangs: bool = False) -> None:
    async def cancel(question: Question) -> None:
        asked.append(sibling.tag)
        if hangs:
            await asyncio.Event().wait()
        await question.head({"known": question.about["id"] in ids})

    sibling.answers("operator cancel", cancel)


async def test_the_process_that_an_id_names_is_asked_first() -> None:
    ours, theirs = "20261130_101500_00001_zzzzz", "engine-7"
    async with siblings("asker", "aaaaa", "zzzzz") as (parent, first, second):
        asked: list[str] = []
        knows(first, asked=asked, hangs=True)
        knows(second, ours, asked=asked)
        assert await asyncio.wait_for(cancel_there(parent, ours), 5)
        assert asked == ["zzzzz"]
        knows(first, asked=asked)
        assert not await cancel_there(parent, theirs)
        assert sorted(asked[1:]) == ["aaaaa", "zzzzz"]


async def test_one_that_does_not_answer_hides_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCEL_SECONDS", 1.0)
    async with siblings("asker", "aaaaa", "bbbbb", "ccccc") as (parent, *workers):
        asked: list[str] = []
        knows(workers[0], asked=asked, hangs=True)
        knows(workers[1], "engine-7", asked=asked)
        assert await cancel_there(parent, "engine-7")

        async def broken(question: Question) -> None:
            raise RuntimeError

        def runs(*numbers: int) -> Any:
            async def running(question: Question) -> None:
                await question.head({"queries": [query(number) for number in numbers]})

            return running

        workers[0].answers("operator running", broken)
        workers[1].answers("operator running", runs(3, 1))
        workers[2].answers("operator running", runs(2))
        found = await running_there(parent)
        assert [it.created_at for it in found] == [1, 2, 3]
        assert isinstance(found[0], RunningQuery)


async def test_a_change_that_a_worker_did_not_take_is_said_and_the_others_have_it() -> None:
    async with siblings("asker", "aaaaa", "bbbbb") as (parent, first, second):
        taken: list[Any] = []

        async def take(question: Question) -> None:
            taken.append(question.about)

        async def broken(question: Question) -> None:
            raise RuntimeError

        first.answers("operator change", broken)
        second.answers("operator change", take)
        workers = WorkersBySiblings(lambda: parent)
        with pytest.raises(Unavailable, match="1 of 2 workers did not take the change: aaaaa"):
            await workers.change(MemberChange("main", "duck", False, None))
        assert [it["cluster"] for it in taken] == ["duck"]
        first.answers("operator change", take)
        await workers.change(MemberChange("main", "duck", False, None))
        assert len(taken) == 3
