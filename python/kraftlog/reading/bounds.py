"""Bounds of offsets and timestamps, as the filter of a query gives them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounds"]

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the filter of a query says of offsets and timestamps, for :meth:`ArrowScan.narrowed`; None for nothing.

    Args:
        start_offset: Inclusive.
        end_offset: Exclusive.
        from_timestamp: Inclusive, milliseconds.
        to_timestamp: Exclusive, milliseconds.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    from_timestamp: int | None = None
    to_timestamp: int | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether they leave nothing, since no record has so large or so small a number."""
        firsts = (self.start_offset, self.from_timestamp)
        return any(first is not None and first > _INT64_MAX for first in firsts) or (
            self.to_timestamp is not None and self.to_timestamp < _INT64_MIN
        )

    def within_64_bits(self) -> Bounds:
        """The same bounds without those that every record keeps, or that have no place in 64 bits."""
        start, end = self.start_offset, self.end_offset
        first, last = self.from_timestamp, self.to_timestamp
        return Bounds(
            start_offset=None if start is None else max(start, 0),
            end_offset=None if end is None or end > _INT64_MAX else max(end, 0),
            from_timestamp=None if first is None or first < _INT64_MIN else first,
            to_timestamp=None if last is None or last > _INT64_MAX else last,
        )
