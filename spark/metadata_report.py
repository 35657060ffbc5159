"""Report what happened in a cluster by its metadata log: leader changes, shrinking ISRs, brokers, settings, over time.

    python spark/metadata_report.py /tmp/kraftlog-data/cluster --plot history.png
    python spark/metadata_report.py /var/lib/kafka/metadata --since 2026-01-08 --topics orders --events

Any controller's or broker's directory with __cluster_metadata-0 will do. Records are those of the log; where its start
is gone, with older records only in a snapshot, the history begins with the state that the oldest snapshot tells.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from job_session import add_session_arguments, instant, make_session, print_table, time_text
from pyspark.sql import SparkSession

import kraftlog
from kraftlog.reading import INTERNAL_TOPICS
from kraftlog.wire.records import decode_metadata_record

NO_LEADER = -1
PARTITIONS_SHOWN = 24  # of the plot
LABEL_LENGTH = 32
PARTITION_KINDS = frozenset({"leader", "isr shrinks", "isr grows"})


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened.

    Args:
        time_ms: Timestamp of the record.
        kind: ``leader``, ``isr shrinks``, ``isr grows``, ``broker``, ``config``, ``topic`` or ``removed``.
        subject: A partition as ``orders-0``, a topic, or ``broker 2``.
        detail: From what to what.
    """

    time_ms: int
    kind: str
    subject: str
    detail: str


@dataclass
class PartitionHistory:
    """A partition's members over time.

    Args:
        topic: Name of the topic.
        partition: Number of the partition.
        replicas: The brokers that should have it, now.
        states: Time (ms), replicas in sync and leader, one entry a change.
        removed_ms: When the topic was deleted.
    """

    topic: str
    partition: int
    replicas: int
    states: list[tuple[int, tuple[int, ...], int]] = field(default_factory=list)
    removed_ms: int | None = None

    def spans(self, end_ms: int) -> list[tuple[int, int, int, int]]:
        """From, to (ms), replicas in sync and leader of each state."""
        ends = [*(time for time, _, _ in self.states[1:]), end_ms if self.removed_ms is None else self.removed_ms]
        return [(start, end, len(isr), leader) for (start, isr, leader), end in zip(self.states, ends, strict=True)]

    def under_replicated_ms(self, end_ms: int) -> int:
        """How long fewer replicas were in sync than there should be."""
        return sum(end - start for start, end, size, _ in self.spans(end_ms) if size < self.replicas)

    def leaderless_ms(self, end_ms: int) -> int:
        """How long there was no leader."""
        return sum(end - start for start, end, _, leader in self.spans(end_ms) if leader == NO_LEADER)


@dataclass
class History:
    """What the log tells, in its order."""

    events: list[Event] = field(default_factory=list)
    partitions: dict[tuple[str, int], PartitionHistory] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    start_ms: int = 0
    end_ms: int = 0
    records: int = 0

    def note(self, row: dict[str, Any], kind: str, subject: str, detail: str) -> None:
        """An event; those of a snapshot are state, not events."""
        if not row["snapshot"]:
            self.events.append(Event(time_ms=row["time_ms"], kind=kind, subject=subject, detail=detail))


def fold(rows: Iterable[dict[str, Any]]) -> History:
    """The history of rows in the order of the log.

    Args:
        rows: ``type``, ``time_ms``, ``snapshot`` (from a snapshot, not the log), and what the type has: ``topic``,
            ``partition``, ``replicas``, ``isr``, ``leader``, ``broker``, ``fenced``, ``resource_type``,
            ``resource_name``, ``name``, ``value``.
    """
    history = History()
    for row in rows:
        history.records += 1
        history.start_ms = row["time_ms"] if history.records == 1 else min(history.start_ms, row["time_ms"])
        history.end_ms = max(history.end_ms, row["time_ms"])
        match row["type"]:
            case "TOPIC_RECORD":
                history.note(row, "topic", row["topic"], "created")
            case "REMOVE_TOPIC_RECORD":
                history.note(row, "removed", row["topic"], "deleted")
                for one in history.partitions.values():
                    if one.topic == row["topic"] and one.removed_ms is None:
                        one.removed_ms = row["time_ms"]
            case "PARTITION_RECORD":
                one = PartitionHistory(row["topic"], row["partition"], len(row["replicas"]))
                one.states.append((row["time_ms"], tuple(row["isr"]), row["leader"]))
                history.partitions[row["topic"], row["partition"]] = one
            case "PARTITION_CHANGE_RECORD":
                _change(history, row)
            case (
                "REGISTER_BROKER_RECORD"
                | "BROKER_REGISTRATION_CHANGE_RECORD"
                | "FENCE_BROKER_RECORD"
                | ("UNFENCE_BROKER_RECORD" | "UNREGISTER_BROKER_RECORD")
            ):
                if row["fenced"] is not None or row["type"] == "UNREGISTER_BROKER_RECORD":
                    state = {True: "fenced", False: "unfenced", None: "unregistered"}[row["fenced"]]
                    history.note(row, "broker", f"broker {row['broker']}", state)
            case "CONFIG_RECORD":
                _configure(history, row)
    return history


