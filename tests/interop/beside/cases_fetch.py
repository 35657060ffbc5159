"""Fetch on the metadata partition (area 04), where no snapshot was taken yet."""

from __future__ import annotations

from typing import Any

from interop.beside import asks
from interop.beside.case import Case, fetch, steps
from interop.beside.driven import ME, Driven
from kraftlog._kraftlog import read_batches
from kraftlog.types import Uuid
from kraftlog.wire.messages.fetch import FetchRequest

STRANGER = 9
AT_1 = "leader=1 epoch=E at=1"


def fetch_sent(driven: Driven) -> str:
    """What a follower asks its leader."""
    driven.high_watermark = driven.log[1]
    asked = driven.peers[2].next(FetchRequest, where=lambda one: one.partition.high_watermark == driven.log[1])
    one, request = asked.partition, asked.request
    own = (request.replica_state.replica_id, one.replica_directory_id) == (ME, driven.directory_id)
    where = (one.last_fetched_epoch, one.fetch_offset) == driven.log
    topic = request.topics[0].topic_id == Uuid.METADATA_TOPIC_ID
    return (
        f"v{asked.version} own={own} log={where} E={one.current_leader_epoch == driven.epoch} topic={topic} "
        f"cluster={request.cluster_id} max_wait={request.max_wait_ms} min_bytes={request.min_bytes} "
        f"max_bytes={request.max_bytes} partition_max_bytes={one.partition_max_bytes} log_start={one.log_start_offset} "
        f"session={request.session_id}/{request.session_epoch} replica_epoch={request.replica_state.replica_epoch} "
        f"rack={request.rack_id!r}"
    )


def told(response: Any, driven: Driven) -> str:
    """What a valid fetch brought: where the records begin, or where to truncate, or the snapshot."""
    if response.error_code:
        return asks.in_words(response, driven.epoch)
    partition = response.responses[0].partitions[0]
    words = [asks.in_words(response, driven.epoch)]
    data = bytes(partition.records or b"")
    batches = read_batches(data)
    if batches:
        words.append(f"from={driven.place(batches[0].base_offset)}")
    elif data:
        words.append("part of a batch")
    else:
        words.append("no records")
    diverging = partition.diverging_epoch
    if diverging.epoch >= 0:
        words.append(f"diverging={driven.age(diverging.epoch)}/{driven.place(diverging.end_offset)}")
    if partition.snapshot_id.epoch >= 0:
        words.append("snapshot")
    return " ".join(words)


def offers(epoch: int, place: str, **more: Any) -> Any:
    """Fetch as a follower whose last epoch is the ``epoch``-th youngest of the leader's, from a place in its log."""

    def ask(driven: Driven) -> str:
        last_epoch = driven.epoch_of_age(epoch)
        request = asks.fetch_request(driven, last_epoch=last_epoch, offset=driven.offset_of(place), **more)
        return told(driven.ask(request), driven)

    return ask


def count_batches(max_bytes: int) -> Any:
    """How many whole batches come from the beginning, and whether anything is left over."""

    def ask(driven: Driven) -> str:
        response = driven.ask(asks.fetch_request(driven, offset=0, last_epoch=0, max_bytes=max_bytes))
        data = bytes(response.responses[0].partitions[0].records)
        batches = read_batches(data)
        whole = sum(batch.size_bytes for batch in batches)
        first = batches[0].size_bytes
        if max_bytes == 1:
            return f"batches={len(batches)} rest={len(data) - whole}"
        return f"several={len(batches) > 1} within={whole <= max_bytes} at_least_first={len(data) >= first}"

    return ask


def fields(driven: Driven) -> str:
    """Everything an answer has beside records."""
    response = driven.ask(asks.fetch_request(driven, sender=STRANGER))
    partition = response.responses[0].partitions[0]
    node = response.node_endpoints[0]
    return (
        f"{asks.in_words(response, driven.epoch)} high_watermark={partition.high_watermark} "
        f"log_start={partition.log_start_offset} topic={response.responses[0].topic_id == Uuid.METADATA_TOPIC_ID} "
        f"session={response.session_id} node={(node.host, node.port) == ('127.0.0.1', driven.server.port)} "
        f"rack={node.rack} aborted={partition.aborted_transactions} stable={partition.last_stable_offset} "
        f"preferred={partition.preferred_read_replica}"
    )


