"""A quorum whose replicas know each other by password; the settings are Kafka's."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import DeadlineError
from kraftlog.node.config import ConfigError
from quorum_api_fixture import members
from raw_client import RawClient

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def sasl(password="secret", mechanism="PLAIN"):
    return {
        "listener.security.protocol.map": "QUORUM:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="r" password="{password}" user_r="secret";',
    }


def test_replicas_authenticate_to_each_other(tmp_path):
    async def run():
        async with members(tmp_path, 3, **sasl()) as quorum:
            leader = await quorum.leader()
            follower = next(quorum.followers())
            assert await follower.call([b"handed over"]) == [0]
            assert await follower.read_barrier() == leader.applied_end_offset
            address = quorum.voters[1]

            def closed_without_authentication():
                with RawClient(address) as client:
                    client.sock.sendall(bytes.fromhex("0000000e 0034 0000 0000002a 0004 74657374"))  # Vote
                    return client.is_closed_by_peer()

            assert await asyncio.to_thread(closed_without_authentication)

    asyncio.run(run())


def test_a_replica_with_another_password_is_none(tmp_path):
    async def run():
        async with members(tmp_path, 1, **sasl()) as quorum:
            leader = await quorum.leader()
            quorum.config |= sasl("wrong")
            stranger = await quorum.start(2, join=[leader.address], address="127.0.0.1:0")
            with pytest.raises(DeadlineError):
                await stranger.propose([b"no"], timeout_s=1.0)
            assert stranger.leader_id is None
            assert (await leader.describe()).observers == ()

    asyncio.run(run())


def test_a_quorum_keeps_no_credentials_of_scram(tmp_path):
    async def run():
        async with members(tmp_path, 1, **sasl(mechanism="SCRAM-SHA-256")):
            pass

    with pytest.raises(ConfigError, match="SCRAM"):
        asyncio.run(run())
