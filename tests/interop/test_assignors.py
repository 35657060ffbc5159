"""The server-side assignors of consumer groups against Kafka's own classes, on random groups."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from interop.harness import HERE, Java
from kraftlog.coordinator.group.assignors import ASSIGNORS, GroupSpec, MemberSpec
from kraftlog.coordinator.group.assignors.java_order import string_order
from kraftlog.types import Uuid

CASES = 2_000
PARTITION_COUNTS = (0, 1, 2, 3, 7, 16, 40)


@dataclass(frozen=True)
class Case:
    assignor: str
    group: GroupSpec

    def to_json(self) -> str:
        members = [
            {
                "id": member_id,
                "topics": [str(topic) for topic in member.topics],
                "assigned": {str(topic): list(parts) for topic, parts in member.assigned.items()},
                "instance": member.instance_id,
            }
            for member_id, member in self.group.members.items()
        ]
        topics = {str(topic): count for topic, count in self.group.partition_counts.items()}
        homogeneous = self.group.is_homogeneous
        case = {"assignor": self.assignor, "topics": topics, "members": members, "homogeneous": homogeneous}
        return json.dumps(case)

    def result(self) -> dict[str, dict[str, list[int]]]:
        targets = ASSIGNORS[self.assignor](self.group)
        return {m: {str(t): sorted(p) for t, p in target.items()} for m, target in targets.items() if target}


def random_case(rng: random.Random) -> Case:
    counts = {Uuid(rng.randbytes(16)): rng.choice(PARTITION_COUNTS) for _ in range(rng.choice((1, 1, 2, 3, 5, 20)))}
    topics = list(counts)
    is_homogeneous = rng.random() < 0.5
    ids = dict.fromkeys(rng.choice((rng.randbytes(16).hex(), f"m{i}", chr(65 + i))) for i in range(rng.randint(1, 20)))
    members: dict[str, tuple[list[Uuid], dict[Uuid, list[int]]]] = {
        member_id: (topics if is_homogeneous else rng.sample(topics, rng.randint(0, len(topics))), {})
        for member_id in string_order(ids)
    }
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    for topic, partition in rng.sample(partitions, int(len(partitions) * rng.choice((0, 0.3, 0.9, 1)))):
        members[rng.choice(list(members))][1].setdefault(topic, []).append(partition)
    if rng.random() < 0.2:
        members[rng.choice(list(members))][1][Uuid(rng.randbytes(16))] = [0, 1]
    specs = {
        member_id: MemberSpec(
            topics=subscribed, assigned=assigned, instance_id=rng.choice((None, None, f"i-{member_id}"))
        )
        for member_id, (subscribed, assigned) in members.items()
    }
    group = GroupSpec(members=specs, partition_counts=counts, is_homogeneous=is_homogeneous)
    return Case(rng.choice(("uniform", "range")), group)


def test_both_assignors_give_what_kafka_gives(java: Java) -> None:
    """NGRP-58, NGRP-63, NGRP-64, NGRP-65, NGRP-68, NGRP-69, NGRP-71, NGRP-72."""
    rng = random.Random(848)
    cases = [random_case(rng) for _ in range(CASES)]
    source = str(HERE / "java" / "AssignGroups.java")
    done = java.run(source, text_input="\n".join(case.to_json() for case in cases))
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        expected = {member: target for member, target in json.loads(line).items() if target}
        assert case.result() == expected, case.to_json()
