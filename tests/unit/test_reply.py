"""Replies, and the calls of a turn."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.reply import Reply, TurnCalls


def test_a_listener_hears_of_a_reply_in_a_later_turn() -> None:
    async def scenario() -> None:
        turn = TurnCalls()
        heard: list[Reply] = []
        before, after, failed = Reply(turn), Reply(turn), Reply(turn)
        before.add_done_callback(heard.append)
        before.set_result(5)
        after.set_result(6)
        after.add_done_callback(heard.append)
        failed.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        failed.add_done_callback(heard.append)
        assert before.done()
        assert not before.cancel()
        assert not before.cancelled()
        assert heard == [], "never inside the call that ends it"
        await asyncio.sleep(0)
        assert heard == [before, after, failed]
        assert (before.result(), after.result(), before.exception()) == (5, 6, None)
        with pytest.raises(KafkaError):
            failed.result()

    asyncio.run(scenario())


def test_a_call_that_fails_does_not_take_others_with_it() -> None:
    async def scenario() -> None:
        turn = TurnCalls()
        reported: list[object] = []
        called: list[int] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def fail() -> None:
            raise ZeroDivisionError

        def add_another() -> None:
            called.append(1)
            turn.add(lambda: called.append(3))

        for call in (add_another, fail, lambda: called.append(2)):
            turn.add(call)
        await asyncio.sleep(0)
        assert called == [1], "the rest has a turn of its own"
        await asyncio.sleep(0)
        assert called == [1, 2, 3]
        assert [type(error) for error in reported] == [ZeroDivisionError]

    asyncio.run(scenario())
