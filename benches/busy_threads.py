"""A node beside threads that compute keeps its leadership while clients produce.

    python benches/busy_threads.py [--seconds 600] [--threads 2] [--voters 1] [--data-path native] [--rate 1000]
        [--connect]

Every node is a kraftlog.Broker in a process of its own that has ``--threads`` threads of pure Python beside it; all
time-outs are the defaults. With ``--voters 3`` three such nodes are one quorum, and the load goes to its leader. With
``--connect`` the client connects for each request, at most 200 times per second. The script fails if the epoch or the
active controller changed, if a broker's heartbeat came too late, if a request failed, or if the threads stood still.
It prints what it saw as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]

from data_path.servers import EmbeddedNode, LoadError, data_paths, load_program  # noqa: E402

from free_ports import free_port  # noqa: E402
from interop.harness import CLUSTER_ID  # noqa: E402

EPOCH = "raft-metrics.current-epoch"
LEADER = "raft-metrics.current-leader"
ELECTED = "KafkaController.NewActiveControllersCount"
LATE = "KafkaController.TimedOutBrokerHeartbeatCount"
METRICS = [EPOCH, LEADER, ELECTED, LATE]
LEADER_TIMEOUT_S = 60.0
CONNECTS_PER_SECOND = 200  # the kernel keeps the client's port of each for a minute


def voter_configs(count: int) -> list[dict[str, str]]:
    """The settings of a static quorum on loopback; a node alone needs none."""
    if count == 1:
        return [{}]
    ports = [free_port() for _ in range(count)]
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))
    return [
        {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{port}",
            "controller.quorum.voters": voters,
            "default.replication.factor": "1",
        }
        for node_id, port in enumerate(ports, 1)
    ]


def wait_for_leader(members: list[EmbeddedNode]) -> int:
    """The id of the node that all of them follow."""
    end_s = time.monotonic() + LEADER_TIMEOUT_S
    while time.monotonic() < end_s:
        states = [member.state(METRICS) for member in members]
        leaders = {state[LEADER] for state in states}
        if len(leaders) == 1 and -1 not in leaders and len({state[EPOCH] for state in states}) == 1:
            return int(leaders.pop())
        time.sleep(0.2)
    raise SystemExit(f"no leader within {LEADER_TIMEOUT_S:g} s")


def faults(before: list[dict[str, Any]], after: list[dict[str, Any]], report: dict[str, float]) -> list[str]:
    """What went wrong, one sentence each."""
    found = []
    for place, (first, last) in enumerate(zip(before, after, strict=True), 1):
        found += [
            f"node {place}: {name} went from {first[name]} to {last[name]}"
            for name in METRICS
            if first[name] != last[name]
        ]
        still = [old for old, new in zip(first["laps"], last["laps"], strict=True) if new <= old]
        found += [f"node {place}: {len(still)} of its threads stood still"] if still else []
    if report["unanswered"] or report["errors"]:
        found.append(f"{report['unanswered']:.0f} requests unanswered, {report['errors']:.0f} refused")
    return found


def main() -> int:
    """Runs for the time that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--voters", type=int, default=1, choices=(1, 3))
    parser.add_argument("--rate", type=int, default=1000, help="requests per second, one record each")
    parser.add_argument("--connect", action="store_true", help="a connection for each request")
    parser.add_argument("--data-path", default="native")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the nodes end with it
    kind = (data_paths([arguments.data_path]) or ["python"])[0]
    home = Path(tempfile.mkdtemp(prefix="busy-threads-"))
    with contextlib.ExitStack() as ends:
        ends.callback(shutil.rmtree, home, ignore_errors=True)
        members = []
        program = load_program()
        for place, config in enumerate(voter_configs(arguments.voters), 1):
            settings = {"data_dir": str(home / str(place)), "cluster_id": CLUSTER_ID, "config": config}
            members.append(EmbeddedNode(kind, program, busy_threads=arguments.threads, **settings))
            ends.callback(members[-1].close)
        for member in members:
            member.wait_until_ready()
        leader_id = wait_for_leader(members)
        leader = members[leader_id - 1]
        with leader.topics(1, broker_id=leader_id) as topic:
            before = [member.state(METRICS) for member in members]
            rate = min(arguments.rate, CONNECTS_PER_SECOND) if arguments.connect else arguments.rate
            load = {"topics": topic, "rate": rate, "warm": 1.0, "seconds": arguments.seconds}
            mode = "connect" if arguments.connect else "produce"
            try:
                report = leader.load(mode, timeout_s=arguments.seconds + 120, **load)
            except LoadError as error:
                print(error, file=sys.stderr)
                return 1
            after = [member.state(METRICS) for member in members]
    wrong = faults(before, after, report)
    print(
        json.dumps(
            {"data_path": kind, "voters": arguments.voters, "before": before, "after": after, "faults": wrong, **report}
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
