"""What the records of Kafka's coordinator topics come to: groups and offsets, transactions, share groups.

Later records of a key replace earlier ones and tombstones remove them, as when a broker loads the partition. Offsets
that a transaction commits count when its marker does; those of open transactions stand under ``pendingTransactions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlog._kraftlog import RecordBatch
from kraftlog.cli.dump_batches import log_batches, record_batches
from kraftlog.cli.dump_decoders import control_json, coordinator_decoder
from kraftlog.cli.progress import Progress
from kraftlog.vocabulary import TRANSACTION_STATES
from kraftlog.wire.records import decode_coordinator_key

__all__ = ["state_document"]

_OFFSETS = "OffsetCommitKey"

# Path of names in the document, and the value there; None removes it.
_Change = tuple[tuple[str, ...], "dict[str, Any] | None"]


class _State:
    """The document in the making."""

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._decode = coordinator_decoder(coordinator)
        self._pending: dict[int, list[_Change]] = {}
        self.document: dict[str, Any] = {}
        self.problems: list[str] = []

    def add(self, batch: RecordBatch, at_offset: int | None) -> None:
        for offset, _, key, value, _ in batch.records():
            if at_offset is not None and offset > at_offset:
                continue
            if batch.is_control:
                self._end_transaction(batch.producer_id, control_json(key or b"", value or b""))
                continue
            change = self._change(offset, key, value)
            if change is None:
                continue
            if batch.is_transactional:
                self._pending.setdefault(batch.producer_id, []).append(change)
            else:
                _apply(self.document, change)

    def _end_transaction(self, producer_id: int, marker: dict[str, Any]) -> None:
        changes = self._pending.pop(producer_id, [])
        if marker.get("endTxnMarker") == "COMMIT":
            for change in changes:
                _apply(self.document, change)

    def _change(self, offset: int, key: bytes | None, value: bytes | None) -> _Change | None:
        described_key, described = self._decode(offset, key, value)
        if isinstance(described_key, str) or key is None:
            self.problems.append(str(described_key))
            return None
        message = decode_coordinator_key(self._coordinator, key)[1]
        data = None if described == "<DELETE>" else {"version": int(described["version"]), **described["data"]}
        return self._path(type(message).__name__, described_key["data"], data), data

    def _path(self, name: str, key: dict[str, Any], data: dict[str, Any] | None) -> tuple[str, ...]:
        names = tuple(str(part) for part in key.values())
        section = name.removesuffix("Key")
        section = section[0].lower() + section[1:]
        match self._coordinator:
            case "group" if name == _OFFSETS:
                return ("groups", names[0], "offsets", *names[1:])
            case "group":
                return ("groups", names[0], section, *names[1:])
            case "transaction":
                if data is not None:
                    status = data.get("transactionStatus", -1)
                    known = 0 <= status < len(TRANSACTION_STATES)
                    data["state"] = TRANSACTION_STATES[status] if known else f"UNKNOWN({status})"
                return ("transactions", *names)
            case _:
                # An update changes what the snapshot before it says; the two stand side by side.
                return ("shareGroups", *names, section)

    def finish(self) -> dict[str, Any]:
        if self._pending:
            pending: dict[str, Any] = {}
            for producer_id, changes in sorted(self._pending.items()):
                own: dict[str, Any] = {}
                for change in changes:
                    _apply(own, change)
                pending[str(producer_id)] = own
            self.document["pendingTransactions"] = pending
        if self.problems:
            self.document["problems"] = self.problems
        return self.document


def state_document(
    coordinator: str, paths: Sequence[Path], *, at_offset: int | None = None, bar: Progress | None = None
) -> dict[str, Any]:
    """The state that partitions or files of a coordinator's topic hold, as one document.

    Args:
        coordinator: ``group``, ``transaction`` or ``share``.
        paths: Directories of partitions, or ``.log`` files, in order.
        at_offset: Last offset (inclusive) of each to apply; all when None.
        bar: Told how many bytes were read.

    Raises:
        CorruptRecordError: Bytes that are no batch.
    """
    whole: dict[str, Any] = {}
    for path in paths:
        state = _State(coordinator)
        for batch in log_batches(path, 0, bar) if path.is_dir() else record_batches(path, bar):
            state.add(batch, at_offset)
        _merge(whole, state.finish())
    return _sorted(whole)


def _apply(document: dict[str, Any], change: _Change) -> None:
    path, value = change
    above = [document]
    for name in path[:-1]:
        child = above[-1].setdefault(name, {})
        above.append(child)
    if value is not None:
        above[-1][path[-1]] = value
        return
    above[-1].pop(path[-1], None)
    for name, parent in zip(reversed(path[:-1]), reversed(above[:-1]), strict=True):
        if not parent[name]:
            del parent[name]


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in other.items():
        here = into.get(name)
        if isinstance(here, dict) and isinstance(value, dict):
            _merge(here, value)
        elif isinstance(here, list) and isinstance(value, list):
            here.extend(value)
        else:
            into[name] = value


def _sorted(document: dict[str, Any]) -> dict[str, Any]:
    """Names that clients chose in order; those of fields stay as Kafka has them."""
    return {name: dict(sorted(value.items())) if isinstance(value, dict) else value for name, value in document.items()}
