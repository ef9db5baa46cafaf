"""Processes that ask each other over Unix sockets: who may ask, what arrives, and who has gone."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator

import pytest
import uvloop

from queryflux.runtime import siblings as module
from queryflux.runtime.bytestream import ByteStream, connect_unix
from queryflux.runtime.siblings import MAX_IDLE, Frames, Question, SiblingFailed, SiblingGone, Siblings
from tests.kit.siblings import siblings


@contextlib.asynccontextmanager
async def family(*tags: str) -> AsyncIterator[list[Siblings]]:
    """Siblings of which no task is left."""
    async with siblings(*tags) as made:
        yield made
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_question_is_answered_with_head_and_body() -> None:
    async with family("one", "two") as (one, two):

        async def echo(question: Question) -> None:
            await question.head({"had": question.about["n"]})
            await question.part(question.body)
            await question.part(b"!")

        two.answers("echo", echo)
        for n in range(3):
            assert await one.ask("two", "echo", {"n": n}, b"x" * n) == ({"had": n}, b"x" * n + b"!")
        assert one.others() == ["two"]
        assert two.others() == ["one"]


async def test_an_answer_without_words_is_an_answer_and_what_is_unknown_says_so() -> None:
    async with family("one", "two") as (one, two):

        async def nothing(question: Question) -> None:
            pass

        async def fault(question: Question) -> None:
            raise ValueError("a fault")

        two.answers("nothing", nothing)
        two.answers("fault", fault)
        assert await one.ask("two", "nothing", {}) == ({}, b"")
        with pytest.raises(SiblingFailed, match="does not know such questions"):
            await one.ask("two", "other", {})
        with pytest.raises(SiblingFailed, match="internal error"):
            await one.ask("two", "fault", {})
        assert await one.ask("two", "nothing", {}) == ({}, b"")


async def test_who_has_gone_is_noticed_at_once() -> None:
    async with family("one", "two") as (one, two):
        asked = asyncio.Event()

        async def never(question: Question) -> None:
            asked.set()
            await asyncio.Event().wait()

        async def nothing(question: Question) -> None:
            pass

        two.answers("never", never)
        two.answers("nothing", nothing)
        await one.ask("two", "nothing", {})  # leaves a connection that waits for use
        waiting = asyncio.ensure_future(one.ask("two", "never", {}))
        await asked.wait()
        await two.close()
        with pytest.raises(SiblingGone):
            await waiting
        with pytest.raises(SiblingGone):
            await one.ask("two", "nothing", {})
        with pytest.raises(SiblingGone):
            await one.ask("nobody", "nothing", {})


async def test_nothing_is_kept_of_processes_that_have_gone() -> None:
    async with family("one", "two") as (one, two):

        async def nothing(question: Question) -> None:
            pass

        two.answers("nothing", nothing)
        await asyncio.gather(*(one.ask("two", "nothing", {}) for _ in range(40)))
        assert 0 < len(one._idle["two"]) <= MAX_IDLE
        await two.close()
        async with asyncio.timeout(5):
            while one._idle:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_socket_that_a_killed_process_left_behind_is_nobody() -> None:
    async with family("one", "two") as (one, two):
        assert two._server is not None
        two._server.close()  # the file stays, as after kill -9
        await two._server.wait_closed()
        two.path.touch()
        with pytest.raises(SiblingGone):
            await one.ask("two", "nothing", {})
        assert [told async for told in one.ask_all("nothing", {})] == []


async def test_who_does_not_wait_any_more_ends_the_work() -> None:
    async with family("one", "two") as (one, two):
        begun, ended = asyncio.Event(), asyncio.Event()

        async def long(question: Question) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        two.answers("long", long)
        waiting = asyncio.ensure_future(one.ask("two", "long", {}))
        await begun.wait()
        waiting.cancel()
        await asyncio.wait_for(ended.wait(), 5)
        with pytest.raises(SiblingFailed, match="no answer within"):
            await one.ask("two", "long", {}, seconds=0.05)


async def test_parts_are_not_sent_before_the_ones_before_were_taken() -> None:
    async with family("one", "two") as (one, two):
        sent = 0

        async def much(question: Question) -> None:
            nonlocal sent
            await question.head({})
            for _ in range(200):
                await question.part(b"x" * (1 << 20))
                sent += 1
            await question.end({"all": True})

        two.answers("much", much)
        told = await one.open("two", "much", {})
        assert await told.part() is not None
        await asyncio.sleep(0.2)
        assert sent < 10
        taken = 1
        while await told.part() is not None:
            taken += 1
        assert taken == 200
        assert told.ending == {"all": True}


async def test_nobody_is_answered_without_the_secret() -> None:
    async with family("one", "two") as (_, two):

        async def nothing(question: Question) -> None:
            raise AssertionError("it was asked")

        two.answers("nothing", nothing)
        stranger = Siblings(two.path.parent, "strange", b"a guess")
        with pytest.raises(SiblingGone):
            await stranger.ask("two", "nothing", {})
        await stranger.close()
        frames = Frames(await connect_unix(str(two.path)))
        frames.write(b"S", b"x" * 1000)
        with pytest.raises(ConnectionError):
            await frames.read()
        frames.stream.abort()


def test_many_at_once_find_a_process_that_is_busy() -> None:
    async def ask_all() -> None:
        async with siblings("one", "two") as (one, two):

            async def number(question: Question) -> None:
                await question.head(question.about)

            two.answers("number", number)
            told = await asyncio.gather(*(one.ask("two", "number", {"n": n}) for n in range(200)))
            assert [about["n"] for about, _ in told] == list(range(200))

    uvloop.run(ask_all())  # as in production: asyncio's own loop does not notice that it has to wait


async def test_one_that_cannot_be_reached_just_now_has_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = [BlockingIOError(errno.EAGAIN, "try again"), BlockingIOError(errno.EAGAIN, "try again")]

    async def connect(path: str, *, timeout: float) -> ByteStream:
        if crowded:
            raise crowded.pop()
        return await connect_unix(path, timeout=timeout)

    async def no_more_files(path: str, *, timeout: float) -> ByteStream:
        raise OSError(errno.EMFILE, "Too many open files")

    async with family("one", "two") as (one, two):

        async def nothing(question: Question) -> None:
            pass

        two.answers("nothing", nothing)
        monkeypatch.setattr(module, "connect_unix", connect)
        assert await one.ask("two", "nothing", {}) == ({}, b"")
        assert not crowded
        one._idle.pop("two")[0].stream.abort()
        monkeypatch.setattr(module, "connect_unix", no_more_files)
        with pytest.raises(SiblingFailed, match="Too many open files"):
            await one.ask("two", "nothing", {})
        crowded += [BlockingIOError(errno.EAGAIN, "try again")] * 1000
        monkeypatch.setattr(module, "connect_unix", connect)
        monkeypatch.setattr(module, "CONNECT_SECONDS", 0.1)
        with pytest.raises(SiblingFailed, match="accepts nothing within"):
            await one.ask("two", "nothing", {})
        assert not one._idle
