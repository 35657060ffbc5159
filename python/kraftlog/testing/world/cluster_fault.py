"""Faults of a whole cluster: each kind draws its arguments beforehand, happens, and is taken back after a while.

A run is then a list of faults, from which one can be left out without another being drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, METADATA_VERSION
from kraftlog.testing.scenario import ScheduledFault, Value
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.drawn_settings import DEFAULT, draw_broker_setting, draw_topic_setting
from kraftlog.vocabulary import ConfigResourceType

__all__ = ["CHANGES", "FAULTS", "draw_changes", "draw_faults", "draw_moves", "draw_settings", "happen"]

_MOST_INDEX = 60
# With one voter less a majority of these can still lose one.
_LEAST_VOTERS = 3
_UPGRADED = (METADATA_VERSION, KRAFT_VERSION, "transaction.version", ELIGIBLE_LEADER_REPLICAS_VERSION)
_MOST_CHANGES = 6
_MOST_SETTINGS = 10
# A partition is moved to so many replicas at least, if it had as many.
_LEAST_REPLICAS = 2
_MOST_PARTITIONS = 8
_MOST_MOVES = 6


class _Target:
    """The nodes that the arguments of a fault mean."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def node(self, which: Value) -> str | None:
        """``controller`` and ``leader`` as they are now, or a number that counts the nodes that run."""
        cluster = self.cluster
        up = [name for name, machine in cluster.nodes.items() if machine.is_running]
        if which == "controller":
            return cluster.controller
        if isinstance(which, str):
            leaders = sorted({name for name in up for _ in cluster.led_by(name)})
            return leaders[int(which.removeprefix("leader")) % len(leaders)] if leaders else None
        return up[int(which) % len(up)] if up else None

    def other(self, name: str, which: int) -> str:
        """Another machine, a client among them."""
        others = sorted(other for other in self.cluster.world.machines if other != name)
        return others[which % len(others)]

    def partition(self, which: int) -> tuple[str, int, tuple[int, ...]] | None:
        """Topic, index and replicas of a partition by a number that counts those that the active controller knows."""
        known = self.cluster.assignments()
        return known[which % len(known)] if known else None

    def topic(self, which: int) -> tuple[str, int] | None:
        """Name and number of partitions of a topic that may get more, by a number that counts those."""
        counts = self.cluster.growing_topics()
        return sorted(counts.items())[which % len(counts)] if counts else None

    def later(self, after_ms: int, action: Callable[[], None]) -> None:
        """Take a fault back, unless faults are over by then, when everything has been taken back."""
        cluster = self.cluster
        cluster.world.after_ms(after_ms, lambda: None if cluster.is_quiet else action())


