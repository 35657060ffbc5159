"""Replicas that talk to one another by TLS only, each with a certificate that the others ask for."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from certificates import Authority
from kraftlog.errors import DeadlineError
from quorum_api_fixture import members

AUTHORITY = Authority()
IDENTITY, STRANGER = AUTHORITY.issue("replica"), Authority("somebody else").issue("replica")


def tls(identity=IDENTITY):
    return {
        "listener.security.protocol.map": "QUORUM:SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.certificate,
    }


async def read_byte(address, context):
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        return await reader.readexactly(1)
    finally:
        writer.close()


def test_everything_between_replicas_is_encrypted(tmp_path):
    async def run():
        async with members(tmp_path, 3, **tls()) as quorum:
            leader = await quorum.leader()
            follower = next(quorum.followers())
            assert await follower.call([b"handed over"]) == [0]
            assert await follower.read_barrier() == leader.applied_end_offset
            contacts = list(quorum.voters.values())
            joined = await quorum.start(4, join=contacts, address="127.0.0.1:0")
            await joined.add_voter()  # asked of the leader, over a connection of its own
            assert {voter.replica_id for voter in (await joined.describe()).voters} == {1, 2, 3, 4}
            without_certificate = ssl.create_default_context(cadata=AUTHORITY.certificate)
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await read_byte(leader.address, without_certificate)

    asyncio.run(run())


@pytest.mark.parametrize("changes", [tls(STRANGER), {"listener.security.protocol.map": "QUORUM:PLAINTEXT"}])
def test_a_replica_that_nobody_trusts_stays_outside(tmp_path, changes):
    async def run():
        async with members(tmp_path, 1, **tls()) as quorum:
            leader = await quorum.leader()
            quorum.config |= changes
            stranger = await quorum.start(2, join=[leader.address], address="127.0.0.1:0")
            with pytest.raises(DeadlineError):
                await stranger.propose([b"no"], timeout_s=1.0)
            assert stranger.leader_id is None
            assert (await leader.describe()).observers == ()
            assert await leader.propose([b"yes"]) > 0

    asyncio.run(run())
