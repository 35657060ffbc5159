"""Commits that are sent again after what happened to the member meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.client.config import ClientConfig
from kraftlog.client.coordinator import Coordinator
from kraftlog.client.group_commits import GroupCommits
from kraftlog.client.state.handed_rows import HandedRows
from kraftlog.client.state.position import OffsetAndMetadata
from kraftlog.client.state.subscription import Subscription
from kraftlog.errors import CommitFailedError, ErrorCode, KafkaError
from kraftlog.types import TopicPartition

T0 = TopicPartition("t", 0)


class Group:
    """A coordinator that answers each commit with the next of these codes."""

    group_id = "g"
    retried = Coordinator.retried
    _retry_backoff_s = 0.0

    def __init__(self, codes, then):
        self.codes, self.then, self.generations = list(codes), then, []

    def forget_coordinator(self):
        """It is looked up again."""

    async def commit(self, _offsets, *, generation, member_id, instance_id):
        self.generations.append(generation)
        code = self.codes.pop(0)
        if code:
            self.then()
            raise KafkaError(code)


def commit(codes, then):
    handed = HandedRows(Subscription("latest"))
    member = SimpleNamespace(has_joined=True, generation=3, member_id="m", is_in_doubt=False)
    member.doubt = lambda: setattr(member, "is_in_doubt", True)
    group = Group(codes, lambda: then(member, handed))
    config = ClientConfig({"bootstrap.servers": "h:1", "group.id": "g"}, "consumer")
    driver = SimpleNamespace(now_ms=lambda: 0)

    async def joined_member():
        return member

    commits = GroupCommits(config, None, driver, group, handed, joined_member)
    asyncio.run(commits.commit({T0: OffsetAndMetadata(5)}, 5.0))
    return group.generations


def advance(member, _handed):
    member.generation += 1


def lose_and_come_back(member, handed):
    handed.note_lost([T0], KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
    member.generation += 1


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR])
def test_commit_is_sent_again_with_the_epoch_that_overtook_it(code):
    assert commit([code, 0], advance) == [3, 4]


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR])
def test_commit_is_not_sent_again_in_the_name_of_the_next_membership(code):
    """Another member may have read the partition, and committed more, between the two attempts."""
    with pytest.raises(CommitFailedError, match="took partitions away") as raised:
        commit([code, 0], lose_and_come_back)
    assert raised.value.partitions == (T0,)


def test_refused_member_asks_its_coordinator():
    seen = []
    with pytest.raises(CommitFailedError, match="UNKNOWN_MEMBER_ID"):
        commit([ErrorCode.UNKNOWN_MEMBER_ID], lambda member, _: seen.append(member))
    assert seen[0].is_in_doubt
