from __future__ import annotations

from kraftlog.partitioner import coordinator_partition, java_string_hash, key_partition, murmur2
from wire_facts import GOLDEN, rows


def test_partitioner_vectors_agree():
    keys = ids = 0
    for row in rows(GOLDEN / "vectors/partitioner.jsonl.gz"):
        if "keyHex" in row:
            key = bytes.fromhex(row["keyHex"])
            assert murmur2(key) == row["murmur2"]
            for name, partition in row.items():
                if name[0] == "p":
                    assert key_partition(key, int(name[1:])) == partition
            keys += 1
        else:
            assert java_string_hash(row["id"]) == row["javaHash"]
            assert coordinator_partition(row["id"], 50) == row["coordinatorPartition50"]
            ids += 1
    assert (keys, ids) == (120, 12)
