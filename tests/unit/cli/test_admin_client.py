"""The client of administrative commands while the active controller moves."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.cli import admin_client
from kraftlog.cli.admin_client import AdminClient
from kraftlog.cli.metadata_quorum import main
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

ARGUMENTS = ["--bootstrap-controller", "127.0.0.1:9001,127.0.0.1:9002", "describe", "--replication"]


class Controllers:
    """Two controllers; each believes that it is node ``believed``, and only ``leader`` answers as the leader."""

    def __init__(self, *, leads_from: float) -> None:
        self.asked: list[tuple[int, str]] = []
        self.leads_from = leads_from

    @property
    def leader(self) -> int:
        return 9002 if len(self.asked) >= self.leads_from else -1

    async def open(self, _loop: object, _host: str, port: int, **_: object) -> Connection:
        return Connection(self, port)

    def answer(self, port: int, message: Any) -> Any:
        self.asked.append((port, type(message).__name__))
        if isinstance(message, DescribeClusterRequest):
            brokers = [
                DescribeClusterResponse.DescribeClusterBroker(broker_id=found, host="127.0.0.1", port=found)
                for found in (9001, 9002)
            ]
            return DescribeClusterResponse(
                endpoint_type=2, cluster_id="c", controller_id=9002 if self.leader > 0 else 9001, brokers=brokers
            )
        code = 0 if port == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(message, AddRaftVoterRequest):
            return AddRaftVoterResponse(error_code=code)
        if isinstance(message, UpdateFeaturesRequest):
            return UpdateFeaturesResponse(error_code=0 if not code else ErrorCode.NOT_CONTROLLER)
        assert isinstance(message, DescribeQuorumRequest)
        partition = DescribeQuorumResponse.PartitionData(error_code=code, leader_id=9002)
        return DescribeQuorumResponse(
            topics=[DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])]
        )


class Connection:
    """To one of them."""

    def __init__(self, controllers: Controllers, port: int) -> None:
        self._controllers, self._port = controllers, port

    async def request(self, message: Any) -> Any:
        return self._controllers.answer(self._port, message)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*, leads_from: float = 1e9) -> Controllers:
        found = Controllers(leads_from=leads_from)
        monkeypatch.setattr(admin_client.RpcConnection, "open", found.open)
        return found

    monkeypatch.setattr(admin_client, "RETRY_S", 0.001)
    monkeypatch.setattr(admin_client, "RETRY_MAX_S", 0.004)
    return make


def test_describe_looks_for_the_leader_again_and_exits_1_without_one(controllers: Any, capsys: Any) -> None:
    """CERR-27: NOT_LEADER_OR_FOLLOWER is tried again; fails before the fix, where the first one ended the command."""
    found = controllers(leads_from=5)
    assert main(ARGUMENTS) == 0
    assert "NodeId" in capsys.readouterr().out
    assert [asked for asked in found.asked if asked[1] == "DescribeQuorumRequest"][-1] == (
        9002,
        "DescribeQuorumRequest",
    )
    found = controllers()
    timeout_s, AdminClient.__init__.__kwdefaults__["timeout_s"] = AdminClient.__init__.__kwdefaults__["timeout_s"], 0.1
    try:
        assert main(ARGUMENTS) == 1
    finally:
        AdminClient.__init__.__kwdefaults__["timeout_s"] = timeout_s
    assert "NOT_LEADER_OR_FOLLOWER" in capsys.readouterr().err
    assert sum(asked[1] == "DescribeQuorumRequest" for asked in found.asked) > 2


@pytest.mark.parametrize("message", [AddRaftVoterRequest(voter_id=3, timeout_ms=1), UpdateFeaturesRequest()])
def test_controller_that_lost_its_role_is_followed_to_the_next_one(controllers: Any, message: Any) -> None:
    """CERR-21, CERR-23: the client looks up the controller and asks again."""
    import asyncio

    found = controllers(leads_from=3)

    async def run() -> Any:
        async with AdminClient(admin_client.parse_servers("127.0.0.1:9001"), is_controller=True) as client:
            return await client.request(message)

    assert asyncio.run(run()).error_code == 0
    name = type(message).__name__
    assert [asked for asked in found.asked if asked[1] == name] == [(9001, name), (9002, name)]
