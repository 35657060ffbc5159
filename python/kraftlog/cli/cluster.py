"""``kraftlog cluster``: several nodes on this machine in one command, with every change of their state printed."""

from __future__ import annotations

import argparse
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kraftlog.cluster import Cluster, ClusterState
from kraftlog.errors import ClusterError, KraftlogError
from kraftlog.node.config import parse_overrides

__all__ = ["add_arguments", "run"]

_LOOK_S = 0.1
_HELP = """\
kill N       kill -9 of node N          start N    start it again
stop N       controlled shutdown        restart N  both
pause N      SIGSTOP                    resume N   SIGCONT
cut N        cut its network            heal       end all cuts
add          add a broker               roll       rolling restart
state        print the whole state      quit       end the cluster
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--nodes", type=int, default=3, help="how many, each broker and controller (default: 3)")
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        help="port of the first node on 127.0.0.1, the others follow; 0 for free ones (default: 9092)",
    )
    parser.add_argument("--data-dir", type=Path, help="keep the data here instead of in a temporary directory")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting, Kafka's keys")
    parser.add_argument(
        "--no-network-faults",
        action="store_true",
        help="connect nodes without proxies; the command cut is then refused",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM, SIGINT, ``quit``; commands are read from stdin."""
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    previous = {
        number: signal.signal(number, lambda *_: commands.put("quit")) for number in (signal.SIGTERM, signal.SIGINT)
    }
    cluster = Cluster(
        args.nodes,
        data_dir=args.data_dir,
        config=parse_overrides(args.override),
        port=args.port,
        network_faults=not args.no_network_faults,
    )
    try:
        with cluster:
            kept = "removed at the end" if args.data_dir is None else "kept"
            print(
                f"kraftlog cluster: bootstrap.servers={cluster.bootstrap_servers} data={cluster.data_dir} ({kept}); "
                "type help for commands",
                flush=True,
            )
            threading.Thread(target=_read_commands, args=(commands,), daemon=True).start()
            _Console(cluster, commands).run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _read_commands(commands: queue.SimpleQueue[str]) -> None:
    # At the end of stdin the cluster stays: in the background it has none.
    for line in sys.stdin:
        commands.put(line.strip())


class _Console:
    """Prints what changes and carries out commands, one after the other."""

    def __init__(self, cluster: Cluster, commands: queue.SimpleQueue[str]) -> None:
        self._cluster = cluster
        self._commands = commands
        self._seen = ClusterState()
        self._is_reachable = True

    def run(self) -> None:
        """Return after ``quit``."""
        while True:
            self._look()
            try:
                line = self._commands.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if line == "quit":
                return
            if line:
                self._carry_out(line)

    def _look(self) -> None:
        try:
            now = self._cluster.state()
        except ClusterError as error:
            if self._is_reachable:
                self._print(str(error))
            self._is_reachable = False
            return
        self._is_reachable = True
        for change in now.changes_since(self._seen):
            self._print(change)
        self._seen = now

    def _carry_out(self, line: str) -> None:
        cluster = self._cluster
        of_a_node: dict[str, Callable[[int], None]] = {
            "kill": cluster.kill,
            "start": cluster.start_node,
            "stop": cluster.stop_node,
            "restart": cluster.restart,
            "pause": cluster.pause,
            "resume": cluster.resume,
            "cut": cluster.partition,
        }
        others: dict[str, Callable[[], object]] = {
            "heal": cluster.heal,
            "add": cluster.add_node,
            "roll": cluster.rolling_restart,
            "state": self._print_state,
            "help": lambda: print(_HELP, end="", flush=True),
        }
        match line.split():
            case [name, number] if name in of_a_node and number.isdigit():
                self._do(line, lambda: of_a_node[name](int(number)))
            case [name] if name in others:
                self._do(line, others[name])
            case _:
                self._print(f"no command: {line}; type help")

    def _do(self, line: str, action: Callable[[], object]) -> None:
        try:
            action()
        except KraftlogError as error:
            self._print(f"{line}: {error}")
        else:
            self._print(f"{line}: done")

    def _print_state(self) -> None:
        for line in self._cluster.state().changes_since(ClusterState()):
            self._print(line)

    @staticmethod
    def _print(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