FETCHES = [
    Case(
        "FTCH-01 FTCH-02 FTCH-03",
        "fetching",
        fetch_sent,
        "v18 own=True log=True E=True topic=True cluster=interop-AAAAAAAAAAAAAw max_wait=500 min_bytes=0 "
        "max_bytes=1048576 partition_max_bytes=0 log_start=-1 session=0/-1 replica_epoch=-1 rack=''",
    ),
    *(
        Case("FTCH-06 RPC-05", "leader", fetch(cluster_id=name), "top INCONSISTENT_CLUSTER_ID")
        for name in ("another", "")
    ),
    Case("FTCH-06 RPC-05", "leader", fetch(cluster_id=None), f"NONE {AT_1}"),
    Case("FTCH-07", "leader", fetch(topic_id=Uuid.parse("JustAnotherDirectoryId")), "top INVALID_REQUEST"),
    Case("FTCH-07", "leader", fetch(index=1), "top INVALID_REQUEST"),
    Case("FTCH-07", "leader", fetch(topics=2), "top INVALID_REQUEST"),
    Case("FTCH-07", "leader", fetch(topics=0), "top INVALID_REQUEST"),
    Case("FTCH-05 FTCH-07", "leader", fetch(version=12), "top INVALID_REQUEST"),
    Case("FTCH-05 FTCH-07", "leader", fetch(version=4), "top NONE"),  # no place for an error: no topics
    Case("FTCH-05", "leader", fetch(version=13), "NONE leader=1 epoch=E"),
    Case("FTCH-05 RPC-45 ENDP-12", "leader", fetch(version=16), "NONE leader=1 epoch=E"),
    Case("RPC-45 ENDP-11", "leader", fetch(version=17), f"NONE {AT_1}"),
    Case("FTCH-08", "leader", fetch(max_wait_ms=-1), f"INVALID_REQUEST {AT_1}"),
    Case("FTCH-08", "leader", fetch(offset=-1), f"INVALID_REQUEST {AT_1}"),
    Case("FTCH-08", "leader", fetch(last_epoch=-1), f"INVALID_REQUEST {AT_1}"),
    Case(
        "FTCH-08", "leader", lambda d: d.ask(asks.fetch_request(d, last_epoch=d.epoch + 1)), f"INVALID_REQUEST {AT_1}"
    ),
    Case("FTCH-09", "leader", fetch(epoch=-1, last_epoch=0, offset=0), f"FENCED_LEADER_EPOCH {AT_1}"),
    Case("FTCH-09", "fetching", fetch(epoch=-1, last_epoch=0), "FENCED_LEADER_EPOCH leader=2 epoch=E at=2"),
    Case("FTCH-10", "leader", fetch(epoch=1), f"UNKNOWN_LEADER_EPOCH {AT_1}"),
    # CERR-22
    Case("FTCH-11", "fetching", fetch(), "NOT_LEADER_OR_FOLLOWER leader=2 epoch=E at=2"),
    Case("FTCH-11", "unattached", fetch(), "NOT_LEADER_OR_FOLLOWER leader=-1 epoch=E"),
    Case("FTCH-11", "candidate", fetch(), "NOT_LEADER_OR_FOLLOWER leader=-1 epoch=E"),
    Case("FTCH-15", "leader", offers(0, "0"), f"NONE {AT_1} from=0"),
    Case("FTCH-15", "leader", offers(1, "0"), f"NONE {AT_1} from=0"),
    Case(
        "FTCH-17",
        "leader",
        lambda d: told(d.ask(asks.fetch_request(d, offset=0, last_epoch=0)), d),
        f"NONE {AT_1} from=0",
    ),
    Case(
        "FTCH-21",
        "leader",
        lambda d: told(d.ask(asks.fetch_request(d, last_epoch=d.epoch - 1)), d),
        f"NONE {AT_1} no records diverging=1/start",
    ),
    Case("FTCH-22", "leader", offers(1, "start+1"), f"NONE {AT_1} no records diverging=1/start"),
    Case("FTCH-23", "leader", offers(0, "end+5"), f"NONE {AT_1} no records diverging=0/end"),
    Case("FTCH-25", "leader", offers(1, "start+1", max_wait_ms=60_000), f"NONE {AT_1} no records diverging=1/start"),
    Case("FTCH-26", "leader", offers(1, "start"), f"NONE {AT_1} from=start"),
    Case("FTCH-26 FTCH-51", "leader", count_batches(1), "batches=1 rest=0"),
    Case("FTCH-26 FTCH-51", "leader", count_batches(400), "several=True within=True at_least_first=True"),
    Case("FTCH-26 FTCH-51", "leader", count_batches(1 << 20), "several=True within=True at_least_first=True"),
    Case(
        "FTCH-27 RPC-45",
        "leader",
        fields,
        f"NONE {AT_1} high_watermark=-1 log_start=0 topic=True session=0 node=True rack=None aborted=() stable=-1 "
        "preferred=-1",
    ),
    Case(
        "RPC-42",
        "leader",
        steps(fetch(sender=ME, offset=0, last_epoch=0), fetch()),
        f"NONE {AT_1}",
    ),
    Case("RPC-42 FTCH-13", "leader", fetch(sender=ME), f"UNKNOWN_SERVER_ERROR {AT_1}"),
]