def _change(history: History, row: dict[str, Any]) -> None:
    one = history.partitions.get((row["topic"], row["partition"]))
    if one is None:  # its topic is not in what is left of the log
        return
    _, isr, leader = one.states[-1]
    name = f"{one.topic}-{one.partition}"
    new_isr = isr if row["isr"] is None else tuple(row["isr"])
    new_leader = leader if row["leader"] is None else row["leader"]
    if row["replicas"] is not None:
        one.replicas = len(row["replicas"])
    if new_leader != leader:
        history.note(row, "leader", name, f"{_broker(leader)} -> {_broker(new_leader)}")
    for gone in sorted(set(isr) - set(new_isr)):
        history.note(row, "isr shrinks", name, f"{gone} left, {len(new_isr)} of {one.replicas} in sync")
    for come in sorted(set(new_isr) - set(isr)):
        history.note(row, "isr grows", name, f"{come} joined, {len(new_isr)} of {one.replicas} in sync")
    if (new_isr, new_leader) != (isr, leader):
        one.states.append((row["time_ms"], new_isr, new_leader))


def _configure(history: History, row: dict[str, Any]) -> None:
    settings = history.configs.setdefault((row["resource_type"], row["resource_name"]), {})
    before = settings.get(row["name"])
    if row["value"] is None:
        settings.pop(row["name"], None)
    else:
        settings[row["name"]] = row["value"]
    if before != row["value"]:
        kinds = {2: "", 4: "broker ", 8: "broker logger ", 16: "client metrics ", 32: "group "}
        subject = f"{kinds.get(row['resource_type'], 'resource ')}{row['resource_name'] or 'default'}"
        text = "default" if row["value"] is None else row["value"]
        history.note(row, "config", subject, f"{row['name']}: {'default' if before is None else before} -> {text}")


def _broker(number: int) -> str:
    return "none" if number == NO_LEADER else str(number)


def read_history(spark: SparkSession, source: str) -> History:
    """The history of a directory with ``__cluster_metadata-0``."""
    return fold(rows_of_log(source))


def rows_of_log(source: str) -> Iterator[dict[str, Any]]:
    """Rows for :func:`fold`."""
    names: dict[Any, str] = {}
    scan = kraftlog.open_log(Path(source) / "__cluster_metadata-0").scan(columns=["value", "timestamp"])
    for batch in map(pa.record_batch, scan):
        times = batch["timestamp"].cast(pa.int64()).to_pylist()
        for value, time_ms in zip(batch["value"].to_pylist(), times, strict=True):
            record: Any = decode_metadata_record(value)[0]
            name = type(record).__name__
            row: dict[str, Any] = dict.fromkeys(
                ("topic", "partition", "replicas", "isr", "leader", "broker", "fenced"), None
            )
            row |= {
                field: getattr(record, field, None) for field in ("resource_type", "resource_name", "name", "value")
            }
            row |= {"time_ms": time_ms, "snapshot": False, "type": re.sub("(?<=.)(?=[A-Z])", "_", name).upper()}
            if name == "TopicRecord":
                names[record.topic_id] = record.name
            row["topic"] = names.get(getattr(record, "topic_id", None))
            for name_of_list in ("replicas", "isr"):
                row[name_of_list] = getattr(record, name_of_list, None)
            row["partition"] = getattr(record, "partition_id", None)
            row["leader"] = None if getattr(record, "leader", -2) == -2 else record.leader
            row["broker"] = getattr(record, "broker_id", None)
            fenced = getattr(record, "fenced", None)
            row["fenced"] = {1: True, -1: False, 0: None}[fenced] if name.startswith("BrokerReg") else fenced
            yield row


def topic_configs(spark: SparkSession, source: str) -> dict[str, dict[str, str]]:
    """The settings of each topic that has its own, as they are at the end of the log."""
    configs = read_history(spark, source).configs
    return {name: settings for (kind, name), settings in configs.items() if kind == 2}


def chosen(history: History, since_ms: int, topics: Sequence[str] | None) -> list[Event]:
    """The events since then, of topics and of all brokers; without topics, of all but the internal ones."""
    return [
        one
        for one in history.events
        if one.time_ms >= since_ms
        and (
            one.kind == "broker"
            or one.subject.startswith("broker ")
            or is_chosen(one.subject.rpartition("-")[0] if one.kind in PARTITION_KINDS else one.subject, topics)
        )
    ]


def is_chosen(topic: str, topics: Sequence[str] | None) -> bool:
    """A topic that was asked for; when none was, one that is not internal."""
    return topic not in INTERNAL_TOPICS if topics is None else topic in topics


