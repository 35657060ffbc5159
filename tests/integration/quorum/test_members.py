"""Several replicas in one process: replication, forwarding, reads, members, leadership."""

from __future__ import annotations

import asyncio

import pytest

from free_ports import free_addresses
from kraftlog.errors import (
    DeadlineError,
    ErrorCode,
    KafkaError,
    NodeClosedError,
    NotCommittedError,
    NotLeaderError,
)
from kraftlog.runtime.raft.replicated_log import STOP_TIMEOUT_S
from quorum_api_fixture import members
from waiting import until


def test_commands_proposed_anywhere_reach_every_machine_in_one_order(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            await quorum.leader()
            proposed = [
                node.propose([b"%d-%d" % (node.node_id, index), b"and"])
                for node in quorum.nodes.values()
                for index in range(20)
            ]
            offsets = await asyncio.gather(*proposed)
            assert len(set(offsets)) == 60
            ends = await asyncio.gather(*(node.read_barrier() for node in quorum.nodes.values()))
            assert min(ends) > max(offsets)
            first = quorum.machines[1].commands
            assert len(first) == 120
            assert first[1::2] == [b"and"] * 60  # the two of one call stay together
            assert all(machine.commands == first for machine in quorum.machines.values())

    asyncio.run(run())


def test_what_followers_propose_in_one_turn_travels_as_one_batch(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            await quorum.leader()
            follower = next(quorum.followers())
            results = await asyncio.gather(*(follower.call([b"%d" % index]) for index in range(100)))
            assert [result for (result,) in results] == list(range(100))
            assert len(quorum.machine(follower).batches) == 1

    asyncio.run(run())


def test_a_follower_that_is_not_to_forward_names_the_leader(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            follower = next(quorum.followers())
            await until(lambda: follower.leader_id is not None)
            with pytest.raises(NotLeaderError) as caught:
                await follower.propose([b"a"], forward=False)
            assert (caught.value.leader_id, caught.value.leader_address) == (leader.node_id, leader.address)
            assert not caught.value.may_be_committed
            assert await leader.propose([b"a"], forward=False) == leader.applied_end_offset - 1

    asyncio.run(run())


@pytest.mark.spec("LSTN-05")
def test_what_no_majority_has_is_not_applied_and_the_deadline_says_so(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose([b"committed"])
            for node in list(quorum.followers()):
                await quorum.crash(node.node_id)
            with pytest.raises(DeadlineError) as caught:
                await leader.propose([b"alone"], timeout_s=0.2)
            assert caught.value.may_be_committed
            assert isinstance(caught.value, TimeoutError)
            assert quorum.machine(leader).commands == [b"committed"]
            assert leader._log.log.log_end_offset > leader.applied_end_offset  # it is in the log of the leader
            with pytest.raises(DeadlineError) as caught:
                await leader.read_barrier(timeout_s=0.2)
            assert not caught.value.may_be_committed

    asyncio.run(run())


def test_a_proposal_that_another_leader_cut_off_is_known_not_to_be_committed(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            old = await quorum.leader()
            await old.propose([b"first"])
            # Nothing it sends or answers arrives any more, but its own clients reach it.
            old._server._listener._acceptor.close()
            old._server._listener._connections.close_all()
            old._log.driver._peers.send = lambda *_: None
            lost = asyncio.ensure_future(old.propose([b"lost"]))
            rest = {node_id: node for node_id, node in quorum.nodes.items() if node is not old}
            await until(lambda: any(node.is_leader for node in rest.values()))
            new = next(node for node in rest.values() if node.is_leader)
            await new.propose([b"second", b"third"])
            del old._log.driver._peers.send
            with pytest.raises(NotCommittedError) as caught:
                await lost
            assert not caught.value.may_be_committed
            await old.read_barrier()
            assert quorum.machine(old).commands == [b"first", b"second", b"third"]

    asyncio.run(run())


def test_a_deposed_leader_does_not_answer_reads(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            old = await quorum.leader()
            await old.propose([b"first"])
            old._log.driver._peers.send = lambda *_: None
            old._server._listener._acceptor.close()
            old._server._listener._connections.close_all()
            # It still believes that it leads, and nothing tells it otherwise before its timers do.
            old._log.raft._replica.role.check_quorum_deadline_ms += 60_000
            rest = [node for node in quorum.nodes.values() if node is not old]
            await until(lambda: any(node.is_leader for node in rest))
            await next(node for node in rest if node.is_leader).propose([b"second"])
            assert old._log.raft.is_leader
            with pytest.raises(DeadlineError):
                await old.read_barrier(timeout_s=0.3)

    asyncio.run(run())


def test_barriers_of_one_turn_share_one_question(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            asked = 0
            send = leader._log.driver._peers.send

            def counted(*arguments):
                nonlocal asked
                asked += 1
                send(*arguments)

            leader._log.driver._peers.send = counted
            await asyncio.gather(*(leader.read_barrier() for _ in range(200)))
            assert asked <= 2  # one to each of the others
            before = leader._log.log.log_end_offset
            await leader.read_barrier()
            assert leader._log.log.log_end_offset == before  # nothing is written for a read

    asyncio.run(run())


@pytest.mark.spec("LSTN-11", "LSTN-12", "LSTN-14")
def test_each_leader_is_announced_once_and_the_own_leadership_only_when_all_before_is_applied(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            for round_ in range(3):
                leader = await quorum.leader()
                await leader.propose([b"%d" % index for index in range(round_ * 10 + 1)])
                epoch = leader.epoch
                await leader.step_down()
                assert not leader.is_leader
                await until(
                    lambda epoch=epoch: any(node.is_leader and node.epoch > epoch for node in quorum.nodes.values())
                )
                # Resigned: nobody claims the epoch that was given up.
                own = [call[1:3] for call in quorum.machine(leader).named("leader")]
                assert (leader.node_id, epoch) in own
                assert own[own.index((leader.node_id, epoch)) + 1][0] != leader.node_id
            await asyncio.gather(*(node.read_barrier() for node in quorum.nodes.values()))
            count = len(quorum.machines[1].commands)
            assert count == 1 + 11 + 21
            for node in quorum.nodes.values():
                calls = quorum.machine(node).named("leader")
                assert len({call[1:3] for call in calls}) == len(calls), "the same leader twice"
                epochs = [call[2] for call in calls]
                assert epochs == sorted(epochs)
                for _, leader_id, epoch, applied in calls:
                    if leader_id == node.node_id and epoch > 1:
                        started = sum(len(batch) for batch in quorum.machine(node).batches if batch.epoch < epoch)
                        assert applied == started

    asyncio.run(run())


@pytest.mark.spec("LSTN-15")
def test_a_replica_that_joins_late_gets_everything_and_can_become_a_voter_and_leave(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            await leader.propose([b"%d" % index for index in range(50)])
            contacts = [node.address for node in quorum.nodes.values()]
            late = await quorum.start(4, join=contacts, address=free_addresses(1)[0])
            await late.read_barrier()
            assert quorum.machine(late).commands == quorum.machine(leader).commands
            assert quorum.machine(late).named("leader")[-1][1] == leader.node_id
            assert [observer.replica_id for observer in (await late.describe()).observers] == [4]

            await late.add_voter()
            assert [voter.replica_id for voter in (await leader.describe()).voters] == [1, 2, 3, 4]
            with pytest.raises(KafkaError) as caught:
                await late.add_voter()
            assert caught.value.code == ErrorCode.DUPLICATE_VOTER
            await leader.propose([b"with four"])

            await leader.remove_voter()  # the leader itself
            await until(lambda: not leader.is_leader)
            described = await late.describe()
            assert leader.node_id not in [voter.replica_id for voter in described.voters]
            assert len(described.voters) == 3
            with pytest.raises(KafkaError) as caught:
                await late.remove_voter(leader.node_id)
            assert caught.value.code == ErrorCode.VOTER_NOT_FOUND
            await late.propose([b"without it"])
            await leader.read_barrier()
            assert quorum.machine(leader).commands[-2:] == [b"with four", b"without it"]

    asyncio.run(run())


def test_the_last_one_of_a_quorum_that_stops_waits_for_no_successor(tmp_path):
    async def run():
        async with members(tmp_path, 3) as quorum:
            leader = await quorum.leader()
            assert leader._log.driver.can_be_succeeded
            gone, other = [node.node_id for node in quorum.followers()]
            await quorum.crash(gone)
            assert leader._log.driver.can_be_succeeded  # by the one that is left, with the leader's own vote
            await quorum.crash(other)
            await until(lambda: not leader._log.driver.can_be_succeeded)
            async with asyncio.timeout(STOP_TIMEOUT_S - 1):
                await quorum.stop(leader.node_id)

    asyncio.run(run())


def test_a_leader_hands_over_when_it_closes(tmp_path):
    async def run():
        # Without a message from the leader the others would wait for a minute.
        async with members(tmp_path, 3, controller_quorum_fetch_timeout_ms=60_000) as quorum:
            leader = await quorum.leader()
            await leader.propose([b"a"])
            load = [asyncio.ensure_future(leader.propose([b"%d" % index])) for index in range(20)]
            await asyncio.sleep(0)
            begun = asyncio.get_running_loop().time()
            await quorum.stop(leader.node_id)
            successor = await quorum.leader()
            took_s = asyncio.get_running_loop().time() - begun
            assert took_s < 20, "somebody waited for a timer"
            assert all(isinstance(task.result(), int) for task in load)
            assert successor.node_id != leader.node_id
            with pytest.raises(NodeClosedError):
                await leader.propose([b"b"])
            await successor.propose([b"c"])
            assert len(quorum.machine(successor).commands) == 22

    asyncio.run(run())


@pytest.mark.spec("LSTN-02", "LSTN-17")
def test_a_replica_that_fell_behind_a_cleaned_log_is_given_a_snapshot_and_a_leader_never(tmp_path):
    small = {
        "metadata_log_max_record_bytes_between_snapshots": 4000,
        "internal_metadata_log_segment_bytes": 8192,
        "internal_metadata_max_batch_size_in_bytes": 8192,
        "metadata_max_retention_bytes": 20_000,
    }

    async def run():
        async with members(tmp_path, 3, **small) as quorum:
            leader = await quorum.leader()
            behind = next(quorum.followers())
            await quorum.crash(behind.node_id)
            for index in range(120):
                await leader.propose([b"%04d" % index * 100])
                await leader._log.snapshots.finish()
            assert leader._log.log.log_start_offset > 0
            back = await quorum.start(behind.node_id)
            await back.read_barrier()
            calls = quorum.machine(back).calls
            restored = next(index for index, call in enumerate(calls) if call[0] == "restore")
            assert all(call[0] != "apply" for call in calls[:restored])
            assert quorum.machine(back).commands == quorum.machine(leader).commands
            assert not quorum.machine(leader).named("restore")

    asyncio.run(run())
