from __future__ import annotations

import pytest

from kraftlog._kraftlog import murmur2
from kraftlog.partitioner import coordinator_partition, java_string_hash, key_partition
from wire_facts import GOLDEN, rows


def test_partitioner_vectors_agree():
    keys = ids = 0
    for row in rows(GOLDEN / "vectors/partitioner.jsonl.gz"):
        if "keyHex" in row:
            key = bytes.fromhex(row["keyHex"])
            assert murmur2(key) == murmur2(bytearray(key)) == row["murmur2"]
            for name, partition in row.items():
                if name[0] == "p":
                    assert key_partition(key, int(name[1:])) == partition
            keys += 1
        else:
            assert java_string_hash(row["id"]) == row["javaHash"]
            assert coordinator_partition(row["id"], 50) == row["coordinatorPartition50"]
            ids += 1
    assert (keys, ids) == (120, 12)


@pytest.mark.spec("CGRP-01", "TXNC-01")
@pytest.mark.parametrize(
    ("group_id", "java_hash", "partition"),
    # Kafka's absolute value of the least integer is 0.
    [("", 0, 0), ("g", 103, 3), ("polygenelubricants", -(2**31), 0)],
)
def test_a_group_belongs_to_the_absolute_hash_of_its_id_modulo_the_partitions(group_id, java_hash, partition):
    assert java_string_hash(group_id) == java_hash
    assert coordinator_partition(group_id, 50) == partition