def report(history: History, events: Sequence[Event], topics: Sequence[str] | None) -> None:
    """A line for each topic, and then the settings and brokers that changed."""
    lines = []
    for topic in sorted({topic for topic, _ in history.partitions if is_chosen(topic, topics)}):
        parts = [one for (name, _), one in history.partitions.items() if name == topic]
        names = {f"{one.topic}-{one.partition}" for one in parts}
        counts = Counter(one.kind for one in events if one.subject in names)
        lines.append(
            (
                topic,
                len(parts),
                counts["leader"],
                counts["isr shrinks"],
                counts["isr grows"],
                _duration(sum(one.under_replicated_ms(history.end_ms) for one in parts)),
                _duration(sum(one.leaderless_ms(history.end_ms) for one in parts)),
                sum(one.kind == "config" and one.subject == topic for one in events),
            )
        )
    header = ("topic", "partitions", "leader changes", "ISR shrinks", "ISR grows", "under-replicated", "no leader")
    print_table((*header, "config changes"), lines)
    span = f"{time_text(history.start_ms)} to {time_text(history.end_ms)} UTC"
    print(f"{history.records} records, {span}; durations are summed over partitions, up to the last record")


def _duration(milliseconds: int) -> str:
    for unit, size in (("h", 3_600_000), ("min", 60_000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds / 1000:.1f} s" if milliseconds else "0"


def plot(history: History, events: Sequence[Event], file: Path, topics: Sequence[str] | None, since_ms: int) -> None:
    """A line for each partition: how many replicas were in sync, and when its leader changed; settings above."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.lines import Line2D

    def day(milliseconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)

    changes = Counter(one.subject for one in events)
    parts = [one for one in history.partitions.values() if is_chosen(one.topic, topics)]
    parts.sort(key=lambda one: (-changes[f"{one.topic}-{one.partition}"], one.topic, one.partition))
    parts = sorted(parts[:PARTITIONS_SHOWN], key=lambda one: (one.topic, one.partition))
    names = [f"{one.topic}-{one.partition}" for one in parts]
    others = sorted({one.subject for one in events if one.kind in {"config", "broker"}})
    others.sort(key=lambda name: not name.startswith("broker "))
    rows = {name: place for place, name in enumerate([*others, *names])}
    start_ms = max(since_ms, history.start_ms)
    figure, axes = plt.subplots(figsize=(10, 1.3 + 0.24 * len(rows)), layout="constrained")
    for one, name in zip(parts, names, strict=True):
        for start, end, size, leader in one.spans(history.end_ms):
            if end > start_ms:
                style = _span_style(size, one.replicas, leader)
                axes.plot([day(max(start, start_ms)), day(end)], [rows[name]] * 2, solid_capstyle="butt", **style)
    marks = {
        "leader": ("|", "black"),
        "config": ("D", "#5b3a8c"),
        "fenced": ("v", "#b3261e"),
        "unfenced": ("^", "#30638e"),
    }
    for kind, (marker, color) in marks.items():
        points = [one for one in events if kind in {one.kind, one.detail} and one.subject in rows]
        size = 8 if marker == "|" else 4.5
        axes.plot(
            [day(one.time_ms) for one in points],
            [rows[one.subject] for one in points],
            linestyle="none",
            marker=marker,
            markersize=size,
            color=color,
        )
    handles = [
        Line2D([], [], **_span_style(3, 3, 1), label="all replicas in sync"),
        Line2D([], [], **_span_style(2, 3, 1), label="some not in sync"),
        Line2D([], [], **_span_style(1, 3, 1), label="one in sync"),
        Line2D([], [], **_span_style(1, 1, NO_LEADER), label="no leader"),
        *(
            Line2D([], [], linestyle="none", marker=marker, color=color, label=label)
            for (marker, color), label in zip(
                marks.values(), ("leader change", "setting changed", "broker fenced", "broker unfenced"), strict=True
            )
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    labels = [name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 8]}...{name[-5:]}" for name in rows]
    axes.set_yticks(list(rows.values()), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_xlabel("record time (UTC)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.01)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _span_style(in_sync: int, replicas: int, leader: int) -> dict[str, Any]:
    if leader == NO_LEADER:
        return {"color": "#b3261e", "linewidth": 5}
    if in_sync >= replicas:
        return {"color": "#cfd8dc", "linewidth": 1.5}
    return {"color": "#e08e0b" if in_sync > 1 else "#7a2e00", "linewidth": 5}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="a directory with __cluster_metadata-0")
    parser.add_argument("--topics", help="only these, separated by commas (default: all but the internal ones)")
    parser.add_argument("--since", type=instant, help="only what happened from here on, ISO 8601, UTC")
    parser.add_argument("--events", action="store_true", help="print every event before the table")
    parser.add_argument("--plot", type=Path, help="write a PNG of the timeline here (needs matplotlib)")
    add_session_arguments(parser)
    args = parser.parse_args()
    topics = args.topics.split(",") if args.topics else None
    since_ms = round(args.since.timestamp() * 1000) if args.since else 0
    spark = make_session("kraftlog metadata", args)
    try:
        history = read_history(spark, args.source)
    finally:
        spark.stop()
    events = chosen(history, since_ms, topics)
    if args.events:
        print_table(
            ("time (UTC)", "what", "of", "change"),
            [(time_text(one.time_ms), one.kind, one.subject, one.detail) for one in events],
        )
        print()
    report(history, events, topics)
    if args.plot and events:
        plot(history, events, args.plot, topics, since_ms)
        print(f"plot: {args.plot}")


if __name__ == "__main__":
    main()
