"""What operators see and end of the queries of siblings: asked by their parent, answered by each."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import convert, to_builtins

from queryflux.app.live import (
    MemberChange,
    MemberState,
    OwnWorkers,
    cancel_here,
    change_member,
    member_states,
    running_here,
)
from queryflux.controlplane.live import RunningQuery
from queryflux.model.errors import Unavailable
from queryflux.model.ids import process_tag_of
from queryflux.pipeline.pipeline import QueryPipeline
from queryflux.runtime.clock import Clock
from queryflux.runtime.siblings import Question, SiblingFailed, SiblingGone, Siblings

log = logging.getLogger(__name__)

_RUNNING, _CANCEL = "operator running", "operator cancel"
_MEMBERS, _CHANGE = "operator clusters", "operator change"
CANCEL_SECONDS = 30.0


def answer_operators(siblings: Siblings, pipeline: QueryPipeline, clock: Clock, instance_id: str) -> None:
    """Answer for the queries of this process, which is the instance of that id."""

    async def running(question: Question) -> None:
        await question.head({"queries": to_builtins(running_here(pipeline, clock, instance_id))})

    async def cancel(question: Question) -> None:
        await question.head({"known": await cancel_here(pipeline, question.about["id"])})

    async def members(question: Question) -> None:
        await question.head({"members": to_builtins(member_states(pipeline))})

    async def change(question: Question) -> None:
        change_member(pipeline, convert(question.about, MemberChange))

    siblings.answers(_MEMBERS, members)
    siblings.answers(_CHANGE, change)
    siblings.answers(_RUNNING, running)
    siblings.answers(_CANCEL, cancel)


class WorkersBySiblings(OwnWorkers):
    """The workers of a parent, ``siblings`` once there are any."""

    def __init__(self, siblings: Callable[[], Siblings | None]) -> None:
        self._siblings = siblings

    async def members(self) -> list[MemberState]:
        siblings = self._siblings()
        found: list[MemberState] = []
        if siblings is not None:
            async for about, _ in siblings.ask_all(_MEMBERS, {}):
                found += convert(about["members"], list[MemberState])
        return found

    async def change(self, change: MemberChange) -> None:
        siblings = self._siblings()
        if siblings is None:
            return
        tags = siblings.others()
        asked = (siblings.ask(tag, _CHANGE, to_builtins(change)) for tag in tags)
        outcomes = dict(zip(tags, await asyncio.gather(*asked, return_exceptions=True), strict=True))
        failures = {tag: it for tag, it in outcomes.items() if isinstance(it, BaseException)}
        if others := [it for it in failures.values() if not isinstance(it, SiblingFailed | SiblingGone)]:
            raise others[0]
        silent = [f"{tag} ({it})" for tag, it in failures.items() if isinstance(it, SiblingFailed)]
        if silent:
            raise Unavailable(
                f"{len(silent)} of {len(tags)} workers did not take the change: {', '.join(silent)}",
                hint="the others have it; to ask again is safe",
            )


async def running_there(siblings: Siblings) -> list[RunningQuery]:
    """The queries of all workers, the oldest first."""
    found: list[dict[str, Any]] = []
    async for about, _ in siblings.ask_all(_RUNNING, {}):
        found += about["queries"]
    return sorted(convert(found, list[RunningQuery]), key=lambda query: query.created_at)


async def cancel_there(siblings: Siblings, query_id: str) -> bool:
    """End a query of a worker, by our id or its engine's. False: none of them knows it."""
    named = process_tag_of(query_id)
    for tag in sorted(siblings.others(), key=lambda tag: tag != named):  # one that hangs may not hold this up
        try:
            about, _ = await siblings.ask(tag, _CANCEL, {"id": query_id}, seconds=CANCEL_SECONDS)
        except SiblingGone:
            continue
        except SiblingFailed as error:
            log.warning("a worker does not answer whether it runs %s: %s", query_id, error)
            continue
        if about["known"]:
            return True
    return False
