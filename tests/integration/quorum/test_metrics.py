"""The metrics of a public quorum: each replica's own, and what they agree on."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

import kraftlog
from kraftlog.node.config import ConfigError
from quorum_api_fixture import Journal, members


@pytest.mark.spec("METR-02", "METR-18")
def test_three_replicas_and_describe_agree_at_rest(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose([b"a", b"b"])
            await asyncio.gather(*(follower.propose([b"c"]) for follower in quorum.followers()))
            async with asyncio.timeout(20):
                while True:
                    info = await leader.describe()
                    found = [node.metrics() for node in quorum.nodes.values()]
                    if {readings["raft-metrics.high-watermark"] for readings in found} == {info.high_watermark}:
                        break
                    await asyncio.sleep(0)
            assert {readings["raft-metrics.current-leader"] for readings in found} == {info.leader_id}
            assert {readings["raft-metrics.current-epoch"] for readings in found} == {info.leader_epoch}
            assert {readings["raft-metrics.number-of-voters"] for readings in found} == {len(info.voters)} == {3}
            states = [readings["raft-metrics.current-state"] for readings in found]
            assert sorted(states) == ["follower", "follower", "leader"]
            leading = found[states.index("leader")]
            assert leading["raft-metrics.append-records-rate"] > 0
            assert leading["raft-metrics.commit-latency-max"] >= 0
            assert leading["raft-metrics.number-of-observers"] == 0
            following = found[states.index("follower")]
            assert following["raft-metrics.fetch-records-rate"] > 0
            assert "raft-metrics.number-of-observers" not in following

    asyncio.run(run())


def test_listener_of_a_quorum_is_opened_and_closed_with_it(tmp_path):
    config = {"kraftlog.metrics.listener": "127.0.0.1:0"}
    with kraftlog.Quorum(Journal(), data_dir=tmp_path / "1", config=config) as quorum:
        url = quorum.metrics_url
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert b"kafka_server_raft_metrics_current_leader 1" in answer.read()
        port = url.split(":")[2].split("/")[0]
        with (
            pytest.raises(ConfigError, match="cannot be bound"),
            kraftlog.Quorum(
                Journal(), data_dir=tmp_path / "2", config={"kraftlog.metrics.listener": f"127.0.0.1:{port}"}
            ),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=10)
