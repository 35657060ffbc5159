"""Report what happened in a cluster by its metadata log: leader changes, shrinking ISRs, brokers, settings, over time.

    python spark/metadata_report.py /tmp/kraftlog-data/cluster --plot history.png
    python spark/metadata_report.py /var/lib/kafka/metadata --since 2026-01-08 --topics orders --events

Any controller's or broker's directory with __cluster_metadata-0 will do. Records are those of the log; where its start
is gone, with older records only in a snapshot, the history begins with the state that the oldest snapshot tells.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from job_session import add_session_arguments, instant, make_session, print_table, time_text
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark job uses

from kraftlog.reading import SYSTEM_TOPICS

NO_LEADER = -1
PARTITIONS_SHOWN = 24  # of the plot
SUBJECTS_SHOWN = 12  # brokers, and topics with settings that changed
LABEL_LENGTH = 32
TABLES: dict[str, tuple[str, ...]] = {
    "topics": ("topic", "topicId"),
    "partitions": ("topic", "topicId", "partition", "replicas", "isr", "leader"),
    "brokers": ("role", "id", "fenced"),
    "configs": ("resourceType", "resourceName", "name", "value"),
}
PARTITION_KINDS = frozenset({"leader", "isr shrinks", "isr grows"})


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened.

    Args:
        time_ms: Timestamp of the record.
        kind: ``leader``, ``isr shrinks``, ``isr grows``, ``broker``, ``config`` or ``topic``.
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
    partitions: dict[tuple[str, int], PartitionHistory] = field(default_factory=dict)  # by topic id and number
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    brokers: dict[int, str] = field(default_factory=dict)
    start_ms: int = 0
    end_ms: int = 0
    records: int = 0

    def note(self, row: dict[str, Any], kind: str, subject: str, detail: str) -> None:
        """An event; what a snapshot says is state, not an event."""
        if row["source"] == "log":
            self.events.append(Event(time_ms=row["time_ms"], kind=kind, subject=subject, detail=detail))


def fold(rows: Iterable[dict[str, Any]]) -> History:
    """The history of rows in the order of the log.

    Args:
        rows: Of the tables ``topics``, ``partitions``, ``brokers`` and ``configs`` of ``kraftlog-metadata``, with
            ``table`` and ``time_ms`` beside their columns: each the state after a change.
    """
    history = History()
    for row in rows:
        match row["table"]:
            case "topics":
                history.note(row, "topic", row["topic"], row["event"])
            case "partitions":
                _fold_partition(history, row)
            case "configs":
                _fold_config(history, row)
            case "brokers" if row["role"] == "broker":
                _fold_broker(history, row)
            case _:  # controllers
                pass
    return history


def _fold_partition(history: History, row: dict[str, Any]) -> None:
    key = (row["topicId"], row["partition"])
    isr, leader = tuple(row["isr"]), NO_LEADER if row["leader"] is None else row["leader"]
    one = history.partitions.get(key)
    if one is None:
        one = PartitionHistory(row["topic"], row["partition"], len(row["replicas"]), [(row["time_ms"], isr, leader)])
        history.partitions[key] = one
        return
    if row["event"] == "deleted":
        one.removed_ms = row["time_ms"]
        return
    name = f"{one.topic}-{one.partition}"
    one.replicas = len(row["replicas"])
    _, old_isr, old_leader = one.states[-1]
    if leader != old_leader:
        history.note(row, "leader", name, f"{_broker(old_leader)} -> {_broker(leader)}")
    for gone in sorted(set(old_isr) - set(isr)):
        history.note(row, "isr shrinks", name, f"{gone} left, {len(isr)} of {one.replicas} in sync")
    for come in sorted(set(isr) - set(old_isr)):
        history.note(row, "isr grows", name, f"{come} joined, {len(isr)} of {one.replicas} in sync")
    if (isr, leader) != (old_isr, old_leader):
        one.states.append((row["time_ms"], isr, leader))


def _fold_broker(history: History, row: dict[str, Any]) -> None:
    state = "unregistered" if row["event"] == "unregistered" else "fenced" if row["fenced"] else "unfenced"
    if history.brokers.get(row["id"]) != state:
        history.note(row, "broker", f"broker {row['id']}", state)
    history.brokers[row["id"]] = state


def _fold_config(history: History, row: dict[str, Any]) -> None:
    settings = history.configs.setdefault((row["resourceType"], row["resourceName"]), {})
    before = settings.get(row["name"])
    if row["value"] is None:
        settings.pop(row["name"], None)
    else:
        settings[row["name"]] = row["value"]
    if before != row["value"]:
        kind = "" if row["resourceType"] == "TOPIC" else f"{row['resourceType'].lower().replace('_', ' ')} "
        text = "default" if row["value"] is None else row["value"]
        subject = f"{kind}{row['resourceName'] or 'default'}"
        history.note(row, "config", subject, f"{row['name']}: {'default' if before is None else before} -> {text}")


def _broker(number: int) -> str:
    return "none" if number == NO_LEADER else str(number)


def read_history(spark: SparkSession, source: str) -> History:
    """The history of a directory with ``__cluster_metadata-0``."""
    reader = spark.read.format("kraftlog-metadata").option("path", source)
    rows: list[dict[str, Any]] = []
    for table, columns in TABLES.items():
        frame = reader.option("table", table).load()
        chosen_columns = ["offset", F.unix_millis("timestamp").alias("time_ms"), "source", "event", *columns]
        rows += [{**row.asDict(), "table": table} for row in frame.select(*chosen_columns).collect()]
    # Each table is in order; of one record the topic comes before its partitions.
    order = {table: place for place, table in enumerate(TABLES)}
    rows.sort(key=lambda row: (row["source"] == "log", row["offset"], order[row["table"]]))
    history = fold(rows)
    times = reader.option("table", "records").load().select(F.unix_millis("timestamp").alias("time_ms"))
    found = times.agg(F.count(F.lit(1)).alias("count"), F.min("time_ms").alias("first"), F.max("time_ms").alias("last"))
    row = found.first()
    history.records, history.start_ms, history.end_ms = row["count"], row["first"], row["last"]
    return history


def topic_configs(spark: SparkSession, source: str) -> dict[str, dict[str, str]]:
    """The settings of each topic that has its own, as they are at the end of the log."""
    reader = spark.read.format("kraftlog-metadata").option("path", source).option("table", "configs")
    found: dict[str, dict[str, str]] = {}
    for row in reader.option("latest", "true").load().where("resourceType = 'TOPIC'").collect():
        found.setdefault(row["resourceName"], {})[row["name"]] = row["value"]
    return found


def chosen(history: History, since_ms: int, topics: Sequence[str] | None) -> list[Event]:
    """The events since then, of topics and of all brokers; without topics, of all but the internal ones."""
    return [
        event
        for event in history.events
        if event.time_ms >= since_ms
        and (
            event.kind == "broker"
            or event.subject.startswith("broker ")
            or is_chosen(event.subject.rpartition("-")[0] if event.kind in PARTITION_KINDS else event.subject, topics)
        )
    ]


def is_chosen(topic: str, topics: Sequence[str] | None) -> bool:
    """A topic that was asked for; when none was, one that is not internal."""
    return topic not in SYSTEM_TOPICS if topics is None else topic in topics


def report(history: History, events: Sequence[Event], topics: Sequence[str] | None, rows: int = 0) -> None:
    """A line for each topic, those with the most events first; at most ``rows`` unless that is 0."""
    lines = []
    for topic in {partition.topic for partition in history.partitions.values() if is_chosen(partition.topic, topics)}:
        parts = [partition for partition in history.partitions.values() if partition.topic == topic]
        names = {f"{part.topic}-{part.partition}" for part in parts}
        counts = Counter(event.kind for event in events if event.subject in names)
        configs = sum(event.kind == "config" and event.subject == topic for event in events)
        lines.append(
            (
                (-counts.total() - configs, topic),
                topic,
                len(parts),
                counts["leader"],
                counts["isr shrinks"],
                counts["isr grows"],
                _duration(sum(part.under_replicated_ms(history.end_ms) for part in parts)),
                _duration(sum(part.leaderless_ms(history.end_ms) for part in parts)),
                configs,
            )
        )
    lines.sort()
    header = ("topic", "partitions", "leader changes", "ISR shrinks", "ISR grows", "under-replicated", "no leader")
    print_table((*header, "config changes"), [line[1:] for line in lines[: rows or None]], more=len(lines))
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

    changes = Counter(event.subject for event in events)
    parts = [partition for partition in history.partitions.values() if is_chosen(partition.topic, topics)]
    parts.sort(key=lambda one: (-changes[f"{one.topic}-{one.partition}"], one.topic, one.partition))
    parts = sorted(parts[:PARTITIONS_SHOWN], key=lambda one: (one.topic, one.partition))
    names = [f"{part.topic}-{part.partition}" for part in parts]
    subjects = Counter(event.subject for event in events if event.kind in {"config", "broker"})
    others = sorted(subject for subject, _ in subjects.most_common(SUBJECTS_SHOWN))
    others.sort(key=lambda name: not name.startswith("broker "))
    rows = {name: place for place, name in enumerate([*others, *names])}
    start_ms = max(since_ms, history.start_ms)
    figure, axes = plt.subplots(figsize=(10, 1.3 + 0.24 * len(rows)), layout="constrained")
    for part, name in zip(parts, names, strict=True):
        for start, end, size, leader in part.spans(history.end_ms):
            if end > start_ms:
                style = _span_style(size, part.replicas, leader)
                axes.plot([day(max(start, start_ms)), day(end)], [rows[name]] * 2, solid_capstyle="butt", **style)
    marks = {
        "leader": ("|", "black"),
        "config": ("D", "#5b3a8c"),
        "fenced": ("v", "#b3261e"),
        "unfenced": ("^", "#30638e"),
    }
    for kind, (marker, color) in marks.items():
        points = [event for event in events if kind in {event.kind, event.detail} and event.subject in rows]
        size = 8 if marker == "|" else 4.5
        axes.plot(
            [day(point.time_ms) for point in points],
            [rows[point.subject] for point in points],
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
    parser.add_argument("--rows", type=int, default=30, help="lines of the table, the busiest topics first; 0: all")
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
            [(time_text(event.time_ms), event.kind, event.subject, event.detail) for event in events],
        )
        print()
    report(history, events, topics, args.rows)
    if args.plot and events:
        plot(history, events, args.plot, topics, since_ms)
        print(f"plot: {args.plot}")


if __name__ == "__main__":
    main()
