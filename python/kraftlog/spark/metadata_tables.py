"""The tables of the metadata: their columns, and what of a history is its last state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kraftlog.spark.metadata_rows import Row

__all__ = ["METADATA_TABLES", "MetadataTable", "latest_rows"]

_PLACE = {"offset": "bigint", "epoch": "int", "timestamp": "timestamp", "source": "string", "file": "string"}
_VOTERS = "array<struct<voterId:int,directoryId:string>>"


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """Columns with Spark's words for their types, and what rows are about.

    Args:
        types: Columns in order.
        identity: Columns that a later row of the same values replaces; none where rows are not a state.
        gone: Values of ``event`` that remove what the row is about.
        is_whole: A record that has rows replaces all rows of the records before.
    """

    types: dict[str, str]
    identity: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    is_whole: bool = False


METADATA_TABLES: dict[str, MetadataTable] = {
    "records": MetadataTable(
        {
            **_PLACE,
            "isControl": "boolean",
            "type": "string",
            "version": "smallint",
            "topic": "string",
            "topicId": "string",
            "partitionId": "int",
            "brokerId": "int",
            "resourceType": "string",
            "resourceName": "string",
            "configName": "string",
            "configValue": "string",
            "featureName": "string",
            "featureLevel": "smallint",
            "json": "string",
        }
    ),
    "topics": MetadataTable(
        {**_PLACE, "event": "string", "topic": "string", "topicId": "string"}, ("topicId",), ("deleted",)
    ),
    "partitions": MetadataTable(
        {
            **_PLACE,
            "event": "string",
            "topic": "string",
            "topicId": "string",
            "partition": "int",
            "leader": "int",
            "leaderEpoch": "int",
            "partitionEpoch": "int",
            "replicas": "array<int>",
            "isr": "array<int>",
            "eligibleLeaderReplicas": "array<int>",
            "lastKnownElr": "array<int>",
            "addingReplicas": "array<int>",
            "removingReplicas": "array<int>",
            "directories": "array<string>",
            "leaderRecoveryState": "string",
        },
        ("topicId", "partition"),
        ("deleted",),
    ),
    "configs": MetadataTable(
        {
            **_PLACE,
            "event": "string",
            "resourceType": "string",
            "resourceName": "string",
            "name": "string",
            "value": "string",
        },
        ("resourceType", "resourceName", "name"),
        ("removed",),
    ),
    "brokers": MetadataTable(
        {
            **_PLACE,
            "event": "string",
            "role": "string",
            "id": "int",
            "brokerEpoch": "bigint",
            "incarnationId": "string",
            "rack": "string",
            "fenced": "boolean",
            "inControlledShutdown": "boolean",
            "endpoints": "array<struct<name:string,host:string,port:int,securityProtocol:string>>",
            "logDirs": "array<string>",
            "cordonedLogDirs": "array<string>",
            "features": "array<struct<name:string,minVersion:smallint,maxVersion:smallint>>",
        },
        ("role", "id"),
        ("unregistered",),
    ),
    "voters": MetadataTable(
        {
            **_PLACE,
            "voterId": "int",
            "directoryId": "string",
            "endpoints": "array<struct<name:string,host:string,port:int>>",
            "minKRaftVersion": "smallint",
            "maxKRaftVersion": "smallint",
        },
        ("voterId", "directoryId"),
        is_whole=True,
    ),
    "leader_changes": MetadataTable(
        {**_PLACE, "leaderId": "int", "voters": _VOTERS, "grantingVoters": _VOTERS}, ("source",), is_whole=True
    ),
    "features": MetadataTable({**_PLACE, "name": "string", "level": "smallint"}, ("name",)),
}


def latest_rows(table: MetadataTable, rows: Iterable[Row]) -> Iterator[Row]:
    """Of a history, in order, the state that it comes to."""
    last: dict[tuple[object, ...], Row] = {}
    place: tuple[object, ...] | None = None
    for row in rows:
        here = (row["source"], row["file"], row["offset"])
        if table.is_whole and here != place:
            last.clear()
        place = here
        identity = tuple(row[name] for name in table.identity)
        last.pop(identity, None)
        if row.get("event") not in table.gone and row.get("level") != 0:
            last[identity] = row
    yield from last.values()
