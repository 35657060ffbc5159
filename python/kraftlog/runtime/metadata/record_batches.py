"""The records of an operation as they are proposed: encoded, in batches, and prepared for the image."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from kraftlog.controller import ControllerResult, MetadataImage
from kraftlog.controller.image_changes import ImageChanges
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.records import encode_metadata_record
from kraftlog.wire.struct import Message

__all__ = ["PreparedBatch", "PreparedResult", "prepare"]

_BATCH_OVERHEAD_ESTIMATE_BYTES = 64
_RECORD_OVERHEAD_ESTIMATE_BYTES = 24
_MAX_RECORDS_PER_BATCH = 10_000


@dataclass(slots=True)
class PreparedBatch:
    """Records that are proposed together.

    Args:
        changes: What they change in an image.
        values: The records, encoded.
        size_bytes: About the encoded size of the batch.
    """

    changes: ImageChanges
    values: list[bytes] = field(default_factory=list)
    size_bytes: int = _BATCH_OVERHEAD_ESTIMATE_BYTES

    def add(self, record: Message, value: bytes, size_bytes: int) -> None:
        """Take one more."""
        self.changes.add(record)
        self.values.append(value)
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class PreparedResult:
    """What an operation answers, and what it writes.

    Args:
        response: The answer.
        batches: The records.
        on_appended: As in ``ControllerResult``.
    """

    response: object
    batches: list[PreparedBatch]
    on_appended: Callable[[int], None] | None = None


def prepare(
    outcome: ControllerResult[Any] | Steps[ControllerResult[Any]], *, image: MetadataImage, limit_bytes: int
) -> Steps[PreparedResult]:
    """End an operation, then encode its records: into one batch if they belong together, else as their size demands.

    Between the steps the raft layer may append control records, so that the first record may get a higher offset than
    the operation was told. The result of an operation without steps may depend on that offset: nothing comes between.

    Args:
        outcome: Of the operation, or the steps that lead to it.
        image: What the records will change; nothing else changes it meanwhile.
        limit_bytes: The largest batch.

    Raises:
        KafkaError: Of the operation; POLICY_VIOLATION if what belongs together is larger than a batch may be.
    """
    has_steps = isinstance(outcome, Generator)
    result = (yield from outcome) if isinstance(outcome, Generator) else outcome
    batches: list[PreparedBatch] = []
    for number, (record, version) in enumerate(result.records):
        if has_steps and number % STEP_ITEMS == 0:
            yield
        value = encode_metadata_record(record, version)
        size_bytes = len(value) + _RECORD_OVERHEAD_ESTIMATE_BYTES
        is_full = bool(batches) and (
            batches[-1].size_bytes + size_bytes > limit_bytes or len(batches[-1].values) == _MAX_RECORDS_PER_BATCH
        )
        if is_full and result.is_atomic and batches[-1].size_bytes + size_bytes > limit_bytes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The operation needs {len(result.records)} metadata records at once, more than the {limit_bytes}"
                " bytes one batch holds",
            )
        if not batches or (is_full and not result.is_atomic):
            batches.append(PreparedBatch(ImageChanges(image, after=batches[-1].changes if batches else None)))
        batches[-1].add(record, value, size_bytes)
    return PreparedResult(result.response, batches, result.on_appended)
