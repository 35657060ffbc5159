"""What clients are shown of partitions, seen at the brokers' sockets (docs/behaviours, area 29)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.followed_log import batches_in
from kraftlog.testing.world.frame_stream import REQUEST_HEADER, Exchanges
from kraftlog.testing.world.node_machine import NodeMachine
from kraftlog.types import Uuid
from kraftlog.wire.frame import decode_request, decode_response
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from kraftlog.testing.world.network import SimulatedSocket
    from kraftlog.testing.world.partition_checker import PartitionChecker
    from kraftlog.testing.world.story import Story

__all__ = ["VisibilityChecker"]

_APIS: Final = frozenset(request.API_KEY for request in (FetchRequest, ListOffsetsRequest, ProduceRequest))
_READ_COMMITTED: Final = 1
_LATEST: Final = -1
_ALL: Final = -1


class VisibilityChecker:
    """Reads what brokers answer to consumers and producers: only what is committed is shown.

    Args:
        port: That brokers listen on.
        partitions: Knows what was committed.
        story: What is shown with a broken rule.

    Attributes:
        looked: How often each rule had something to look at.
    """

    def __init__(self, port: int, partitions: PartitionChecker, story: Story) -> None:
        self._port = port
        self._partitions = partitions
        self._story = story
        self._exchanges = Exchanges(_APIS)
        # Leader epoch and offset, by topic id, partition and isolation level.
        self._latest: dict[tuple[Any, int, int], tuple[int, int]] = {}
        self.looked: Counter[str] = Counter()

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a socket."""
        if sock.getsockname()[1] != self._port:
            return
        for frame in self._exchanges.arrived(sock, data):
            api_key, _, correlation_id = REQUEST_HEADER.unpack_from(frame)
            if api_key == ProduceRequest.API_KEY:
                self._exchanges.of(sock).before[correlation_id] = _too_few_in_sync(sock.machine)

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """A broker has handed bytes to a socket.

        Raises:
            InvariantViolationError: They show what is not committed.
        """
        machine = sock.machine
        if sock.getsockname()[1] != self._port or not isinstance(machine, NodeMachine):
            return
        exchange = self._exchanges.of(sock)
        for frame in exchange.outgoing.feed(data):
            asked, too_few = exchange.asked_by(frame), exchange.noted_for(frame)
            if asked is None:
                continue
            api_key, version, _ = REQUEST_HEADER.unpack_from(asked)
            request: Any = decode_request(asked)[1]
            if isinstance(request, ProduceRequest):
                if request.acks == _ALL:
                    self._check_produced(machine, request, decode_response(api_key, version, frame)[1], too_few)
            elif request.replica_id < 0 and getattr(request, "replica_state", request).replica_id < 0:
                answer: Any = decode_response(api_key, version, frame)[1]
                if isinstance(request, FetchRequest):
                    self._check_fetched(machine, answer, request.isolation_level)
                else:
                    self._check_latest(machine, request, answer)

    def _check_fetched(self, machine: NodeMachine, answer: Any, isolation_level: int) -> None:
        """Records end at or below the high watermark, or the last stable offset, and are those that are committed."""
        for topic in answer.responses:
            for answered in topic.partitions:
                found = _partition_of(machine, topic.topic, topic.topic_id, answered.partition_index)
                if answered.error_code or found is None:
                    continue
                self.looked["RINV-10"] += 1
                name = f"{found.topic}-{found.index} on {machine.name}"
                shown = answered.high_watermark
                highest = max(self._partitions.highest(found.topic_id, found.index), found.high_watermark)
                if shown > highest:
                    self._fail(
                        "RINV-10", f"{name}: a consumer is shown high watermark {shown}, the highest is {highest}"
                    )
                limit = answered.last_stable_offset if isolation_level == _READ_COMMITTED else shown
                if limit > shown:
                    self._fail("RINV-10", f"{name}: last stable offset {limit}, high watermark {shown}")
                records = bytes(answered.records or b"")
                if not records or machine.has_bad_disk:
                    continue  # headers on a bad disk may say anything
                for batch in batches_in(records):
                    if batch.end_offset > limit:
                        reason = f"{name}: a consumer gets records up to {batch.end_offset}, it may read up to {limit}"
                        self._fail("RINV-10", reason)
                if not self._partitions.has_history(machine, found):
                    continue
                self.looked["RINV-11"] += 1
                self._partitions.logs.check_served(found, name, records)

    def _check_latest(self, machine: NodeMachine, request: ListOffsetsRequest, answer: Any) -> None:
        """The end of a partition, as consumers see it, does not go back from one leader to the next."""
        wanted = {
            (topic.name, asked.partition_index)
            for topic in request.topics
            for asked in topic.partitions
            if asked.timestamp == _LATEST
        }
        for topic in answer.topics:
            for answered in topic.partitions:
                found = _partition_of(machine, topic.name, Uuid.ZERO, answered.partition_index)
                if answered.error_code or found is None or (topic.name, answered.partition_index) not in wanted:
                    continue
                if not self._partitions.has_history(machine, found):
                    continue
                self.looked["RINV-12"] += 1
                place = (found.topic_id, found.index, request.isolation_level)
                before = self._latest.get(place, (-1, -1))
                if before[0] < self._partitions.lost_epoch(found.topic_id, found.index):
                    before = (-1, -1)
                if found.leader_epoch < before[0]:
                    continue  # it does not know that another broker leads by now
                if answered.offset < before[1]:
                    name = f"{found.topic}-{found.index} on {machine.name}"
                    self._fail("RINV-12", f"{name}: the latest offset was {before[1]}, and is {answered.offset}")
                self._latest[place] = (found.leader_epoch, answered.offset)

    def _check_produced(
        self, machine: NodeMachine, request: ProduceRequest, answer: Any, too_few: dict[Any, int]
    ) -> None:
        """What is acknowledged with acks=-1 is committed, and enough replicas were in sync at some time meanwhile.

        Args:
            machine: Of the broker.
            request: Of the producer.
            answer: Of the broker.
            too_few: Partitions that had too few replicas in sync when the request arrived, with their epochs.
        """
        still = _too_few_in_sync(machine) if too_few else {}
        ends = {
            (topic.name, topic.topic_id, produced.index): [*batches_in(bytes(produced.records or b""))]
            for topic in request.topic_data
            for produced in topic.partition_data
        }
        for topic in answer.responses:
            for answered in topic.partition_responses:
                batches = ends.get((topic.name, topic.topic_id, answered.index))
                found = _partition_of(machine, topic.name, topic.topic_id, answered.index)
                if answered.error_code or not batches or found is None:
                    continue
                self.looked["RINV-31"] += 1
                key = (found.topic_id, found.index)
                if key in still and still[key] == too_few.get(key):
                    name = f"{found.topic}-{found.index} on {machine.name}"
                    self._fail("RINV-31", f"{name}: acknowledges, though all the time too few replicas were in sync")
                self.looked["RINV-02"] += 1
                end_offset = answered.base_offset + batches[-1].end_offset - batches[0].base_offset
                highest = max(self._partitions.highest(found.topic_id, found.index), found.high_watermark)
                if end_offset > highest:
                    name = f"{found.topic}-{found.index} on {machine.name}"
                    self._fail("RINV-02", f"{name}: acknowledges up to {end_offset}, committed is {highest}")

    def _fail(self, identifier: str, reason: str) -> None:
        raise InvariantViolationError(identifier, reason, self._story.last(40))


def _too_few_in_sync(machine: Any) -> dict[Any, int]:
    """The partitions that a broker leads with too few replicas in sync, and their partition epochs."""
    node = machine.node
    if node is None or not hasattr(node, "partitions"):
        return {}
    return {
        (partition.topic_id, partition.index): partition.replica.partition_epoch
        for partition in node.partitions
        if partition.replica.is_under_min_isr
    }


def _partition_of(machine: NodeMachine, topic: str, topic_id: Uuid, index: int) -> Any:
    """A broker's replica; None if it has none, or not any more."""
    node = machine.node
    if node is None or not hasattr(node, "partitions"):
        return None
    return node.partitions.get_by_name(topic, index) if topic_id == Uuid.ZERO else node.partitions.get(topic_id, index)
