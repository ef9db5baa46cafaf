"""Whether scripts compile, asked by whoever checks a configuration before it is stored or used: on a thread,
with a child process that ends at once."""

import json
import logging
import subprocess
import time
from collections.abc import Sequence

from queryflux.config.scripts import Script
from queryflux.scripts.limits import COMMAND, ENVIRONMENT, LENGTH, Limits, Text, first_message, said

log = logging.getLogger(__name__)

START_SECS = 10.0
"""Until a child that is in good health has started, on a machine with too much to do."""

_ALONE = 3
"""How often the time for all of them may be spent on asking one by one."""


class ScriptCheck:
    """Remembers what it was asked last: one edit checks the same scripts several times."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._last: tuple[tuple[Script, ...], tuple[str, ...]] = ((), ())

    def __call__(self, scripts: Sequence[Script]) -> tuple[str, ...]:
        """For each script what is wrong with it; empty: nothing. Blocks while they are compiled."""
        asked = tuple(scripts)
        known, answers = self._last
        if asked == known:
            return answers
        try:
            answers = self._ask(asked)
        except _NoReply as failure:
            return self._one_by_one(asked, str(failure))  # not remembered: the machine may have been busy
        self._last = (asked, answers)
        return answers

    def _one_by_one(self, scripts: tuple[Script, ...], together: str) -> tuple[str, ...]:
        """Each by itself, to find those at fault, as long as whoever edits may wait. They are used in one
        process: when none is at fault alone all of them are, which is said where most of the time went."""
        if len(scripts) == 1:
            return (together,)
        answers: list[str] = []
        seconds: list[float] = []
        until = time.monotonic() + _ALONE * self._limits.compile_secs
        for script in scripts:
            began = time.monotonic()
            if began > until:
                break
            try:
                answers += self._ask((script,))
            except _NoReply as failure:
                answers.append(str(failure))
            seconds.append(time.monotonic() - began)
        if not any(answers):
            slowest = seconds.index(max(seconds))
            answers[slowest] = f"all {len(scripts)} scripts together cannot be compiled: {together}"
        return (*answers, *("" for _ in scripts[len(answers) :]))

    def _ask(self, scripts: tuple[Script, ...]) -> tuple[str, ...]:
        """What a child process says of them. Raises _NoReply, which says why it says nothing."""
        texts = [Text(f"script {number}", script) for number, script in enumerate(scripts)]
        try:
            run = subprocess.run(
                COMMAND,
                input=first_message(texts, self._limits),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=ENVIRONMENT,
                timeout=self._limits.compile_secs + START_SECS,
                start_new_session=True,
                check=False,
            )
            (size,) = LENGTH.unpack_from(run.stdout)
            reply = json.loads(run.stdout[LENGTH.size : LENGTH.size + size])
            return tuple("" if problem is None else said(problem) for problem in reply["problems"])
        except subprocess.TimeoutExpired:
            raise _NoReply("compiling the scripts never ended") from None
        except Exception as error:  # no reply, or half of one: the child has ended
            log.debug("no reply about scripts: %s", error)
            seconds = self._limits.compile_secs
            raise _NoReply(f"the scripts end their process, or take over {seconds:g} s to compile") from None


class _NoReply(Exception):
    """Nothing was said about any of the scripts; the message says why."""
