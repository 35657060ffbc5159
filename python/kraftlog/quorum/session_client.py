"""The client's side of sessions: proposals that are sent again until their outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from kraftlog.errors import DeadlineError, NodeClosedError, QuorumError, SessionExpiredError, StateMachineError
from kraftlog.quorum.proposals import own_commands
from kraftlog.quorum.session_machine import SessionAnswer, encode_call, encode_close, encode_open

__all__ = ["AsyncSession", "Session"]

# A replica that hears nothing for so long may have another way to a leader.
_ATTEMPT_S: Final = 5.0
_PAUSE_S: Final = 0.05


class _Caller(Protocol):
    """A replica, as far as a session uses it."""

    @property
    def timeout_s(self) -> float:
        """Seconds that a call waits when it is not given a time."""

    async def call(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> Sequence[Any]:
        """Replicate commands; return what ``apply`` returned for each."""


class AsyncSession:
    """Proposes each command until its outcome is known; the quorum applies it once.

    Opened by :meth:`AsyncQuorum.open_session`. Calls may be made at the same time; used with ``async with``, the
    session is closed at the end of the block.

    Args:
        quorum: The replica that proposes.
        session_id: Of the session.

    Attributes:
        quorum: May be set to another replica of the quorum in this process.
        session_id: Offset of the command that opened it.
    """

    def __init__(self, quorum: _Caller, session_id: int) -> None:
        self.quorum = quorum
        self.session_id = session_id
        self._next_sequence = 0
        self._unanswered: set[int] = set()

    @classmethod
    async def open(cls, quorum: _Caller, *, expires_after_s: float, timeout_s: float | None) -> AsyncSession:
        """Open a session; see :meth:`AsyncQuorum.open_session`. One whose answer was lost expires by itself."""
        command = encode_open(int(expires_after_s * 1000))
        (answer,), _ = await _call_until_known(lambda: quorum, [command], timeout_s)
        return cls(quorum, cast("int", answer.value))

    async def call(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> Sequence[Any]:
        """Replicate commands, each of which is applied once; return what ``apply`` returned for each.

        Args:
            commands: At least one command, each of any bytes; they are committed together or not at all.
            timeout_s: Seconds to go on for; ``timeout_s`` of the quorum when None. After a
                :class:`kraftlog.errors.DeadlineError` it is not known whether they are applied, once, or not.

        Raises:
            ValueError: No commands.
            TypeError: A command that is not of bytes.
            SessionExpiredError: The quorum has forgotten the session.
            DeadlineError: The time is over.
            QuorumError: As of :meth:`AsyncQuorum.propose`, but for those whose outcome another attempt decides.
            NodeClosedError: The replica is closed.
        """
        commands = own_commands(commands)
        numbers = range(self._next_sequence, self._next_sequence + len(commands))
        self._next_sequence = numbers.stop
        self._unanswered.update(numbers)
        try:
            first = min(self._unanswered, default=0)
            encoded = [
                encode_call(self.session_id, number, first, command)
                for number, command in zip(numbers, commands, strict=True)
            ]
            answers, attempts = await _call_until_known(lambda: self.quorum, encoded, timeout_s)
        finally:
            # Nobody asks for these again, whatever became of them.
            self._unanswered.difference_update(numbers)
        if any(answer.is_expired for answer in answers):
            raise SessionExpiredError("the session has expired", may_be_committed=attempts > 1)
        return [answer.value for answer in answers]

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Let the quorum forget the session; one that has expired is forgotten already."""
        await _call_until_known(lambda: self.quorum, [encode_close(self.session_id)], timeout_s)

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()


class Session:
    """An :class:`AsyncSession` whose methods may be called from any thread; opened by :meth:`Quorum.open_session`.

    Args:
        session: On the thread of the quorum.
        run: Runs a coroutine there.
    """

    def __init__(self, session: AsyncSession, run: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        self._session = session
        self._run = run

    @property
    def session_id(self) -> int:
        """Offset of the command that opened it."""
        return self._session.session_id

    def call(self, commands: Sequence[bytes], *, timeout_s: float | None = None) -> Sequence[Any]:
        """Replicate commands, each of which is applied once; see :meth:`AsyncSession.call`."""
        answers: Sequence[Any] = self._run(lambda: self._session.call(commands, timeout_s=timeout_s))
        return answers

    def close(self, *, timeout_s: float | None = None) -> None:
        """Let the quorum forget the session."""
        self._run(lambda: self._session.close(timeout_s=timeout_s))

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


async def _call_until_known(
    quorum_of: Callable[[], _Caller], commands: Sequence[bytes], timeout_s: float | None
) -> tuple[Sequence[SessionAnswer], int]:
    """Propose commands until they are committed; return their answers, and how often they were proposed.

    The last answers say what became of them: those of an earlier attempt that were applied are remembered.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + (quorum_of().timeout_s if timeout_s is None else timeout_s)
    attempts = 0
    failure: QuorumError | None = None
    may_be_committed = False
    while True:
        left_s = deadline_s - loop.time()
        if left_s <= 0:
            text = "the time is over" if failure is None else f"the time is over; at last: {failure}"
            raise DeadlineError(text, may_be_committed=may_be_committed) from failure
        attempts += 1
        try:
            answers = await quorum_of().call(commands, timeout_s=min(left_s, _ATTEMPT_S))
        except (StateMachineError, NodeClosedError):
            raise
        except QuorumError as error:
            failure = error
            may_be_committed |= error.may_be_committed
            await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline_s - loop.time())))
            continue
        if not all(isinstance(answer, SessionAnswer) for answer in answers):
            msg = "the state machine of this quorum has no sessions; wrap it in kraftlog.SessionMachine"
            raise TypeError(msg)
        return answers, attempts
