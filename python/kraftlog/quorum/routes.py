"""From a call to the leader, and from the leader's answer to this replica's log; repeated while nothing was done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from kraftlog import host
from kraftlog.errors import (
    DeadlineError,
    ErrorCode,
    KafkaError,
    KraftlogError,
    NodeClosedError,
    NotLeaderError,
    QuorumError,
    TooManyCallsError,
)
from kraftlog.ordered_set import OrderedSet
from kraftlog.quorum.leader_link import LeaderLink
from kraftlog.quorum.proposals import Applied, Group, Proposal, own_commands
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.raft.voter_set import Endpoint, find_endpoint
from kraftlog.runtime.metadata.quorum_info import QuorumInfo
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.wire.struct import Message

__all__ = ["Routes"]

_RETRY_PAUSE_S = 0.02
# Refusals after which the leader may be another one: nothing was done.
_ASK_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class _NothingDoneError(Exception):
    """Nothing was proposed: it may be tried again."""


def _outcome(error: KraftlogError) -> Exception:
    """What the callers of a group are told that the leader did not take."""
    if not isinstance(error, KafkaError):
        return error
    if error.code == ErrorCode.REQUEST_TIMED_OUT:
        return DeadlineError("the leader had no room for the commands in time")
    return _NothingDoneError() if error.code in _ASK_AGAIN else error


class Routes:
    """Takes calls to the leader, wherever that is. All methods are called on the loop.

    Args:
        replica: This node's replica, its log set.
        client_id: Of requests to the leader.
        request_timeout_s: A leader that does not answer a question for so long may have a successor.
        default_timeout_s: Of calls that are not given one.
        max_waiting_calls: More are refused.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
    """

    def __init__(
        self,
        replica: QuorumReplica,
        *,
        client_id: str,
        request_timeout_s: float,
        default_timeout_s: float,
        max_waiting_calls: int,
        security: SecurityOf,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._replica = replica
        self._log = replica.log
        self._request_timeout_s = request_timeout_s
        self.default_timeout_s = default_timeout_s
        self._max_waiting_calls = max_waiting_calls
        self._waiting_call_count = 0
        # When the last question for a read offset that has an answer was asked, and the answer.
        self._known_read_offset = (float("-inf"), 0)
        self._link = LeaderLink(self._loop, client_id=client_id, connect_timeout_s=request_timeout_s, security=security)
        self._barriers: list[tuple[asyncio.Future[int], float]] = []
        self._outbox: list[Proposal] = []
        self._forwarding_bytes = 0
        self._room = asyncio.Event()
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._is_open = True

    def refuse(self) -> None:
        """Refuse new calls; calls that already wait fail when the replica ends."""
        self._is_open = False

    def close(self) -> None:
        """Close the connection to the leader, once the replica has ended."""
        self._link.close()
        for task in list(self._tasks):
            task.cancel()

    async def propose(self, commands: Sequence[bytes], timeout_s: float | None, *, forward: bool) -> Applied:
        """Replicate commands, here or by the leader; see ``AsyncQuorum.propose``."""
        commands = own_commands(commands)
        self.check_running()
        deadline_s = self._loop.time() + (self.default_timeout_s if timeout_s is None else timeout_s)
        self._begin_call()
        try:
            while True:
                if self._log.is_leader:
                    try:
                        return await self._replica.submit(commands, deadline_s).future
                    except NotLeaderError:
                        if not forward:
                            raise
                        continue
                if not forward:
                    raise self._replica.not_leader()
                applied = await self._forward(commands, deadline_s)
                if applied is not None:
                    return applied
        finally:
            self._waiting_call_count -= 1

    def _begin_call(self) -> None:
        if self._waiting_call_count >= self._max_waiting_calls:
            raise TooManyCallsError(f"{self._waiting_call_count} calls wait already")
        self._waiting_call_count += 1

    async def _forward(self, commands: Sequence[bytes], deadline_s: float) -> Applied | None:
        """Have the leader propose; None when nothing was proposed and it is to be tried again."""
        replica = self._replica
        proposal = replica.new_proposal(commands, deadline_s)
        replica.deadlines.note(deadline_s)
        while self._forwarding_bytes and self._forwarding_bytes + proposal.size_bytes > replica.max_pending_bytes:
            await self._wait_for(self._room, deadline_s, "the leader took too few commands in time")
        if self._leader_endpoint() is None and not self._log.is_leader:
            await self._wait_for(replica.leader_changed, deadline_s, "no leader was found in time")
            return None
        self._forwarding_bytes += proposal.size_bytes
        replica.forwarding.add(proposal)
        self._outbox.append(proposal)
        if len(self._outbox) == 1:
            self._loop.call_soon(self._send_outbox)
        try:
            return await proposal.future
        except _NothingDoneError:
            await self._pause(deadline_s)
            return None
        finally:
            replica.forwarding.discard(proposal)
            self._forwarding_bytes -= proposal.size_bytes
            self._room.set()
            self._room.clear()

    def _leader_endpoint(self) -> Endpoint | None:
        raft = self._log.raft
        return find_endpoint(raft.leader_endpoints, raft.config.listener_name)

    def _send_outbox(self) -> None:
        """What was handed over in this turn of the loop travels in as few batches as it fits into."""
        waiting, self._outbox = self._outbox, []
        group = Group()
        for proposal in waiting:
            if group.proposals and group.size_bytes + proposal.size_bytes > self._replica.batch_limit_bytes:
                self._start(self._send(group))
                group = Group()
            group.add(proposal)
        self._start(self._send(group))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, group: Group) -> None:
        """Hand a group to the leader; where each proposal was appended is watched in this replica's log."""
        watched = self._replica.watched
        token = watched.begin(self._log.applied_end_offset)
        try:
            endpoint = self._leader_endpoint()
            if endpoint is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            connection = await self._link.connect(endpoint)
            # Who was told meanwhile that nothing was proposed has to be right for good.
            group = group.waiting()
            if not group.proposals:
                return
            for proposal in group.proposals:
                proposal.is_proposed = True
            timeout_s = max(proposal.deadline_s for proposal in group.proposals) - self._loop.time()
            base_offset, epoch = await self._link.propose(connection, group.commands, timeout_s)
            for first_offset, proposal in group.each(base_offset):
                watched.watch(proposal, first_offset, epoch, self._log.applied_end_offset)
        except KraftlogError as error:
            for proposal in group.proposals:
                proposal.fail(_outcome(error))
        finally:
            watched.end(token)

    async def _wait_for(self, event: asyncio.Event, deadline_s: float, reason: str) -> None:
        self.check_running()
        try:
            async with asyncio.timeout_at(deadline_s):
                await event.wait()
        except TimeoutError:
            raise DeadlineError(reason) from None
        self.check_running()

    async def _pause(self, deadline_s: float) -> None:
        """The leader could not be asked: give it, or this replica's knowledge, a moment."""
        self.check_running()
        if self._loop.time() + _RETRY_PAUSE_S >= deadline_s:
            raise DeadlineError("no leader took the request in time")
        await asyncio.sleep(_RETRY_PAUSE_S * (0.5 + host.random_bits(16) / 2**16))
        self.check_running()

    def check_running(self) -> None:
        """Raise unless calls can be made.

        Raises:
            NodeClosedError: The quorum is closed, or this replica failed.
            StateMachineError: The state machine raised.
        """
        if not self._is_open or self._log.failure is not None:
            raise self._replica.closed_error()

    async def read_barrier(self, timeout_s: float | None, max_staleness_s: float) -> int:
        """Wait until what was committed before this call is applied; return what is (exclusive).

        Args:
            timeout_s: Seconds to wait.
            max_staleness_s: What was committed within so many seconds before may be missing.
        """
        self.check_running()
        now_s = self._loop.time()
        asked_s, end_offset = self._known_read_offset
        if now_s - asked_s <= max_staleness_s and self._log.applied_end_offset >= end_offset:
            return self._log.applied_end_offset
        deadline_s = now_s + (self.default_timeout_s if timeout_s is None else timeout_s)
        self._begin_call()
        try:
            async with asyncio.timeout_at(deadline_s):
                end_offset = await self._shared_read_offset(deadline_s)
                await self._log.wait_for_offset(end_offset - 1)
        except TimeoutError as error:
            if isinstance(error, QuorumError):
                raise
            raise DeadlineError("a majority, or the leader, did not answer in time") from None
        finally:
            self._waiting_call_count -= 1
        return end_offset

    async def _shared_read_offset(self, deadline_s: float) -> int:
        """One question for all that ask in this turn of the loop."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._barriers.append((future, deadline_s))
        if len(self._barriers) == 1:
            self._loop.call_soon(self._ask_read_offset)
        return await future

    def _ask_read_offset(self) -> None:
        asked, self._barriers = self._barriers, []
        waiting, asked_s = [future for future, _ in asked], self._loop.time()
        # The one with the most time: the others stop waiting by themselves.
        task = self._loop.create_task(self._find_read_offset(max(deadline_s for _, deadline_s in asked)))

        def finish(task: asyncio.Task[int]) -> None:
            error = NodeClosedError("the quorum was closed") if task.cancelled() else task.exception()
            if error is None:
                self._known_read_offset = max(self._known_read_offset, (asked_s, task.result()))
            for future in waiting:
                if future.done():
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(task.result())

        task.add_done_callback(finish)

    async def _find_read_offset(self, deadline_s: float) -> int:
        while True:
            self.check_running()
            endpoint = self._leader_endpoint()
            try:
                if self._log.is_leader:
                    async with asyncio.timeout_at(deadline_s):
                        return await self.read_offset()
                if endpoint is None:
                    await self._wait_for(self._replica.leader_changed, deadline_s, "no leader was found in time")
                    continue
                # A leader that is not heard of for so long may have a successor.
                attempt_s = min(deadline_s, self._loop.time() + self._request_timeout_s)
                async with asyncio.timeout_at(attempt_s):
                    return await self._link.read_offset(endpoint)
            except TimeoutError:
                if self._loop.time() >= deadline_s:
                    raise
                self._link.close()
            except KafkaError as error:
                if error.code not in _ASK_AGAIN:
                    raise
                await self._pause(deadline_s)

    async def read_offset(self) -> int:
        """On the leader: what has to be applied before a linearizable read (exclusive), also for another replica.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        while not self._replica.is_claimed:
            if not self._log.is_leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await self._replica.leader_changed.wait()
        await self._log.confirm_leadership()
        high_watermark = self._log.raft.high_watermark
        if not self._log.is_leader or high_watermark is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return high_watermark

    async def ask_leader(
        self,
        request: Message,
        locally: Callable[[], Awaitable[Any]],
        timeout_s: float | None,
        error_of: Callable[[Any], KafkaError | None],
        *,
        done_code: int | None = None,
    ) -> Any:
        """Have the leader answer.

        Args:
            request: What to ask another replica.
            locally: What to do where this replica leads.
            timeout_s: How long to wait.
            error_of: The error in an answer.
            done_code: The error that, of a question asked again, says that it was done the first time.
        """
        self.check_running()
        is_repeated = False
        deadline_s = self._loop.time() + (self.default_timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    response = await self._ask_once(request, locally)
            except TimeoutError:
                raise DeadlineError("the leader did not answer in time", may_be_committed=True) from None
            except KafkaError as error:
                refused = error
            else:
                if response is None:
                    await self._wait_for(self._replica.leader_changed, deadline_s, "no leader was found in time")
                    continue
                error_or_none = None if isinstance(response, QuorumInfo) else error_of(response)
                if error_or_none is None:
                    return response
                refused = error_or_none
            if is_repeated and refused.code == done_code:
                return None
            # A voter change that another one is in the way of, or whose replica still lags, may work in a moment.
            is_too_early = done_code is not None and refused.code == ErrorCode.REQUEST_TIMED_OUT
            if is_too_early and self._loop.time() + 2 * _RETRY_PAUSE_S >= deadline_s:
                raise refused
            if refused.code not in _ASK_AGAIN and not is_too_early:
                raise refused
            is_repeated = True
            await self._pause(deadline_s)

    async def _ask_once(self, request: Message, locally: Callable[[], Awaitable[Any]]) -> Any:
        if self._log.is_leader:
            return await locally()
        endpoint = self._leader_endpoint()
        if endpoint is None:
            return None
        # A connection of its own: a change of the voters may take long, and its answer must not be in the way.
        connection = await self._link.open(endpoint)
        try:
            return await connection.request(request)
        finally:
            connection.close()
