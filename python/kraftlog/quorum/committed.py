"""Committed commands as a stream, for what follows a replica beside its state machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from kraftlog.errors import OffsetOutOfRangeError
from kraftlog.quorum.proposals import commands_of
from kraftlog.quorum.state_machine import CommittedBatch

if TYPE_CHECKING:
    from kraftlog.runtime.raft.replicated_log import ReplicatedLog

__all__ = ["committed_batches"]

# Of batches, given out in one turn of the loop; the batch that exceeds it is given out whole.
_TURN_BYTES: Final = 256 * 1024


async def committed_batches(
    log: ReplicatedLog[Any], start_offset: int | None, check_running: Callable[[], None]
) -> AsyncIterator[CommittedBatch]:
    """Every command from an offset on, in order, each once, as soon as this replica has applied it; without end.

    Args:
        log: Of the replica.
        start_offset: Of the first command (inclusive); None for what is applied from now on.
        check_running: Raises when the replica does nothing any more.

    Raises:
        ValueError: A negative offset.
        OffsetOutOfRangeError: Commands were dropped from the log, as a checkpoint stands for them.
        KraftlogError: As ``check_running`` raises.
    """
    offset = log.applied_end_offset if start_offset is None else start_offset
    if offset < 0:
        msg = f"start_offset is at least 0, not {offset}"
        raise ValueError(msg)
    while True:
        check_running()
        if offset >= log.applied_end_offset:
            await log.wait_for_offset(offset)
            continue
        if offset < log.log.log_start_offset:
            raise OffsetOutOfRangeError(
                f"commands from offset {offset} on are wanted; those below {log.log.log_start_offset} are in a"
                " checkpoint alone"
            )
        left_bytes = _TURN_BYTES
        for batch in log.log.batches(offset, log.applied_end_offset, read_bytes=_TURN_BYTES):
            first, offset = offset, batch.last_offset + 1
            left_bytes -= batch.size_bytes
            if not batch.is_control:
                commands = commands_of(batch, first)
                yield CommittedBatch(
                    base_offset=offset - len(commands),
                    epoch=batch.partition_leader_epoch,
                    timestamp_ms=batch.max_timestamp,
                    size_bytes=batch.size_bytes,
                    commands=commands,
                )
                check_running()
            # A long backlog leaves the loop to others in between, and the log may be cut at its beginning.
            if left_bytes <= 0 or offset < log.log.log_start_offset:
                break
        await asyncio.sleep(0)
