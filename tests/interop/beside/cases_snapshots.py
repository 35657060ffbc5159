"""Fetch and FetchSnapshot of a leader whose log begins at a snapshot (areas 04 and 07)."""

from __future__ import annotations

from typing import Any

from interop.beside import asks
from interop.beside.case import Case, snapshot
from interop.beside.cases_fetch import told
from interop.beside.driven import ME, Driven

AT_1 = "leader=1 epoch=E at=1"
ALREADY = "top UNKNOWN_SERVER_ERROR"  # Kafka fails while it encodes any error of a FetchSnapshot


def begun(driven: Driven) -> tuple[int, int]:
    """End offset and epoch of the snapshot."""
    assert driven.snapshot is not None
    return driven.snapshot[0].end_offset, driven.snapshot[0].epoch


def asked_for(driven: Driven) -> str:
    """How a follower asks for the snapshot that its leader named."""
    driven.be("snapshotted")
    words = []
    for asked in driven.snapshots_seen:
        one, request = asked.partition, asked.request
        own = (request.replica_id, one.replica_directory_id) == (ME, driven.directory_id)
        meant = (one.snapshot_id.end_offset, one.snapshot_id.epoch) == begun(driven)
        same = one.current_leader_epoch == driven.epoch
        words.append(f"v{asked.version} own={own} meant={meant} E={same} max_bytes={request.max_bytes}")
    positions = [asked.partition.position for asked in driven.snapshots_seen]
    size = len(driven.snapshot[1]) if driven.snapshot else 0
    return f"{'; '.join(sorted(set(words)))} positions={positions == list(range(0, size, size // 2))}"


def from_offset(distance: int | None, epoch: int | None = 0) -> Any:
    """Fetch from a distance behind the snapshot, or from 0, with the snapshot's epoch or one beside it."""

    def ask(driven: Driven) -> str:
        end_offset, snapshot_epoch = begun(driven)
        offset = 0 if distance is None else end_offset + distance
        last_epoch = driven.epoch if epoch is None else snapshot_epoch + epoch
        return located(driven, driven.ask(asks.fetch_request(driven, offset=offset, last_epoch=last_epoch)))

    return ask


def located(driven: Driven, response: Any) -> str:
    """In words, with places told by their distance to the snapshot."""
    end_offset, epoch = begun(driven)
    partition = response.responses[0].partitions[0]
    words = told(response, driven).split(" diverging")[0].replace(f"from={end_offset}", "from=snapshot")
    if partition.snapshot_id.epoch >= 0:
        words += f"={(partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == (end_offset, epoch)}"
    if partition.diverging_epoch.epoch >= 0:
        same = (partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch) == (end_offset, epoch)
        words += f" diverging to the snapshot={same}"
    return words + f" log_start={partition.log_start_offset == end_offset}"


def piece(position: int | None, max_bytes: int = 1 << 20, **fields: Any) -> Any:
    """FetchSnapshot; ``None`` stands for its size."""

    def ask(driven: Driven) -> str:
        assert driven.snapshot is not None
        data = driven.snapshot[1]
        at = len(data) if position is None else position
        response = snapshot(snapshot=begun(driven), position=at, max_bytes=max_bytes, **fields)(driven)
        words = asks.in_words(response, driven.epoch)
        if words.startswith("UNKNOWN_TOPIC_OR_PARTITION"):
            return words.split()[0]  # nothing else is said
        if response.error_code or response.topics[0].partitions[0].error_code:
            return words
        one = response.topics[0].partitions[0]
        same = bytes(one.unaligned_records) == data[at : at + max_bytes]
        return f"{words} size={one.size == len(data)} position={one.position == at} bytes={same}"

    return ask


SNAPSHOTS = [
    Case(
        "SNAP-27",
        None,
        asked_for,
        "v1 own=True meant=True E=True max_bytes=1048576 positions=True",
        then="any",
    ),
    Case("FTCH-16", "leader", from_offset(None), f"NONE {AT_1} no records snapshot=True log_start=True"),
    Case("FTCH-18", "leader", from_offset(-5), f"NONE {AT_1} no records snapshot=True log_start=True"),
    Case("FTCH-19", "leader", from_offset(0), f"NONE {AT_1} from=snapshot log_start=True"),
    Case("FTCH-19", "leader", from_offset(0, None), f"NONE {AT_1} no records snapshot=True log_start=True"),
    Case("FTCH-20", "leader", from_offset(1, -1), f"NONE {AT_1} no records snapshot=True log_start=True"),
    Case("FTCH-24", "leader", from_offset(1), f"NONE {AT_1} no records diverging to the snapshot=True log_start=True"),
    Case("SNAP-27", "leader", piece(0), f"NONE {AT_1} size=True position=True bytes=True"),
    Case("SNAP-27", "leader", piece(7, 100), f"NONE {AT_1} size=True position=True bytes=True"),
    # CERR-34
    Case("SNAP-28", "leader", snapshot(snapshot=(3, 1)), f"SNAPSHOT_NOT_FOUND {AT_1}", kafka=ALREADY),
    Case("SNAP-29", "leader", snapshot(snapshot=(0, 0)), f"SNAPSHOT_NOT_FOUND {AT_1}", kafka=ALREADY),
    Case("SNAP-30", "leader", piece(-1), f"POSITION_OUT_OF_RANGE {AT_1}", kafka=ALREADY),
    Case("SNAP-30", "leader", piece(None), f"POSITION_OUT_OF_RANGE {AT_1}", kafka=ALREADY),
    Case("SNAP-31", "leader", piece(0, epoch=-1), f"FENCED_LEADER_EPOCH {AT_1}", kafka=ALREADY),
    Case("SNAP-31", "leader", piece(0, epoch=1), f"UNKNOWN_LEADER_EPOCH {AT_1}", kafka=ALREADY),
    Case("SNAP-32", "leader", piece(0, cluster_id="another"), "top INCONSISTENT_CLUSTER_ID"),
    Case("SNAP-32", "leader", piece(0, index=1), "UNKNOWN_TOPIC_OR_PARTITION", kafka=ALREADY),
]
