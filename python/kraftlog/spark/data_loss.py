"""What becomes of records that were asked for and are not there: an error, or a warning with a count."""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kraftlog.spark.options import SourceOptions

__all__ = ["DataLoss", "report_losses"]

logger = logging.getLogger("kraftlog.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """Offsets, or bytes of a segment, that are left out of the rows.

    Args:
        topic: Of the partition.
        partition: Its number.
        start_offset: First offset that may be missing, inclusive; of the range that was read where bytes are damaged.
        end_offset: Exclusive.
        path: The segment file, or the directory of the partition.
        position: First damaged byte; -1 when whole offsets are gone.
        end_position: Exclusive; -1 likewise.
        base_offset: What the damaged batch says of itself, -1 when it cannot be read.
        reason: What is wrong.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    path: str
    position: int = -1
    end_position: int = -1
    base_offset: int = -1
    reason: str = ""


def report_losses(options: SourceOptions, losses: Sequence[DataLoss], *, total: int | None = None) -> None:
    """Says on stderr what was left out, and writes it to ``dataLossReport`` where that is given.

    The file's name depends on nothing but what was read, so that a task that Spark runs again replaces its report.

    Args:
        options: ``data_loss_report`` is the directory.
        losses: What was left out of one range, or of all when planning; nothing happens without any.
        total: How many there were where ``losses`` has only the first.

    Raises:
        OSError: The report cannot be written.
    """
    if not losses:
        return
    first = losses[0]
    place = f"{first.path} position {first.position}" if first.position >= 0 else first.path
    logger.warning(
        "failOnDataLoss=false: %d ranges of %s-%d and others of this task left out; first: offsets [%d, %d), %s: %s",
        len(losses) if total is None else total,
        first.topic,
        first.partition,
        first.start_offset,
        first.end_offset,
        place,
        first.reason,
    )
    if options.data_loss_report is None:
        return
    directory = Path(options.data_loss_report)
    directory.mkdir(parents=True, exist_ok=True)
    parts = sorted({(loss.path, loss.start_offset, loss.end_offset) for loss in losses})
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    file = directory / f"{name}.json"
    temporary = directory / f".{name}.{uuid.uuid4().hex}"
    temporary.write_text("".join(json.dumps(asdict(loss)) + "\n" for loss in losses), encoding="utf-8")
    temporary.replace(file)
