"""Elections that nobody asks for: preferred leaders get their partitions back, and leaderless partitions any leader."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kraftlog.controller import ControllerCore, ControllerResult
from kraftlog.controller.steps import Steps
from kraftlog.runtime.metadata.operation_queue import Operation
from kraftlog.runtime.metadata.settings import MetadataSettings

__all__ = ["PeriodicElections"]

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 0.01
_AFTER_ERROR_S: Final = 300.0


class Submit(Protocol):
    """``ActiveController.submit`` of an operation that tells whether there may be more to do."""

    def __call__(self, operation: Operation[bool], *, timeout_s: float | None = None) -> asyncio.Future[bool]:
        """Run the operation; the future has its response."""
        ...


@dataclass(frozen=True, slots=True)
class _Round:
    """One kind of election.

    Args:
        name: For the log.
        interval_s: From the end of a round to the next one.
        operation: Elects; its response says whether another round has to follow at once.
    """

    name: str
    interval_s: float
    operation: Operation[bool]


class PeriodicElections:
    """Submits rounds of elections while this node is the active controller.

    Args:
        settings: auto.leader.rebalance.enable, leader.imbalance.check.interval.seconds and
            unclean.leader.election.interval.ms.
        loop: The running loop.
        submit: Runs an operation of the active controller.
    """

    def __init__(self, settings: MetadataSettings, loop: asyncio.AbstractEventLoop, submit: Submit) -> None:
        self._loop = loop
        self._submit = submit
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._is_active = False
        rounds = [_Round("unclean", settings.unclean_leader_election_interval_ms / 1000, _elect_unclean_leaders)]
        if settings.auto_leader_rebalance_enable:
            rounds.append(_Round("preferred", settings.leader_imbalance_check_interval_s, _balance_leaders))
        self._rounds = rounds

    def begin(self) -> None:
        """This node is the active controller now."""
        self._is_active = True
        for election in self._rounds:
            self._arm(election, election.interval_s)

    def end(self) -> None:
        """It no longer is."""
        self._is_active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, election: _Round, delay_s: float) -> None:
        timer = self._timers.pop(election.name, None)
        if timer is not None:
            timer.cancel()
        if self._is_active:
            self._timers[election.name] = self._loop.call_later(delay_s, self._run, election)

    def _run(self, election: _Round) -> None:
        future = self._submit(election.operation)
        future.add_done_callback(partial(self._on_done, election))

    def _on_done(self, election: _Round, future: asyncio.Future[bool]) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            if self._is_active:
                logger.warning("the periodic election of %s leaders failed: %s", election.name, error)
            self._arm(election, _AFTER_ERROR_S)
        else:
            self._arm(election, _AGAIN_S if future.result() else election.interval_s)


def _balance_leaders(core: ControllerCore, _now_ms: int) -> Steps[ControllerResult[bool]]:
    return core.balance_leaders()


def _elect_unclean_leaders(core: ControllerCore, _now_ms: int) -> Steps[ControllerResult[bool]]:
    return core.elect_unclean_leaders()
