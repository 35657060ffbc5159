"""The active controller, which a node has while it leads the metadata quorum.

Operations run one after the other on the loop, in turns of a few milliseconds if they write thousands of records. What
they write is proposed at once and flushed on a thread of its own. Their futures complete when the high watermark has
passed their records and the listeners of the image were told.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kraftlog import host
from kraftlog.controller import ControllerConfig, ControllerCore, ControllerResult, MetadataImage
from kraftlog.controller.image_changes import ImageChange
from kraftlog.controller.operations import operation_of
from kraftlog.controller.steps import Steps, finish_steps
from kraftlog.controller.topic_control import Charge
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, NodeClosedError
from kraftlog.runtime.metadata.broker_watch import BrokerWatch
from kraftlog.runtime.metadata.metadata_metrics import MetadataMetrics
from kraftlog.runtime.metadata.operation_queue import Operation, OperationQueue, SubmittedOperation
from kraftlog.runtime.metadata.periodic_elections import PeriodicElections
from kraftlog.runtime.metadata.record_batches import PreparedResult, prepare
from kraftlog.runtime.metadata.settings import MetadataSettings
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.runtime.raft.step_run import TURN_NS, StepRun
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.transport.exchange import PeerLoss
from kraftlog.types import Epoch, Offset
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.struct import Message

__all__ = ["ActiveController", "CommittedAnswer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_Outcome = ControllerResult[Any] | Steps[ControllerResult[Any]]


@dataclass(slots=True, eq=False)
class _Running:
    """An operation that has been begun."""

    entry: SubmittedOperation
    core: ControllerCore
    started_ns: int
    run: StepRun[PreparedResult]


@dataclass(slots=True)
class CommittedAnswer:
    """What an operation wrote, prepared for the image, and its answer once that is committed."""

    changes: Sequence[ImageChange] = ()
    future: asyncio.Future[Any] | None = None
    response: object = None


class ActiveController:
    """Runs the operations of ``ControllerCore`` while this node leads, and refuses them with NOT_CONTROLLER otherwise.

    All methods are called on the loop.

    Args:
        settings: Of the quorum.
        image: Gives what is committed.
        metrics: Told of operations and timeouts.
        loop: The running loop.
    """

    def __init__(
        self,
        settings: MetadataSettings,
        image: Callable[[], MetadataImage],
        metrics: MetadataMetrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._image = image
        self._metrics = metrics
        self._loop = loop
        self.operations = OperationQueue(loop, self._turn, metrics.on_operation_timed_out)
        self._log: ReplicatedLog[CommittedAnswer] | None = None
        self._core: ControllerCore | None = None
        self._running: _Running | None = None
        self._refusal: KraftlogError | None = NodeClosedError("the node was stopped")
        self._session_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._elections = PeriodicElections(settings, loop, self.submit)
        self._watch = BrokerWatch(settings.node_id, loop, image, self._fence_dead_broker)

    @property
    def next_offset(self) -> int | None:
        """End of what this controller has proposed (exclusive); None while it is not active."""
        return None if self._core is None else self._core.next_offset

    # Life

    def open(self, log: ReplicatedLog[CommittedAnswer]) -> None:
        """Take operations; ``log`` is about to be started."""
        self._log = log
        self._refusal = None

    def start_timers(self) -> None:
        """The log was started."""
        self._arm_idle_timer()

    def begin(self) -> None:
        """The image has everything from before this node's epoch: be the active controller."""
        log = self._opened
        image = self._image()
        self._core = core = self._new_core(log, image.copy())
        directory: Path = self._settings.metadata_log_dir
        bootstrap = read_bootstrap(directory).records if core.image.is_empty else ()
        result = core.activate(bootstrap, log.driver.now_ms())
        self._propose(finish_steps(self._prepare(result, core)), self._loop.create_future())
        self._arm_session_timer()
        self._elections.begin()
        self._watch.begin()
        self.operations.schedule_turn()

    def end(self, lost: Sequence[Proposed[CommittedAnswer]]) -> None:
        """This node no longer leads, or not yet.

        What was proposed may still be committed by the next leader, perhaps this node: only the answers are lost.
        """
        self.suspend()
        error = self._refusal or KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no longer the leader.")
        self.fail_answers(lost, error)
        self._fail_waiting(error)

    def suspend(self) -> None:
        """No longer be the active controller; what waits stays until a leader is known."""
        self._core = None
        self._elections.end()
        self._watch.end()

    def refuse(self, error: KraftlogError) -> None:
        """Take no more operations; those that have been proposed still complete."""
        self._refusal = error
        self._elections.end()
        self._watch.end()
        for timer in (self._idle_timer, self._session_timer):
            if timer is not None:
                timer.cancel()

    def fail(self, error: KraftlogError) -> None:
        """End every operation, begun or not, with ``error``."""
        self.refuse(error)
        self._fail_waiting(error)

    def _new_core(self, log: ReplicatedLog[CommittedAnswer], image: MetadataImage) -> ControllerCore:
        settings = self._settings
        config = ControllerConfig(
            cluster_id=settings.cluster_id,
            local_node_id=settings.node_id,
            static_broker_configs=settings.properties,
            broker_session_timeout_ms=settings.broker_session_timeout_ms,
            kraft_version=lambda: log.raft.kraft_version,
            raise_kraft_version=lambda level, is_dry_run: log.raft.update_kraft_version(
                level, log.driver.now_ms(), is_dry_run=is_dry_run
            ),
        )
        return ControllerCore(config, image, rng=random.Random(host.random_bits(64)))

    @property
    def _opened(self) -> ReplicatedLog[CommittedAnswer]:
        if self._log is None:
            raise NodeClosedError("the metadata log is not open")
        return self._log

    # Operations

    def submit(self, operation: Operation[T], *, timeout_s: float | None = None) -> asyncio.Future[T]:
        """Run ``operation(core, now_ms)``; the future has its response once its records are committed.

        Args:
            operation: Told the monotonic clock.
            timeout_s: How long it may wait until it is begun; as long as it takes when None.

        The future fails with what the operation raises, with UNKNOWN_SERVER_ERROR for anything but a KraftlogError,
        with NOT_CONTROLLER where this node does not lead, with REQUEST_TIMED_OUT, or with NodeClosedError.
        """
        return self.operations.submit(operation, timeout_s=timeout_s)

    def submit_request(
        self, request: Message, *, timeout_s: float | None = None, charge: Charge | None = None
    ) -> asyncio.Future[Any]:
        """Run the operation that ``request`` asks for; the future has the response once its records are committed.

        Args:
            request: One that ``controller.operations`` has.
            timeout_s: How long it may wait until it is begun. When None as long as it takes, for a heartbeat at most
                half the time in which a broker sends its next one.
            charge: Counts the partitions that the request creates or deletes; None if nobody does.

        If the response has a place for errors at each topic or resource, it carries those of the whole request there.
        NOT_CONTROLLER fails the future in any case: a node that forwards requests then asks the next controller.

        Raises:
            TypeError: The controller does not serve such requests.
        """
        operation = operation_of(request)
        is_heartbeat = type(request) is BrokerHeartbeatRequest
        if timeout_s is None and is_heartbeat:
            timeout_s = self._settings.broker_heartbeat_interval_ms / 2000
        refuse = None if operation.refuse is None else partial(operation.refuse, request)
        begin_charged = operation.begin_charged

        def begin(core: ControllerCore, now_ms: int) -> _Outcome:
            if charge is not None and begin_charged is not None:
                return begin_charged(core, request, charge)
            return operation.begin(core, request, now_ms)

        future: asyncio.Future[Any] = self.operations.submit(begin, timeout_s=timeout_s, refuse=refuse)
        if isinstance(request, BrokerHeartbeatRequest):
            if self._core is not None:
                self._core.note_contact(request, self._opened.driver.now_ms())
            future.add_done_callback(self._count_heartbeat)
        return future

    def note_connection(self, request: BrokerHeartbeatRequest, loss: PeerLoss) -> None:
        """A heartbeat came over the connection whose end ``loss`` is; counts only for the registered broker epoch."""
        broker = self._image().cluster.brokers.get(request.broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            self._watch.heard(request.broker_id, loss)

    def _fence_dead_broker(self, broker_id: int, broker_epoch: int) -> asyncio.Future[bool]:
        return self.submit(lambda core, _: core.fence_dead_broker(broker_id, broker_epoch))

    def _count_heartbeat(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, KafkaError) and error.code == ErrorCode.REQUEST_TIMED_OUT:
            self._metrics.on_heartbeat_timed_out()

    def _turn(self) -> None:
        """Go on with what has been begun and submitted by now, each operation as an event of its own, for some ms.

        An operation stays in the queue until it is run: the driver delays events while it writes the election state,
        and drops them when the replica ends. The rest follows in the next turn of the loop.
        """
        end_ns = host.monotonic_ns() + TURN_NS
        if self._running is not None:
            self._tell(self._advance)
        for _ in range(len(self.operations)):
            if self._running is not None and self._refusal is None:
                return  # its next event goes on
            count = len(self.operations)
            self._tell(self._run_next)
            # What the driver delays, or waits for a new leader to know all, is not asked for again.
            if host.monotonic_ns() >= end_ns and len(self.operations) < count:
                self.operations.schedule_turn()
                return

    def _tell(self, event: Callable[[], None]) -> None:
        if self._refusal is None:
            self._opened.driver.tell(event)
        else:
            event()

    def _run_next(self) -> None:
        """Begin the first operation, unless a new leader does not know all yet."""
        can_run = self._refusal is None
        if can_run and (self._running is not None or (self._opened.raft.is_leader and self._core is None)):
            return
        entry = self.operations.take()
        if entry is None or entry.future.cancelled():
            return
        if self._refusal is not None:
            entry.fail(self._refusal)
            return
        started_ns = host.monotonic_ns()
        core = self._core
        if core is None or not self._opened.raft.is_leader:
            entry.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the correct controller."))
            self._metrics.on_operation(entry.submitted_ns, started_ns)
            return
        self._running = _Running(entry, core, started_ns, StepRun(self._begin(entry, core)))
        self._advance()

    def _begin(self, entry: SubmittedOperation, core: ControllerCore) -> Steps[PreparedResult]:
        return (yield from self._prepare(entry.run(core, self._opened.driver.now_ms()), core))

    def _prepare(self, outcome: _Outcome, core: ControllerCore) -> Steps[PreparedResult]:
        return prepare(outcome, image=core.image, limit_bytes=self._settings.log.max_batch_bytes)

    def _advance(self) -> None:
        """Go on with the operation that has been begun; propose what it writes when it is done."""
        running = self._running
        if running is None:
            return
        if self._is_done(running):
            self._running = None
            running.run.close()
            self._metrics.on_operation(running.entry.submitted_ns, running.started_ns)
        if self._running is not None or self.operations:
            self.operations.schedule_turn()

    def _is_done(self, running: _Running) -> bool:
        """Run steps; whether the operation is proposed or failed, and no other has to wait for it."""
        entry, log = running.entry, self._opened
        if entry.future.cancelled():
            return True
        if self._refusal is not None:
            entry.fail(self._refusal)
            return True
        if self._core is not running.core or not log.raft.is_leader:
            # Nothing is proposed yet.
            entry.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is no longer the leader."))
            return True
        try:
            if not running.run.advance(host.monotonic_ns() + TURN_NS):
                return False
        except KraftlogError as error:
            entry.fail(error)
            return True
        except Exception as error:
            # Nothing is proposed yet, and the image is as it was: only this request is lost.
            logger.exception("an operation of the controller failed")
            unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
            unexpected.__cause__ = error
            entry.fail(unexpected)
            return True
        try:
            self._propose(running.run.result, entry.future)
        except KraftlogError as error:
            # A proposal is refused where this node has just seen that it no longer leads.
            entry.fail(error)
        except Exception as error:
            # The image of this controller and the log may differ: the next one begins with what is committed.
            logger.exception("the active controller failed to apply its own records and resigns")
            unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")
            unexpected.__cause__ = error
            entry.fail(unexpected)
            self._core = None
            log.raft.resign(log.driver.now_ms())
        return True

    def _propose(self, result: PreparedResult, future: asyncio.Future[Any]) -> None:
        log = self._opened
        if not result.batches:
            if self._core is not None and result.on_appended is not None:
                result.on_appended(self._core.next_offset - 1)
            # What it read may not be committed yet: its answer waits for that.
            if not log.await_pending(CommittedAnswer((), future, result.response)):
                future.set_result(result.response)
            return
        if self._core is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        answer = CommittedAnswer()
        for batch in result.batches:
            changes = batch.changes.changes
            answer = CommittedAnswer(changes)
            proposed = log.propose(batch.values, size_bytes=batch.size_bytes, payload=answer)
            self._core.apply_changes(changes, last_offset=proposed.last_offset, epoch=proposed.epoch)
        if result.on_appended is not None:
            result.on_appended(self._core.next_offset - 1)
        answer.future, answer.response = future, result.response

    # What becomes of them

    def on_control_appended(self, last_offset: Offset, epoch: Epoch) -> bool:
        """Control records were appended between those of operations; returns whether that was news."""
        # An operation that raised kraft.version has proposed its own record behind them already.
        if self._core is None or last_offset < self._core.next_offset:
            return False
        self._core.apply((), last_offset=last_offset, epoch=epoch)
        return True

    @staticmethod
    def complete(done: Iterable[Proposed[CommittedAnswer]]) -> None:
        """These are committed and the listeners know."""
        for proposed in done:
            answer = proposed.payload
            if answer.future is not None and not answer.future.done():
                answer.future.set_result(answer.response)

    @staticmethod
    def fail_answers(lost: Iterable[Proposed[CommittedAnswer]], error: KraftlogError) -> None:
        """The answers of these will not come."""
        _fail([proposed.payload.future for proposed in lost], error)

    def _fail_waiting(self, error: KraftlogError) -> None:
        """Tell those who submitted an operation that its answer will not come."""
        waiting: list[asyncio.Future[Any] | None] = []
        if self._log is not None:
            waiting += [proposed.payload.future for proposed in self._log.pending]
        if self._running is not None:
            self._running.run.close()
            waiting.append(self._running.entry.future)
            self._running = None
        waiting += [entry.future for entry in self.operations.take_all()]
        _fail(waiting, error)

    # Timers

    def _arm_idle_timer(self) -> None:
        """Write a NoOp record when nothing else was for metadata.max.idle.interval.ms, so that lag can be seen."""
        interval_s = self._settings.metadata_max_idle_interval_ms / 1000
        if interval_s > 0 and self._refusal is None:
            idle_s = host.monotonic_s() - self._opened.driver.last_append_s
            delay_s = interval_s - idle_s if idle_s < interval_s else interval_s
            self._idle_timer = self._loop.call_later(delay_s, self._on_idle, interval_s)

    def _on_idle(self, interval_s: float) -> None:
        log = self._opened
        if log.is_leader and host.monotonic_s() - log.driver.last_append_s >= interval_s * 0.9:
            self.submit(lambda core, _: core.no_op()).add_done_callback(_ignore)
        self._arm_idle_timer()

    def _arm_session_timer(self) -> None:
        """Fence brokers that have been silent for broker.session.timeout.ms, as long as this node is active."""
        if self._session_timer is not None:
            self._session_timer.cancel()
        if self._core is not None and self._refusal is None:
            interval_s = self._core.sessions.look_interval_ms / 1000
            self._session_timer = self._loop.call_later(interval_s, self._look_at_sessions)

    def _look_at_sessions(self) -> None:
        core = self._core
        if core is not None and self._refusal is None and core.sessions.has_expired(self._opened.driver.now_ms()):
            self.submit(lambda core, now_ms: core.fence_silent_broker(now_ms)).add_done_callback(self._on_fenced)
        self._arm_session_timer()

    def _on_fenced(self, future: asyncio.Future[int | None]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the next active controller begins with whole sessions
        broker_id = future.result()
        if broker_id is not None:
            logger.warning("broker %d has sent no heartbeat for its session timeout and is fenced", broker_id)
        if self._core is not None:
            self._look_at_sessions()  # one at a time


def _ignore(future: asyncio.Future[None]) -> None:
    """Nobody waits for a NoOp; its failure has been logged where it happened."""
    if not future.cancelled():
        future.exception()


def _fail(waiting: Iterable[asyncio.Future[Any] | None], error: KraftlogError) -> None:
    for future in waiting:
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # an await still raises it; nobody has to
