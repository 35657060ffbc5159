"""A broker embedded in a process with threads that compute in pure Python; ends when standard input does.

Takes its options as JSON; prints its address as JSON, and at the end the laps of the threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import kraftlog
from kraftlog.node.config import is_known_key

DATA_PATH = "kraftlog.data.path"


def compute(laps: list[int], place: int, is_over: threading.Event) -> None:
    """Holds the interpreter as long as it is let."""
    value = 1
    while not is_over.is_set():
        for _ in range(100_000):
            value = (value * 1103515245 + 12345) & 0x7FFFFFFF
        laps[place] += 1


def format_voter(data_dir: str, cluster_id: str, config: dict[str, object]) -> None:
    """Formats the directory of one of several static voters: alone, a broker would choose a cluster id of its own."""
    path = Path(data_dir)
    path.mkdir()
    properties = path.with_suffix(".properties")
    lines = {"process.roles": "broker,controller", "controller.listener.names": "CONTROLLER", "log.dirs": data_dir}
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in config.items()}
    properties.write_text("".join(f"{key}={value}\n" for key, value in (lines | given).items()))
    command = [sys.executable, "-m", "kraftlog", "storage", "format", "-t", cluster_id, "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def main(options: dict[str, object]) -> None:
    """Runs until standard input ends."""
    count = int(str(options["busy_threads"]))
    config = {"log.flush.on.ack": False, **dict(options.get("config") or {})}  # type: ignore[call-overload]
    if is_known_key(DATA_PATH):
        config[DATA_PATH] = options["data_path"]
    laps = [0] * count
    is_over = threading.Event()
    threads = [threading.Thread(target=compute, args=(laps, place, is_over), daemon=True) for place in range(count)]
    if "cluster_id" in options and config.get("controller.quorum.voters"):
        format_voter(str(options["data_dir"]), str(options["cluster_id"]), config)
    with kraftlog.Broker(options.get("data_dir"), config=config) as broker:  # type: ignore[arg-type]
        print(json.dumps({"bootstrap": broker.bootstrap_servers}), flush=True)
        for thread in threads:
            thread.start()
        for line in sys.stdin:  # each line asks for the state
            wanted = json.loads(line)
            metrics = broker.metrics()
            print(json.dumps({name: metrics[name] for name in wanted["metrics"]} | {"laps": laps}), flush=True)
        is_over.set()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
