"""What users get wrong: commands that are no bytes, misspelt settings, calls too early, too late or from within."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import DeadlineError, NodeClosedError
from kraftlog.node.config import ConfigError
from kraftlog.quorum import Quorum, SessionMachine
from quorum_api_fixture import Journal


def alone(path, machine=None, **options):
    return Quorum(machine or Journal(), data_dir=path / "data", timeout_s=20, **options)


@pytest.mark.parametrize("commands", [["text"], "text", b"bytes", [b"fine", "text"], [None], [3]], ids=repr)
def test_commands_that_are_no_bytes_are_refused_and_the_replica_lives(tmp_path, commands):
    journal = Journal()
    with alone(tmp_path, journal) as quorum:
        with pytest.raises(TypeError, match="each of bytes"):
            quorum.propose(commands)
        with pytest.raises(ValueError, match="no commands"):
            quorum.propose([])
        quorum.propose([b"a"])
        assert quorum.failure is None
        assert journal.commands == [b"a"]


def test_what_is_applied_is_what_was_proposed_whatever_becomes_of_its_memory(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            command = bytearray(b"before")
            commands = [command, memoryview(command)]
            proposing = asyncio.create_task(quorum.propose(commands))
            await asyncio.sleep(0)
            command[:] = b"after!"
            commands.append(b"more")
            await proposing
            assert journal.commands == [b"before", b"before"]
            assert {type(command) for command in journal.commands} == {bytes}

    asyncio.run(run())


def test_a_session_takes_what_a_proposal_takes(tmp_path):
    journal = Journal()
    with alone(tmp_path, SessionMachine(journal)) as quorum, quorum.open_session() as session:
        for commands in (["text"], b"bytes", [3]):
            with pytest.raises(TypeError, match="each of bytes"):
                session.call(commands)
        with pytest.raises(ValueError, match="no commands"):
            session.call([])
        assert session.call([b"a", bytearray(b"b")]) == [0, 1]
        assert quorum.call([b"c"]) == [2]
    assert journal.commands == [b"a", b"b", b"c"]


def test_a_session_without_a_machine_for_it_proposes_nothing(tmp_path):
    """What opens a session would be a command that the machine cannot read."""
    journal = Journal()
    with alone(tmp_path, journal) as quorum:
        with pytest.raises(TypeError, match="SessionMachine"):
            quorum.open_session()
        quorum.propose([b"a"])
    assert journal.commands == [b"a"]


def test_misspelt_setting_does_not_pass_for_one(tmp_path):
    with pytest.raises(TypeError, match="did you mean timeout_s"):
        alone(tmp_path, timout_s=3)
    with pytest.raises(ConfigError, match="unknown settings: "):
        alone(tmp_path, config={"controller.quorum.fetch.timout.ms": 1}).start()
    alone(tmp_path, controller_quorum_fetch_timeout_ms=2000).start().close()


def test_quorum_that_does_not_run_says_so(tmp_path):
    quorum = alone(tmp_path)
    for read in (
        lambda: quorum.epoch,
        lambda: quorum.leader_id,
        lambda: quorum.address,
        lambda: quorum.directory_id,
        lambda: quorum.applied_end_offset,
        lambda: quorum.propose([b"a"]),
        quorum.read_barrier,
    ):
        with pytest.raises(NodeClosedError):
            read()
    assert (quorum.is_leader, quorum.failure) == (False, None)
    quorum.start()
    with pytest.raises(RuntimeError, match="runs already"):
        quorum.start()
    assert quorum.propose([b"a"]) > 0
    quorum.close()
    quorum.close()
    with pytest.raises(NodeClosedError):
        quorum.propose([b"b"])


def test_call_from_within_the_state_machine_is_refused_instead_of_waiting_for_itself(tmp_path):
    class Curious(Journal):
        quorum: Quorum

        def apply(self, batch):
            super().apply(batch)
            refused = 0
            for call in (lambda: self.quorum.propose([b"again"]), self.quorum.read_barrier, self.quorum.close):
                with pytest.raises(RuntimeError, match="use another thread"):
                    call()
                refused += 1
            return [refused]

    machine = Curious()
    machine.quorum = alone(tmp_path, machine)
    with machine.quorum as quorum:
        assert quorum.call([b"a"]) == [3]


def test_impatient_reader_does_not_take_the_time_of_one_who_asks_at_the_same_moment(tmp_path):
    async def run():
        async with alone(tmp_path, join=["127.0.0.1:1"], auto_join=False) as quorum:
            loop = asyncio.get_running_loop()
            began_s = loop.time()

            async def waited_s(timeout_s):
                with pytest.raises(DeadlineError):
                    await quorum.read_barrier(timeout_s=timeout_s)
                return loop.time() - began_s

            short_s, long_s = await asyncio.gather(waited_s(0.05), waited_s(0.6))
            assert short_s < 0.5
            assert long_s >= 0.6

    asyncio.run(run())