def _kill(target: _Target, *, node: Value, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.kill(name)
    target.later(for_ms, lambda: target.cluster.start(name))
    return True


def _shut_down(target: _Target, *, node: Value, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    cluster = target.cluster

    def ended() -> None:
        if cluster.is_quiet:
            cluster.start(name)
        else:
            target.later(for_ms, lambda: cluster.start(name))

    cluster.shut_down(name, then=ended)
    return True


def _power_off(target: _Target, *, node: Value, data: Any, names: Any, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.power_off(name, data=data, names=names)
    target.later(for_ms, lambda: target.cluster.start(name))
    return True


def _power_off_after(target: _Target, *, node: Value, changes: int, data: Any, names: Any, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    cluster = target.cluster
    cluster.power_off_after(
        name, changes, data=data, names=names, then=lambda: target.later(for_ms, lambda: cluster.start(name))
    )
    return True


def _power_off_all(target: _Target, *, data: Any, names: Any, for_ms: int) -> bool:
    for index, name in enumerate(target.cluster.nodes):
        target.cluster.power_off(name, data=data, names=names)
        target.later(for_ms * (1 + index % 3), lambda name=name: target.cluster.start(name))  # type: ignore[misc]
    return True


def _pause(target: _Target, *, node: Value, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.pause(name)
    target.later(for_ms, lambda: target.cluster.resume(name))
    return True


def _isolate(target: _Target, *, node: Value, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.isolate(name)
    target.later(for_ms, lambda: target.cluster.mend_links(name))
    return True


def _cut(target: _Target, *, node: Value, to: int, both_ways: int, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    other = target.other(name, to)
    target.cluster.cut(name, other, both_ways=bool(both_ways))
    target.later(for_ms, lambda: target.cluster.mend_links(name, other))
    return True


def _slow_link(target: _Target, *, node: Value, to: int, extra_ms: int, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    other = target.other(name, to)
    target.cluster.slow_down(name, other, extra_ms)
    target.later(for_ms, lambda: target.cluster.slow_down(name, other, 0))
    return True


def _hold_up(target: _Target, *, share: float, most_ms: int, for_ms: int) -> bool:
    target.cluster.hold_up(share, most_ms)
    target.later(for_ms, lambda: target.cluster.hold_up(0.0, 0.0))
    return True


def _reset(target: _Target, *, node: Value, to: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.reset(name, target.other(name, to))
    return True


def _break_frame(target: _Target, *, node: Value, to: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.break_within_frame(name, target.other(name, to))
    return True


def _jump_clock(target: _Target, *, node: Value, by_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.jump_clock(name, by_ms)
    return True


def _skew_clock(target: _Target, *, node: Value, rate: float) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.skew_clock(name, rate)
    return True


def _slow_disk(target: _Target, *, node: Value, most_ms: int, for_ms: int) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.slow_disk(name, most_ms)
    target.later(for_ms, lambda: target.cluster.slow_disk(name, None))
    return True


def _fail_disk(target: _Target, *, node: Value, operation: Any, after: int, for_ms: int, disk: int = 0) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.fail_disk(name, operation, after=after, disk=target.cluster.disk_of(name, disk))
    target.later(for_ms, lambda: target.cluster.restart_mended(name))
    return True


def _fill_disk(target: _Target, *, node: Value, for_ms: int, disk: int = 0) -> bool:
    name = target.node(node)
    if name is None:
        return False
    target.cluster.fill_disk(name, target.cluster.disk_of(name, disk))
    target.later(for_ms, lambda: target.cluster.restart_mended(name))
    return True


def _spoil(target: _Target, *, node: Value, kind: Any, for_ms: int, disk: int = 0) -> bool:
    name = target.node(node)
    if name is None:
        return False
    index = target.cluster.disk_of(name, disk)
    if not target.cluster.may_lose(name, index) or target.cluster.spoil(name, kind, disk=index) is None:
        return False
    target.later(for_ms, lambda: target.cluster.restart_mended(name))
    return True


def _replace_disk(target: _Target, *, node: Value, for_ms: int, disk: int = 0) -> bool:
    name = target.node(node)
    if name is None:
        return False
    index = target.cluster.disk_of(name, disk)
    if not target.cluster.may_lose(name, index):
        return False
    target.cluster.replace_disk(name, index)
    target.later(for_ms, lambda: target.cluster.start(name))
    return True


def _change_voters(target: _Target, *, node: int, for_ms: int) -> bool:
    cluster = target.cluster
    controllers = [name for name, machine in cluster.nodes.items() if "controller" in machine.roles]
    if len(controllers) < _LEAST_VOTERS:
        return False
    name = controllers[node % len(controllers)]
    cluster.remove_voter(name)
    # Also once faults are over: every controller is a voter at the end.
    cluster.world.after_ms(for_ms, lambda: cluster.add_voter(name))
    return True


def _upgrade(target: _Target, *, feature: str) -> bool:
    if not target.cluster.has_features:
        return False
    target.cluster.update_feature(feature)
    return True


def _move(target: _Target, *, partition: int, to: int, fewer: int) -> bool:
    found = target.partition(partition)
    if found is None:
        return False
    topic, index, replicas = found
    brokers = sorted(machine.node_id for machine in target.cluster.nodes.values() if "broker" in machine.roles)
    count = max(min(_LEAST_REPLICAS, len(replicas)), len(replicas) - fewer)
    target.cluster.move_partition(topic, index, [brokers[(to + each) % len(brokers)] for each in range(count)])
    return True


def _cancel_move(target: _Target, *, partition: int) -> bool:
    found = target.partition(partition)
    if found is None:
        return False
    target.cluster.cancel_move(*found[:2])
    return True


def _move_directory(target: _Target, *, partition: int, replica: int, disk: int) -> bool:
    found = target.partition(partition)
    if found is None:
        return False
    topic, index, replicas = found
    broker_id = replicas[replica % len(replicas)]
    name = next(name for name, machine in target.cluster.nodes.items() if machine.node_id == broker_id)
    if len(target.cluster.nodes[name].disks) == 1:
        return False
    target.cluster.move_directory(name, topic, index, target.cluster.disk_of(name, disk))
    return True


def _grow(target: _Target, *, topic: int, by: int) -> bool:
    found = target.topic(topic)
    if found is None:
        return False
    name, count = found
    if count + by > _MOST_PARTITIONS:
        return False
    target.cluster.grow_topic(name, count + by)
    return True


def _configure_topic(target: _Target, *, topic: int, name: str, value: Value) -> bool:
    known = sorted({each for each, _, _ in target.cluster.assignments()})
    if not known:
        return False
    target.cluster.configure(ConfigResourceType.TOPIC, known[topic % len(known)], name, _text(value))
    return True


def _configure_broker(target: _Target, *, broker: int, name: str, value: Value) -> bool:
    if not target.cluster.has_features:
        return False
    # The cluster-wide default among them.
    brokers = sorted(machine.node_id for machine in target.cluster.nodes.values() if "broker" in machine.roles)
    resource = ("", *map(str, brokers))[broker % (len(brokers) + 1)]
    target.cluster.configure(ConfigResourceType.BROKER, resource, name, _text(value))
    return True


def _text(value: Value) -> str | None:
    return None if value == DEFAULT else str(value)


def _elect(target: _Target, *, partition: int) -> bool:
    found = target.partition(partition)
    if found is None:
        return False
    target.cluster.elect_preferred(*found[:2])
    return True


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a fault is drawn, and how it happens."""

    draw: Callable[[Random], dict[str, Value]]
    happen: Callable[..., bool]


def _node(rng: Random) -> Value:
    return rng.choice(("controller", f"leader{rng.randrange(_MOST_INDEX)}", rng.randrange(_MOST_INDEX)))


def _ms(rng: Random, least_ms: int = 100, most_ms: int = 9000) -> int:
    return int(min(most_ms, least_ms + rng.expovariate(3 / most_ms)))


def _damage(rng: Random) -> dict[str, Value]:
    return {
        "data": rng.choice(("nothing", "everything", "suffix", "torn", "pages", "contents")),
        "names": rng.choice(("nothing", "everything", "suffix", "any")),
    }


def _link(rng: Random) -> dict[str, Value]:
    return {"node": _node(rng), "to": rng.randrange(_MOST_INDEX)}


def _disk(rng: Random) -> dict[str, Value]:
    return {"disk": rng.randrange(_MOST_INDEX)}


FAULTS: dict[str, _Kind] = {
    "kill": _Kind(lambda rng: {"node": _node(rng), "for_ms": _ms(rng)}, _kill),
    "shut_down": _Kind(lambda rng: {"node": _node(rng), "for_ms": _ms(rng)}, _shut_down),
    "power_off": _Kind(lambda rng: {"node": _node(rng), **_damage(rng), "for_ms": _ms(rng)}, _power_off),
    "power_off_after": _Kind(
        lambda rng: {
            "node": _node(rng),
            "changes": rng.choice((rng.randrange(4), rng.randrange(40), rng.randrange(400))),
            **_damage(rng),
            "for_ms": _ms(rng),
        },
        _power_off_after,
    ),
    "power_off_all": _Kind(lambda rng: {**_damage(rng), "for_ms": _ms(rng)}, _power_off_all),
    "pause": _Kind(lambda rng: {"node": _node(rng), "for_ms": _ms(rng)}, _pause),
    "isolate": _Kind(lambda rng: {"node": _node(rng), "for_ms": _ms(rng)}, _isolate),
    "cut": _Kind(lambda rng: {**_link(rng), "both_ways": rng.randrange(2), "for_ms": _ms(rng)}, _cut),
    "slow_link": _Kind(
        lambda rng: {**_link(rng), "extra_ms": rng.choice((20, 200, 1000)), "for_ms": _ms(rng)}, _slow_link
    ),
    "hold_up": _Kind(
        lambda rng: {"share": rng.choice((0.01, 0.1, 0.5)), "most_ms": rng.choice((50, 1000)), "for_ms": _ms(rng)},
        _hold_up,
    ),
    "reset": _Kind(_link, _reset),
    "break_frame": _Kind(_link, _break_frame),
    "jump_clock": _Kind(
        lambda rng: {"node": _node(rng), "by_ms": rng.choice((-3_600_000, -1500, 1500, 60_000, 86_400_000))},
        _jump_clock,
    ),
    "skew_clock": _Kind(lambda rng: {"node": _node(rng), "rate": rng.choice((0.8, 0.95, 1.05, 1.25))}, _skew_clock),
    "slow_disk": _Kind(
        lambda rng: {"node": _node(rng), "most_ms": rng.choice((20, 200, 1500)), "for_ms": _ms(rng)}, _slow_disk
    ),
    "fail_disk": _Kind(
        lambda rng: {
            "node": _node(rng),
            "operation": rng.choice(("read", "write", "sync", "sync", "open", "change")),
            "after": rng.choice((0, 1, rng.randrange(100))),
            **_disk(rng),
            "for_ms": _ms(rng),
        },
        _fail_disk,
    ),
    "fill_disk": _Kind(lambda rng: {"node": _node(rng), **_disk(rng), "for_ms": _ms(rng)}, _fill_disk),
    "spoil": _Kind(
        lambda rng: {
            "node": _node(rng),
            "kind": rng.choice(("rot", "misdirected")),
            **_disk(rng),
            "for_ms": _ms(rng),
        },
        _spoil,
    ),
    "replace_disk": _Kind(lambda rng: {"node": _node(rng), **_disk(rng), "for_ms": _ms(rng)}, _replace_disk),
}
# What an operator does while faults happen.
CHANGES: dict[str, _Kind] = {
    "change_voters": _Kind(lambda rng: {"node": rng.randrange(_MOST_INDEX), "for_ms": _ms(rng)}, _change_voters),
    "elect": _Kind(lambda rng: {"partition": rng.randrange(_MOST_INDEX)}, _elect),
    "grow": _Kind(lambda rng: {"topic": rng.randrange(_MOST_INDEX), "by": rng.randrange(1, 4)}, _grow),
    "move": _Kind(
        lambda rng: {
            "partition": rng.randrange(_MOST_INDEX),
            "to": rng.randrange(_MOST_INDEX),
            "fewer": rng.choice((0, 0, 1)),
        },
        _move,
    ),
    "move_directory": _Kind(
        lambda rng: {"partition": rng.randrange(_MOST_INDEX), "replica": rng.randrange(_MOST_INDEX), **_disk(rng)},
        _move_directory,
    ),
    "upgrade": _Kind(lambda rng: {"feature": rng.choice(_UPGRADED)}, _upgrade),
}


SETTINGS: dict[str, _Kind] = {
    "configure_broker": _Kind(
        lambda rng: {"broker": rng.randrange(_MOST_INDEX), **draw_broker_setting(rng)}, _configure_broker
    ),
    "configure_topic": _Kind(
        lambda rng: {"topic": rng.randrange(_MOST_INDEX), **draw_topic_setting(rng)}, _configure_topic
    ),
}
# Drawn with the move that it may end.
_CANCEL_MOVE = "cancel_move"
_DRAWN_WITH_OTHERS = {_CANCEL_MOVE: _Kind(lambda _: {}, _cancel_move)}
_KINDS = FAULTS | CHANGES | SETTINGS | _DRAWN_WITH_OTHERS


def happen(cluster: Cluster, fault: ScheduledFault) -> bool:
    """Let a fault happen; False when it cannot now, as there is no such node or too much would be lost."""
    return _KINDS[fault.kind].happen(_Target(cluster), **dict(fault.arguments))


def draw_faults(rng: Random, *, begin_ms: int) -> tuple[ScheduledFault, ...]:
    """Draw which kinds of fault a run has, how often each, and the faults.

    Args:
        rng: Source of chance.
        begin_ms: When the first may happen.
    """
    drawable = sorted(FAULTS)
    kinds = rng.sample(drawable, rng.randrange(2, len(drawable) // 2))
    weights = [rng.expovariate(1.0) for _ in kinds]
    mean_ms = rng.choice((400, 1500, 5000))
    at_ms, faults = float(begin_ms), []
    for _ in range(rng.choice((5, 15, 30))):
        at_ms += rng.expovariate(1 / mean_ms)
        kind = rng.choices(kinds, weights)[0]
        faults.append(ScheduledFault(int(at_ms), kind, tuple(FAULTS[kind].draw(rng).items())))
    return tuple(faults)


def draw_changes(rng: Random, *, begin_ms: int, end_ms: int) -> tuple[ScheduledFault, ...]:
    """Draw what an operator changes in a run: in half of the runs nothing.

    Args:
        rng: Source of chance.
        begin_ms: When the first may happen.
        end_ms: When the last may happen.
    """
    count = rng.choice((0, rng.randrange(1, _MOST_CHANGES + 1)))
    kinds = sorted(CHANGES)
    drawn = []
    for _ in range(count):
        kind = rng.choice(kinds)
        at_ms = rng.randrange(begin_ms, max(begin_ms + 1, end_ms))
        drawn.append(ScheduledFault(at_ms, kind, tuple(CHANGES[kind].draw(rng).items())))
    return tuple(sorted(drawn, key=lambda change: change.at_ms))


def draw_moves(rng: Random, *, begin_ms: int, end_ms: int) -> tuple[ScheduledFault, ...]:
    """Draw moves of partitions, most of which are given up soon after: in one run of four.

    Without faults a new replica is in sync after some ten milliseconds.

    Args:
        rng: Source of chance.
        begin_ms: When the first may begin.
        end_ms: When the last may begin.
    """
    drawn: list[ScheduledFault] = []
    for _ in range(rng.choice((0, 0, 0, rng.randrange(1, _MOST_MOVES + 1)))):
        at_ms = rng.randrange(begin_ms, max(begin_ms + 1, end_ms))
        # As soon as there are fewer replicas than brokers, a move has new ones.
        arguments = CHANGES["move"].draw(rng) | {"fewer": rng.randrange(2)}
        drawn.append(ScheduledFault(at_ms, "move", tuple(arguments.items())))
        if rng.randrange(3):
            after_ms = rng.choice((1, 1, 20, 100, 500, 2000))
            drawn.append(ScheduledFault(at_ms + after_ms, _CANCEL_MOVE, (("partition", arguments["partition"]),)))
    return tuple(sorted(drawn, key=lambda change: change.at_ms))


def draw_settings(rng: Random, *, begin_ms: int, end_ms: int) -> tuple[ScheduledFault, ...]:
    """Draw which settings of topics and brokers an operator changes in a run: in half of the runs none.

    Args:
        rng: Source of chance.
        begin_ms: When the first may be changed.
        end_ms: When the last may be changed.
    """
    drawn = []
    for _ in range(rng.choice((0, rng.randrange(1, _MOST_SETTINGS + 1)))):
        kind = rng.choice(("configure_broker", "configure_topic", "configure_topic"))
        at_ms = rng.randrange(begin_ms, max(begin_ms + 1, end_ms))
        drawn.append(ScheduledFault(at_ms, kind, tuple(SETTINGS[kind].draw(rng).items())))
    return tuple(sorted(drawn, key=lambda change: change.at_ms))
