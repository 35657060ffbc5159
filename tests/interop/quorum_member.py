"""A process with one replica of a ``kraftlog.Quorum``: a line of JSON in, a line of JSON out.

    python quorum_member.py '{"node_id": 1, "data_dir": ..., "voters": {"1": "127.0.0.1:7001"}}' [busy]

With ``busy`` a thread computes in pure Python without pause beside it.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import kraftlog
from kraftlog.errors import KraftlogError


class Register(kraftlog.StateMachine):
    """A last value and a count."""

    def __init__(self):
        self.value, self.count = b"", 0

    def apply(self, batch):
        self.value = batch.commands[-1]
        self.count += len(batch)
        return [self.count - len(batch) + index + 1 for index in range(len(batch))]

    def snapshot(self):
        return [json.dumps([self.value.decode(), self.count]).encode()]

    def restore(self, records):
        value, self.count = json.loads(records[0])
        self.value = value.encode()


def compute(laps):
    """What a user does that never lets go of the interpreter by itself."""
    number = 1
    while True:
        for _ in range(100_000):
            number = (number * 1_103_515_245 + 12_345) % 2_147_483_648
        laps[0] += 1


def load(quorum, seconds, pause_s):
    """Propose one command after the other; return each latency in ms and what failed."""
    latencies, failures = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        try:
            quorum.propose([b"%d" % len(latencies)], timeout_s=60)
        except KraftlogError as error:
            failures.append(repr(error))
        latencies.append((time.perf_counter() - begun) * 1000)
        time.sleep(pause_s)
    return {"latencies": sorted(latencies), "failures": failures}


def main():
    options = json.loads(sys.argv[1])
    options["voters"] = {int(node_id): address for node_id, address in options.get("voters", {}).items()}
    laps = [0]
    if "busy" in sys.argv[2:]:
        threading.Thread(target=compute, args=(laps,), daemon=True).start()
    register = Register()
    with kraftlog.Quorum(register, **options) as quorum:
        print(json.dumps({"address": quorum.address, "directory_id": quorum.directory_id}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            try:
                match request["do"]:
                    case "call":
                        (answer,) = quorum.call([request["command"].encode()], timeout_s=request.get("timeout_s"))
                    case "read":
                        quorum.read_barrier(timeout_s=request.get("timeout_s"))
                        answer = [register.value.decode(), register.count]
                    case "load":
                        answer = load(quorum, request["seconds"], request["pause_s"])
                    case "status":
                        answer = {
                            "is_leader": quorum.is_leader,
                            "leader_id": quorum.leader_id,
                            "epoch": quorum.epoch,
                            "applied": quorum.applied_end_offset,
                            "laps": laps[0],
                        }
                    case "voters":
                        answer = [voter.replica_id for voter in quorum.describe().voters]
                    case "join":
                        answer = quorum.add_voter()
                    case "leave":
                        answer = quorum.remove_voter()
                    case other:
                        raise ValueError(other)
                print(json.dumps({"answer": answer}), flush=True)
            except KraftlogError as error:
                print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)


if __name__ == "__main__":
    main()
