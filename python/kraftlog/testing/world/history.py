"""What clients sent, were told and read, and what must hold between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from kraftlog.testing.log_invariants import InvariantViolationError

__all__ = [
    "CommandHistory",
    "GroupHistory",
    "OffsetHistory",
    "RecordHistory",
    "ShareHistory",
    "TableHistory",
    "TransactionHistory",
]


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

    def acked_places(self, topic: Hashable) -> set[tuple[int, int]]:
        """Partition and offset of each record of a topic that was acknowledged."""
        return {(partition, offset) for found, partition, offset in self._acked if found == topic}

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


class GroupHistory:
    """What the members of one group processed: a committed offset leaves nothing behind it that nobody processed.

    Members come and go, so that records may be processed twice, and offsets may go back.
    """

    def __init__(self) -> None:
        self._processed: dict[tuple[Hashable, int], set[int]] = {}
        self._committed: dict[tuple[Hashable, int], int] = {}

    @property
    def processed_count(self) -> int:
        """Records that some member processed."""
        return sum(map(len, self._processed.values()))

    def processed(self, topic: Hashable, partition: int, offset: int) -> None:
        """A member has processed a record."""
        self._processed.setdefault((topic, partition), set()).add(offset)

    def committed(self, topic: Hashable, partition: int, offset: int) -> None:
        """A member was told that its offset is committed, or one was fetched."""
        place = (topic, partition)
        self._committed[place] = max(offset, self._committed.get(place, -1))

    def check(self, topic: Hashable, places: Iterable[tuple[int, int]]) -> None:
        """Check the highest offset of each partition that was committed.

        Args:
            topic: The group reads it.
            places: Partition and offset of its records.

        Raises:
            InvariantViolationError: A record below such an offset was processed by no member.
        """
        for partition, offset in sorted(places):
            end = self._committed.get((topic, partition), -1)
            if offset < end and offset not in self._processed.get((topic, partition), ()):
                reason = f"{topic}-{partition}: {end} was committed, no member processed the record at {offset}"
                raise InvariantViolationError("offsets", reason)


class ShareHistory:
    """What the members of a share group got: a record that was accepted is not delivered again (KIP-932)."""

    def __init__(self) -> None:
        self._deliveries: dict[tuple[int, int], int] = {}
        self._accepting: set[tuple[int, int]] = set()
        # By place: the number of its acceptance, from 1 on.
        self._accepted: dict[tuple[int, int], int] = {}

    @property
    def accepted_count(self) -> int:
        """Acceptances that members were told of so far."""
        return len(self._accepted)

    def accepting(self, partition: int, offset: int) -> None:
        """A member is about to accept a record; it may be so though the member hears nothing of it."""
        self._accepting.add((partition, offset))

    def delivered(
        self,
        partition: int,
        offset: int,
        delivery_count: int,
        *,
        is_by_leader: bool = True,
        asked_after: int | None = None,
    ) -> None:
        """A member got a record.

        A broker that has lost the leadership and does not know it yet delivers what it has in memory, as Apache Kafka's
        does: deliveries are not written down. The acceptance of such a delivery is refused. So is that of an answer
        which was on its way while the broker's successor delivered the record.

        Args:
            partition: Of the record.
            offset: Of the record.
            delivery_count: As the member was told.
            is_by_leader: Whether it came from the leader.
            asked_after: ``accepted_count`` when the member asked; None for now.

        Raises:
            InvariantViolationError: A member was told before that its acceptance of the record is stored.
        """
        place = (partition, offset)
        number = self._accepted.get(place)
        if number is not None and is_by_leader and (asked_after is None or number <= asked_after):
            reason = f"the record at {offset} of partition {partition} was accepted, and is delivered once more"
            raise InvariantViolationError("share state", reason)
        self._deliveries[place] = max(delivery_count, self._deliveries.get(place, 0))

    def accepted(self, partition: int, offset: int) -> None:
        """A member was told that its acceptance of a record is stored."""
        self._accepted.setdefault((partition, offset), len(self._accepted) + 1)

    def missing(self, places: Iterable[tuple[int, int]], most_deliveries: int) -> set[tuple[int, int]]:
        """The records that nobody tried to accept, less those that were delivered as often as they may be.

        A delivery that no member saw counts, too: one that came close to the limit may be archived.

        Args:
            places: Partition and offset of each record.
            most_deliveries: The limit of the group.
        """
        return {
            place
            for place in places
            if place not in self._accepting and self._deliveries.get(place, 0) < most_deliveries - 2
        }


class TableHistory:
    """Accounts for the values of keys in a compacted topic, each of which one client writes (RINV-01, RINV-05).

    Values of a key are numbered from 1 on; a client writes the next one once the last is acknowledged.
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, list[bytes | None]] = {}
        self._acked: dict[Hashable, int] = {}

    @property
    def write_count(self) -> int:
        """Values that were written."""
        return sum(len(values) for values in self._values.values())

    def written(self, key: Hashable, value: bytes | None) -> int:
        """A client is about to write a value, None for a tombstone; returns its number."""
        values = self._values.setdefault(key, [])
        values.append(value)
        return len(values)

    def acked(self, key: Hashable, number: int) -> None:
        """A client was told that a value is committed."""
        self._acked[key] = number

    def check_read(self, records: Iterable[tuple[Hashable, int, bytes | None]]) -> dict[Hashable, int]:
        """A reader got these records of one partition, in this order: key, number and value.

        Returns:
            The last number of each key.

        Raises:
            InvariantViolationError: Nobody wrote one of them, or values of a key are out of order.
        """
        last: dict[Hashable, int] = {}
        for key, number, value in records:
            values = self._values.get(key, [])
            if not 0 < number <= len(values) or values[number - 1] != value:
                raise InvariantViolationError("RINV-20", f"{key!r} has value {number} {value!r}, which nobody wrote")
            if number <= last.get(key, 0):
                raise InvariantViolationError("RINV-05", f"{key!r} has value {number} behind {last[key]}")
            last[key] = number
        return last

    def check_complete(self, last: Mapping[Hashable, int]) -> None:
        """The last number that was read of each key in the end.

        Raises:
            InvariantViolationError: An acknowledged value is missing, and no tombstone explains that.
        """
        for key, number in self._acked.items():
            found = last.get(key, 0)
            is_gone = found == 0 and any(value is None for value in self._values[key][number - 1 :])
            if found < number and not is_gone:
                raise InvariantViolationError("RINV-01", f"{key!r} has value {found}, {number} was acknowledged")


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


