"""What clients sent, were told and read, and what must hold between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kraftlog.testing.log_invariants import InvariantViolationError

__all__ = ["OffsetHistory", "RecordHistory", "TransactionHistory"]


class RecordHistory:
    """Accounts for each record of idempotent producers (RINV-01, RINV-05, RINV-11).

    A record is a unique number per producer, which rises; a producer sends the next one to a partition after the last.
    """

    def __init__(self) -> None:
        self._sent: set[tuple[Hashable, int]] = set()
        self._acked: dict[tuple[Hashable, int, int], tuple[Hashable, int]] = {}
        self._read: dict[tuple[Hashable, int, int], tuple[Hashable, int]] = {}

    @property
    def acked_count(self) -> int:
        """Records that were acknowledged."""
        return len(self._acked)

    def sent(self, producer: Hashable, number: int) -> None:
        """A producer is about to send a record."""
        self._sent.add((producer, number))

    def acked(self, topic: Hashable, partition: int, offset: int, producer: Hashable, number: int) -> None:
        """A producer was told that a record is committed.

        Raises:
            InvariantViolationError: Another record was acknowledged or read at this offset.
        """
        self._put(self._acked, topic, partition, offset, (producer, number), "acknowledged")

    def read(self, topic: Hashable, partition: int, offset: int, producer: Hashable, number: int) -> None:
        """A consumer read a record.

        Raises:
            InvariantViolationError: Another record was acknowledged or read at this offset, or nobody sent this one.
        """
        if (producer, number) not in self._sent:
            reason = f"{topic}-{partition} has {producer} {number} at offset {offset}, which nobody sent"
            raise InvariantViolationError("RINV-20", reason)
        self._put(self._read, topic, partition, offset, (producer, number), "read")

    def _put(
        self,
        into: dict[tuple[Hashable, int, int], tuple[Hashable, int]],
        topic: Hashable,
        partition: int,
        offset: int,
        record: tuple[Hashable, int],
        what: str,
    ) -> None:
        place = (topic, partition, offset)
        for known, before in ((self._acked, "acknowledged"), (self._read, "read")):
            if known.get(place, record) != record:
                reason = (
                    f"{topic}-{partition}: {record} was {what} at offset {offset}, {known[place]} was {before} there"
                )
                raise InvariantViolationError("RINV-11", reason)
        into[place] = record

    def check_complete(self, topic: Hashable, partition: int, records: Iterable[tuple[int, Hashable, int]]) -> None:
        """Check a reading of a whole partition at the end.

        Args:
            topic: Of the partition.
            partition: Its index.
            records: Offset, producer and number of each record, in the order of the log.

        Raises:
            InvariantViolationError: An acknowledged record is missing, or one is there twice or out of order.
        """
        found: dict[int, tuple[Hashable, int]] = {}
        last: dict[Hashable, int] = {}
        for offset, producer, number in records:
            self.read(topic, partition, offset, producer, number)
            if number <= last.get(producer, -1):
                reason = f"{topic}-{partition}: {producer} {number} at offset {offset} behind {last[producer]}"
                raise InvariantViolationError("RINV-05", reason)
            last[producer] = number
            found[offset] = (producer, number)
        for place, record in self._acked.items():
            if place[:2] == (topic, partition) and found.get(place[2]) != record:
                reason = (
                    f"{topic}-{partition}: {record} was acknowledged at offset {place[2]}, {found.get(place[2])} is"
                )
                raise InvariantViolationError("RINV-01", f"{reason} there")


class OffsetHistory:
    """Committed offsets of groups: what was acknowledged is not forgotten (produced-consumed accounting of area 30)."""

    def __init__(self) -> None:
        self._committed: dict[tuple[Hashable, Hashable, int], int] = {}

    def committed(self, group: Hashable, topic: Hashable, partition: int, offset: int) -> None:
        """The only member of a group was told that its offset is committed."""
        self._committed[group, topic, partition] = offset

    def fetched(self, group: Hashable, topic: Hashable, partition: int, offset: int) -> None:
        """The group's offset was fetched, and no commit was under way.

        Raises:
            InvariantViolationError: It is before the one that was committed last.
        """
        known = self._committed.get((group, topic, partition), -1)
        if offset < known:
            reason = f"group {group}: the offset of {topic}-{partition} went back from {known} to {offset}"
            raise InvariantViolationError("offsets", reason)


class TransactionHistory:
    """Transactions are seen as a whole or not at all (RINV-06)."""

    def __init__(self) -> None:
        self._size: dict[Hashable, int] = {}
        self._outcome: dict[Hashable, bool] = {}

    def began(self, transaction: Hashable, record_count: int) -> None:
        """A producer is about to write so many records in a transaction."""
        self._size[transaction] = record_count

    def ended(self, transaction: Hashable, *, is_committed: bool) -> None:
        """The producer was told how its transaction ended; without an answer both are possible."""
        self._outcome[transaction] = is_committed

    def check(self, seen: Iterable[Hashable]) -> None:
        """Check what a read_committed consumer found: the transaction of each record.

        Raises:
            InvariantViolationError: A transaction was seen in part, twice, though aborted, or not though committed.
        """
        counts: dict[Hashable, int] = {}
        for transaction in seen:
            counts[transaction] = counts.get(transaction, 0) + 1
        for transaction, size in self._size.items():
            count = counts.pop(transaction, 0)
            wanted = {True: (size,), False: (0,), None: (0, size)}[self._outcome.get(transaction)]
            if count not in wanted:
                told = {True: "committed", False: "aborted", None: "in doubt"}[self._outcome.get(transaction)]
                reason = f"transaction {transaction} is {told}, {count} of its {size} records are seen"
                raise InvariantViolationError("RINV-06", reason)
        if counts:
            raise InvariantViolationError(
                "RINV-06", f"records of transactions that nobody began: {sorted(map(str, counts))}"
            )
