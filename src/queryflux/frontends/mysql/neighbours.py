"""Connections at the other processes that clients reach by the same port: KILL and SHOW PROCESSLIST.

A client connects anew for a KILL, and may land anywhere.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING

from queryflux.frontends.mysql.answers import Process
from queryflux.frontends.mysql.numbers import is_from
from queryflux.runtime.siblings import Question, SiblingFailed, SiblingGone, Siblings
from queryflux.wire.mysql.errors import UNKNOWN_THREAD, ServerError

if TYPE_CHECKING:
    from queryflux.frontends.mysql.door import MysqlDoor

_KILL = "mysql kill"
_PROCESSES = "mysql processes"
_UNREACHABLE = 1105


class Neighbours:
    """The MySQL doors of the siblings."""

    def __init__(self, door: "MysqlDoor", siblings: Siblings) -> None:
        self._door = door
        self._siblings = siblings
        siblings.answers(_KILL, self._answer_kill)
        siblings.answers(_PROCESSES, self._answer_processes)

    async def kill(self, number: int, user: str, *, query_only: bool) -> None:
        """Have it done by the process that gave the number. Raises ServerError: 1094 when that has gone."""
        about = {"number": number, "user": user, "query_only": query_only}
        for tag in self._siblings.others():
            if not is_from(tag, number):
                continue
            try:
                told, _ = await self._siblings.ask(tag, _KILL, about)
            except SiblingGone:
                continue
            except SiblingFailed as error:
                text = f"the process of thread {number} does not answer: {error}"
                raise ServerError(_UNREACHABLE, text, hint="try again") from None
            if "error" in told:
                raise ServerError(told["error"], told["message"])
            return
        raise ServerError(UNKNOWN_THREAD, f"Unknown thread id: {number}")

    async def _answer_kill(self, question: Question) -> None:
        about = question.about
        try:
            self._door.kill_here(about["number"], about["user"], query_only=about["query_only"])
        except ServerError as error:
            await question.head({"error": error.number, "message": error.message})

    async def processes(self, user: str) -> list[Process]:
        """The connections of a user at all siblings."""
        found = []
        async for told, _ in self._siblings.ask_all(_PROCESSES, {"user": user}):
            found += [Process(**item) for item in told["processes"]]
        return found

    async def _answer_processes(self, question: Question) -> None:
        processes = self._door.processes_here(question.about["user"])
        await question.head({"processes": [asdict(item) for item in processes]})
