"""``quorum-state``: the epoch, leader and vote a replica has promised, one line of JSON.

Version 0 (kraft.version 0) lists the voters, version 1 (kraft.version 1) has the voted directory id instead.
Both are what Kafka's ``FileQuorumStateStore`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import replace_file
from kraftlog.types import ElectionState, Epoch, NodeId, ReplicaKey, Uuid

__all__ = ["ELECTION_STATE_NAME", "ElectionStore"]

ELECTION_STATE_NAME = "quorum-state"


class ElectionStore:
    """Reads and replaces the ``quorum-state`` file of one metadata log directory."""

    def __init__(self, directory: Path) -> None:
        """Remember the directory; nothing is read."""
        self.path = directory / ELECTION_STATE_NAME
        self._temporary = directory / (ELECTION_STATE_NAME + ".tmp")

    def read(self) -> ElectionState | None:
        """Return the stored state, or None when there is no file. A left-over temporary file is removed.

        Raises:
            LogError: The file is empty, is not JSON, misses a field, or has a version other than 0 and 1. It is
                left as it is: a replica that forgot its vote must not start as if it were new.
        """
        self._temporary.unlink(missing_ok=True)
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            msg = f"{self.path}: not UTF-8 text ({error.reason} at position {error.start})"
            raise LogError(msg) from error
        if not text.strip():
            msg = f"{self.path}: the file is empty, a JSON object is expected"
            raise LogError(msg)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{self.path}: not a JSON object ({error})"
            raise LogError(msg) from error
        return self._decode(data)

    def _decode(self, data: Any) -> ElectionState:
        if not isinstance(data, Mapping):
            msg = f"{self.path}: a JSON object is expected, found {type(data).__name__}"
            raise LogError(msg)
        version = self._integer(data, "data_version")
        if version not in (0, 1):
            msg = f"{self.path}: unknown data_version {version} (0 and 1 are known)"
            raise LogError(msg)
        leader_id = self._integer(data, "leaderId")
        voted_id = self._integer(data, "votedId")
        voted_directory_id = Uuid.ZERO
        if version == 1:
            try:
                voted_directory_id = Uuid.parse(str(data["votedDirectoryId"]))
            except (KeyError, ValueError) as error:
                msg = f"{self.path}: votedDirectoryId is missing or not a uuid"
                raise LogError(msg) from error
        try:
            return ElectionState(
                epoch=Epoch(self._integer(data, "leaderEpoch")),
                leader_id=None if leader_id < 0 else NodeId(leader_id),
                voted_key=None if voted_id < 0 else ReplicaKey(NodeId(voted_id), voted_directory_id),
            )
        except ValueError as error:
            msg = f"{self.path}: {error}"
            raise LogError(msg) from error

    def _integer(self, data: Mapping[str, Any], key: str) -> int:
        value = data.get(key)
        if type(value) is not int:
            msg = f"{self.path}: {key} is missing or not an integer"
            raise LogError(msg)
        return value

    def write(self, state: ElectionState, *, kraft_version: int, voters: Iterable[NodeId] = ()) -> None:
        """Make the state durable: temporary file, fsync, rename, directory fsync.

        Args:
            state: What the replica is about to promise.
            kraft_version: 0 writes data_version 0, 1 and above data_version 1.
            voters: Ids of the voter set, written only at kraft.version 0.

        Raises:
            OSError: The state is not durable; nothing may be promised from it.
        """
        voted = state.voted_key
        data: dict[str, Any]
        if kraft_version == 0:
            data = {
                "clusterId": "",
                "leaderId": -1 if state.leader_id is None else state.leader_id,
                "leaderEpoch": state.epoch,
                "votedId": -1 if voted is None else voted.node_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in voters],
                "data_version": 0,
            }
        else:
            data = {
                "leaderId": -1 if state.leader_id is None else state.leader_id,
                "leaderEpoch": state.epoch,
                "votedId": -1 if voted is None else voted.node_id,
                "votedDirectoryId": str(Uuid.ZERO if voted is None else voted.directory_id),
                "data_version": 1,
            }
        replace_file(self.path, json.dumps(data, separators=(",", ":")).encode(), temporary=self._temporary)

    def clear(self) -> None:
        """Remove the file and any left-over temporary file."""
        self.path.unlink(missing_ok=True)
        self._temporary.unlink(missing_ok=True)
