"""What a simulated node needs of the cluster around it, and who is told what it does.

Both Protocols are generic over the node, so that the file of the node imports them and neither imports that file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Protocol, TypeVar

from kraftlog.raft.core import RaftCore
from kraftlog.raft.effects import Effect, Fault, LeadershipConfirmed, SendRequest, SendResponse
from kraftlog.raft.messages import FetchedBatch, Request, Response
from kraftlog.raft.roles.role import Role
from kraftlog.testing.config import SimulationConfig
from kraftlog.testing.disk import DiskFailedError, StoredSnapshot
from kraftlog.testing.machine import ReplicatedMachine
from kraftlog.testing.scheduler import Scheduler
from kraftlog.types import NodeId

__all__ = ["Host", "Observer", "Source"]

Source = tuple[int, int, NodeId, int, int]
"""Who asked: node, its run, the id it knows the destination by, its correlation id, and the serial of the delivery."""

NodeT_contra = TypeVar("NodeT_contra", contravariant=True)


class Observer(Protocol[NodeT_contra]):
    """Is told each step of a node; raises where a step must not be."""

    def on_recovered(self, node: NodeT_contra, durable: int) -> None:
        """The node reads its disk at a start; ``durable`` is the exclusive end of what was flushed before."""

    def on_stopped(self) -> None:
        """A node stopped."""

    def check(self, node: NodeT_contra) -> None:
        """The node has handled an event, all its effects carried out."""

    def check_effects(self, node: NodeT_contra, before: Role, effects: Iterable[Effect]) -> None:
        """The node wants this done; ``before`` is its role when the event came."""

    def check_sent(self, node: NodeT_contra, effect: SendRequest | SendResponse) -> None:
        """A message leaves, what it waits for being durable."""

    def on_idle_poll(self, node: NodeT_contra) -> None:
        """A timer ran out and nothing was wanted."""

    def on_request(self, node: NodeT_contra, request: Request) -> None:
        """The node is about to handle a request."""

    def on_proposed(self, node: NodeT_contra, last_offset: int, records: Sequence[object]) -> None:
        """The node took records; the last has this offset."""

    def on_confirmation_wanted(self, node: NodeT_contra, number: int) -> None:
        """The node was asked to confirm its leadership."""

    def on_confirmed(self, node: NodeT_contra, effect: LeadershipConfirmed) -> None:
        """The node's leadership is confirmed."""

    def on_append(self, node: NodeT_contra, batch: FetchedBatch) -> None:
        """The node is about to append a batch."""

    def on_truncate(self, node: NodeT_contra, end_offset: int) -> None:
        """The node is about to cut its log."""

    def on_truncated(self, node: NodeT_contra) -> None:
        """The node has cut its log."""

    def on_applied(self, node: NodeT_contra, batch: FetchedBatch) -> None:
        """The node's machine was given a batch."""

    def on_install(self, node: NodeT_contra, snapshot: StoredSnapshot) -> None:
        """The node is about to replace its log by a snapshot."""

    def on_snapshot(self, node: NodeT_contra, snapshot: StoredSnapshot) -> None:
        """The node has made a snapshot."""

    def on_log_start(self, node: NodeT_contra) -> None:
        """The node has dropped the beginning of its log."""


class Host(Protocol[NodeT_contra]):
    """The cluster around a node."""

    @property
    def config(self) -> SimulationConfig:
        """What is simulated."""

    @property
    def core_type(self) -> type[RaftCore]:
        """What a node makes its core of at each start."""

    @property
    def scheduler(self) -> Scheduler:
        """The virtual clock."""

    @property
    def disk_rng(self) -> Random:
        """Chance of the disks."""

    @property
    def counters(self) -> Counter[str]:
        """What happened, by name."""

    @property
    def observer(self) -> Observer[NodeT_contra]:
        """Who is told what the node does."""

    def make_machine(self) -> ReplicatedMachine:
        """A fresh machine for a replica that starts."""

    def send_request(self, node: NodeT_contra, effect: SendRequest) -> None:
        """Carry a request to its destination, and its answer back."""

    def send_response(self, node: NodeT_contra, source: Source, response: Response) -> None:
        """Carry an answer back to who asked."""

    def lose_request(self, target_id: int, asker: int, run: int, node_id: NodeId, correlation_id: int) -> None:
        """The process that was asked has ended, and with it the connection: the asker learns that no answer comes."""

    def on_stopped(self, node: NodeT_contra) -> None:
        """The node's process is about to end, and with it its connections."""

    def on_started(self, node: NodeT_contra) -> None:
        """The node has made its core of what its disk holds, and told it nothing yet."""

    def on_role_changed(self, node: NodeT_contra, before: Role) -> None:
        """The node changed role or epoch."""

    def on_fault(self, node: NodeT_contra, fault: Fault) -> None:
        """The node's core met what cannot be."""

    def on_disk_failed(self, node: NodeT_contra, error: DiskFailedError, *, is_spoilt: bool = False) -> None:
        """The node stops, its disk having failed, or cannot start."""
