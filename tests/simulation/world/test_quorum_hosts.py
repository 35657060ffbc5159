"""Hosts of many quorums under drawn faults, in virtual time: each quorum's commands are one list."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kraftlog.errors import KraftlogError
from kraftlog.quorum.quorum_host import QuorumHost
from kraftlog.quorum.state_machine import StateMachine
from kraftlog.testing.world.history import CommandHistory
from kraftlog.testing.world.node_machine import CONTROLLER_PORT
from kraftlog.testing.world.quorum_cluster import QuorumCluster, QuorumMachine
from kraftlog.testing.world.swarm import draw, run

NAMES = ("one", "two", "three", "four")
TIMEOUT_S = 3.0


class Commands(StateMachine):
    """Keeps commands with their offsets, and tells a history of them."""

    def __init__(self, name, history):
        self.name, self.history, self.commands = name, history, []

    def apply(self, batch):
        for offset, command in batch:
            self.history.applied(self.name, offset, command)
            self.commands.append((offset, command))

    def snapshot(self):
        return [b"%d %b" % pair for pair in self.commands]

    def restore(self, records):
        self.commands = []
        for record in records:
            offset, _, command = record.partition(b" ")
            self.history.applied(self.name, int(offset), command)
            self.commands.append((int(offset), command))


class HostMachine(QuorumMachine):
    """A node with a host, and a client per quorum."""

    histories = None

    def start_node(self):
        loop = self.loop if self.node is None else self.start()
        host = self.node = self.quorum_host = QuorumHost(
            data_dir=self.data_path,
            node_id=self.node_id,
            voters=self.voters,
            timeout_s=TIMEOUT_S,
            threads=2,
            config=self.settings,
        )
        self.start_count += 1
        self.exit_error, self.is_shutting_down = None, False
        self.opened = {}
        self.start_task = loop.create_task(self.open_all(host))
        self.start_task.add_done_callback(lambda started: self._started(host, started))

    @property
    def replicated_log(self):
        return None

    async def open_all(self, host):
        await host.start()
        try:
            for name in NAMES:
                machine = Commands(self.name, self.histories[name])
                self.opened[name] = (await host.open(name, machine), machine)
        except BaseException:
            await host.close()
            raise
        for name in NAMES:
            asyncio.get_running_loop().create_task(self.use(name, *self.opened[name]))

    async def use(self, name, quorum, machine):
        history, number = self.histories[name], 0
        while not self.is_quiet() and not self.is_shutting_down:
            number += 1
            command = f"{self.name} {self.start_count} {number}".encode()
            history.proposed(command, self.world.now_ns)
            try:
                offset = await quorum.propose([command])
            except KraftlogError as error:
                if not getattr(error, "may_be_committed", True):
                    history.refused(command)
            else:
                history.committed(command, offset, self.world.now_ns)
            begun_ns = self.world.now_ns
            try:
                await quorum.read_barrier()
            except KraftlogError:
                pass
            else:
                history.read([offset for offset, _ in machine.commands[-1:]], begun_ns, self.world.now_ns)
            await asyncio.sleep(0.2)

    async def _close_node(self):
        await self.quorum_host.close()

    async def _follow(self, node):
        failing = [asyncio.ensure_future(quorum.wait_failed()) for quorum, _ in self.opened.values()]
        try:
            done, _ = await asyncio.wait(failing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in failing:
                each.cancel()
        await node.close()
        self._exit(next(iter(done)).result())


class HostCluster(QuorumCluster):
    """Three or more hosts."""

    def _make_machines(self, shape):
        self.histories = {name: CommandHistory() for name in NAMES}
        machines = [
            HostMachine(self.world, f"host-{number}", node_id=number, history=self.history)
            for number in range(1, shape.controllers + 1)
        ]
        voters = {machine.node_id: f"{machine.address}:{CONTROLLER_PORT}" for machine in machines}
        settings = {
            name: value for name, value in (shape.properties or {}).items() if name.startswith("controller.quorum.")
        }
        for machine in machines:
            machine.voters, machine.settings, machine.histories = voters, settings, self.histories
            machine.is_quiet = lambda: self.is_quiet
        return machines

    @property
    def controller(self):
        return None

    def _after_turn(self, machine):
        for history in self.histories.values():
            history.check_so_far()
        super()._after_turn(machine)

    def what_is_missing(self):
        for name in NAMES:
            if not all(machine.is_serving and name in machine.opened for machine in self.nodes.values()):
                return "INV-34", "not every host serves"
            quorums = [machine.opened[name][0] for machine in self.nodes.values()]
            if sum(quorum.is_leader for quorum in quorums) != 1:
                return "INV-34", f"no replica leads {name}"
            if len({quorum.applied_end_offset for quorum in quorums}) > 1:
                return "INV-36", f"not all of {name} is applied"
        return None


async def proposals(cluster):
    """What clients do is done by the hosts; at the end each history is in order."""
    while not cluster.is_quiet:  # noqa: ASYNC110  nobody tells it
        await asyncio.sleep(0.1)
    for _ in range(2):
        while cluster.what_is_missing() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * TIMEOUT_S)
    for history in cluster.histories.values():
        history.check()
    cluster.tell("client", f"{[history.committed_count for history in cluster.histories.values()]} were committed")


def drawn(seed):
    """A drawn run; its operator, whose requests name no quorum, changes no voters."""
    scenario = draw(seed)
    return replace(scenario, faults=tuple(fault for fault in scenario.faults if fault.kind != "change_voters"))


@pytest.mark.parametrize("seed", [3, 11, 15, 34])
def test_quorums_of_a_host_outlive_drawn_faults(seed):
    outcome = run(drawn(seed), proposals, cluster_type=HostCluster)
    assert outcome.error is None, f"{outcome.scenario}\n" + "\n".join(outcome.story[-40:])
    assert any("were committed" in line for line in outcome.story)
