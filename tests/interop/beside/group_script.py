"""A script's hands at the coordinator of one group: each method writes down its answer as a line of text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from interop.beside.broker_script import BrokerScript

__all__ = ["GroupScript"]


class GroupScript:
    """One group.

    Attributes:
        member_id: Of the member that joined.
    """

    def __init__(self, script: BrokerScript, group_id: str) -> None:
        self._script = script
        self._group_id = group_id
        self.member_id = ""

    def wait_until_loaded(self) -> None:
        """Until the broker coordinates the group."""
        deadline = time.monotonic() + 60
        request = HeartbeatRequest(group_id=self._group_id, generation_id=1, member_id="nobody")
        while (code := self._script.ask(request, 4).error_code) != ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.monotonic() < deadline, ErrorCode.name_of(code)
            time.sleep(0.02)

    def heartbeat(self, generation: int, member_id: str) -> None:
        request = HeartbeatRequest(group_id=self._group_id, generation_id=generation, member_id=member_id)
        who = "the member" if member_id == self.member_id else member_id
        code = self._script.ask(request, 4).error_code
        self._script.note(f"heartbeat of {who} in generation {generation}", ErrorCode.name_of(code))

    def commit(
        self,
        topic: str,
        generation: int = -1,
        member_id: str = "",
        *,
        index: int = 0,
        epoch: int = -1,
        metadata: str = "",
        version: int = 8,
    ) -> None:
        fields: dict[str, Any] = {"committed_leader_epoch": epoch} if version >= 6 else {}
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5, committed_metadata=metadata, **fields
        )
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        found = self._script.ask(request, version).topics[0].partitions[0]
        who = "the member" if member_id and member_id == self.member_id else member_id
        asked = f"commit of {topic} by {who!r} in generation {generation} epoch={epoch} v{version}"
        self._script.note(asked, ErrorCode.name_of(found.error_code))

    def committed(self, topic: str) -> None:
        """OffsetFetch of partition 0."""
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        found = (
            self._script.ask(OffsetFetchRequest(group_id=self._group_id, topics=[wanted]), 7).topics[0].partitions[0]
        )
        self._script.note("committed", f"{found.committed_offset} epoch={found.committed_leader_epoch}")

    def join(self) -> None:
        """Join alone; version 3 needs no member id first."""
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        response = self._script.ask(request, 3)
        self.member_id = response.member_id
        self._script.note("join", f"{ErrorCode.name_of(response.error_code)} {response.generation_id}")

    def sync(self) -> None:
        """Assign nothing to the member."""
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")
        request = SyncGroupRequest(
            group_id=self._group_id, generation_id=1, member_id=self.member_id, assignments=[assignment]
        )
        self._script.note("sync", ErrorCode.name_of(self._script.ask(request, 3).error_code))