class CommandHistory:
    """Commands of a ``kraftlog.Quorum`` are one list: it grows at its end, and everybody sees it from its beginning.

    Proposals of unique commands and reads of such a list are linearizable exactly if what is checked here holds
    (INV-03, INV-06): every replica applies the same command at an offset; a command is there once; it is behind each
    that was committed before it was proposed; a read sees what was committed, or read, before it began.
    """

    def __init__(self) -> None:
        self._applied: dict[int, bytes] = {}
        self._timestamps: dict[int, int] = {}
        self._offset_of: dict[bytes, int] = {}
        self._begun_ns: dict[bytes, int] = {}
        self._committed: dict[bytes, tuple[int, int]] = {}
        self._refused: set[bytes] = set()
        self._reads: list[tuple[int, int, int]] = []
        self._followed: list[list[int]] = []
        self._violation: str | None = None

    @property
    def committed_count(self) -> int:
        """Commands that were acknowledged."""
        return len(self._committed)

    def proposed(self, command: bytes, begun_ns: int) -> None:
        """A client is about to propose a command that nobody proposed before."""
        self._begun_ns[command] = begun_ns

    def committed(self, command: bytes, offset: int, ended_ns: int) -> None:
        """A client was told that a command is committed at an offset."""
        self._committed[command] = (offset, ended_ns)

    def refused(self, command: bytes) -> None:
        """A client was told that a command has no effect."""
        self._refused.add(command)

    def read(self, last_offsets: list[int], begun_ns: int, ended_ns: int) -> None:
        """A client read the list.

        Args:
            last_offsets: The offset of the last command, or nothing for an empty list.
            begun_ns: When the read barrier was asked for, less the time that the read may be old.
            ended_ns: When the read ended.
        """
        self._reads.append((begun_ns, ended_ns, max(last_offsets, default=-1)))

    def applied(self, replica: str, offset: int, command: bytes, timestamp_ms: int | None = None) -> None:
        """A replica applied a command, or got it with a snapshot; ``check_so_far`` raises what that breaks.

        Args:
            replica: Its name.
            offset: Of the command.
            command: The command.
            timestamp_ms: Of its batch; None where it is not known.
        """
        if timestamp_ms is not None:
            seen_ms = self._timestamps.setdefault(offset, timestamp_ms)
            if seen_ms != timestamp_ms:
                self._violation = f"{replica} applied offset {offset} with time {timestamp_ms}, another with {seen_ms}"
        known = self._applied.setdefault(offset, command)
        if known != command:
            self._violation = f"{replica} applied {command!r} at offset {offset}, another replica {known!r}"
        elif self._offset_of.setdefault(command, offset) != offset:
            self._violation = f"{replica} applied {command!r} at offsets {self._offset_of[command]} and {offset}"
        elif command not in self._begun_ns:
            self._violation = f"{replica} applied {command!r}, which nobody proposed"

    def follow(self) -> list[int]:
        """Somebody begins to follow what a replica commits; gets the offsets of ``followed``, for ``check``."""
        self._followed.append([])
        return self._followed[-1]

    def followed(self, offsets: list[int], offset: int, command: bytes) -> None:
        """Who follows a replica got a command; ``check_so_far`` raises what that breaks.

        Args:
            offsets: What ``follow`` gave.
            offset: Of the command.
            command: Without what a session puts before it.
        """
        if offsets and offset <= offsets[-1]:
            self._violation = f"offset {offset} follows {offsets[-1]}"
        elif self._applied.get(offset, command) != command or command not in self._begun_ns:
            self._violation = f"{command!r} follows at offset {offset}, applied was {self._applied.get(offset)!r}"
        offsets.append(offset)

    def check_so_far(self) -> None:
        """Check what replicas applied.

        Raises:
            InvariantViolationError: INV-06: two commands at an offset, a command twice, or one that nobody proposed.
        """
        if self._violation is not None:
            raise InvariantViolationError("INV-06", self._violation)

    def check(self) -> None:
        """Check everything, once all replicas have applied the same.

        Raises:
            InvariantViolationError: INV-03 for a lost command, LINEARIZABLE for an order that real time rules out.
        """
        self.check_so_far()
        for command, (offset, _) in self._committed.items():
            if self._offset_of.get(command) != offset:
                reason = f"{command!r} was committed at offset {offset}, it is at {self._offset_of.get(command)}"
                raise InvariantViolationError("INV-03", reason)
        for command in self._refused:
            if command in self._offset_of:
                reason = f"{command!r} was refused, and is at offset {self._offset_of[command]}"
                raise InvariantViolationError("LINEARIZABLE", reason)
        for offsets in self._followed:
            between = range(offsets[0], offsets[-1] + 1) if offsets else range(0)
            missing = set(self._applied).intersection(between) - set(offsets)
            if missing:
                reason = f"offsets {sorted(missing)[:5]} are missing among those that were followed"
                raise InvariantViolationError("LINEARIZABLE", reason)
        # Moments in order; at the same moment an end counts after a beginning, as the two overlap then.
        moments: list[tuple[int, int, int, str]] = []
        for command, offset in self._offset_of.items():
            moments.append((self._begun_ns[command], 0, offset, f"{command!r}"))
        for command, (offset, ended_ns) in self._committed.items():
            moments.append((ended_ns, 1, offset, f"{command!r}"))
        for begun_ns, ended_ns, offset in self._reads:
            # A read may see the very last command that was committed before.
            moments.append((begun_ns, 0, offset + 1, "a read"))
            moments.append((ended_ns, 1, offset, "a read"))
        highest, known = -1, ""
        for at_ns, is_end, offset, what in sorted(moments):
            if is_end:
                if offset > highest:
                    highest, known = offset, what
            elif offset <= highest:
                seen = f"up to {offset - 1}" if what == "a read" else f"at offset {offset}"
                reason = f"{what} that began at {at_ns / 1e6:g} ms is {seen}, {known} was known at {highest} before"
                raise InvariantViolationError("LINEARIZABLE", reason)
