"""Decoders of fetched records: one per partition, which the next answer of that partition uses again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlog._kraftlog import FetchedPartition
from kraftlog.client.state.fetch_answer import Fetched
from kraftlog.types import TopicPartition

__all__ = ["RecordDecoders"]

# A decoder keeps memory for the largest decompressed batch that it saw.
SPARE_COUNT_MAX = 8


class RecordDecoders:
    """Gives each answer its decoder.

    Args:
        row_options: Options of ``FetchedPartition``, columns among them.
    """

    def __init__(self, row_options: Mapping[str, Any]) -> None:
        self._row_options = dict(row_options)
        self._spare: dict[tuple[TopicPartition, bool], FetchedPartition] = {}

    def decode_until(self, end_offset: int | None) -> None:
        """Leave rows at an offset and after it out of answers that are begun from now on; None for no bound."""
        self._row_options["end_offset"] = end_offset
        self._spare.clear()

    def of(self, fetched: Fetched, *, as_records: bool) -> FetchedPartition | None:
        """The decoder of an answer; None when it was begun in the other form, so that it has to be fetched again."""
        if fetched.decoder is None:
            fetched.decoder = (as_records, self._begin(fetched, as_records))
        was_records, found = fetched.decoder
        return found if was_records is as_records else None

    def _begin(self, fetched: Fetched, as_records: bool) -> FetchedPartition:
        name = fetched.partition
        data = memoryview(fetched.records).toreadonly()
        spare = self._spare.pop((name, as_records), None)
        if spare is not None:
            spare.restart(data, fetched.offset, fetched.aborted)
            return spare
        options = {**self._row_options, "columns": None} if as_records else self._row_options
        return FetchedPartition(
            data, name.topic, name.partition, fetched.offset, fetched.aborted, as_records=as_records, **options
        )

    def release(self, fetched: Fetched) -> None:
        """All records of an answer were given: its bytes are freed, and its decoder waits for the next answer."""
        if fetched.decoder is None:
            return
        as_records, decoder = fetched.decoder
        fetched.decoder = None
        decoder.clear()
        if len(self._spare) >= SPARE_COUNT_MAX:
            del self._spare[next(iter(self._spare))]
        self._spare[fetched.partition, as_records] = decoder
