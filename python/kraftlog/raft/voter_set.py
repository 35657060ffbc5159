"""Who may vote (KIP-853), and how that and kraft.version changed along the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from kraftlog.types import NodeId, Offset, ReplicaKey, Uuid

__all__ = ["BOOTSTRAP_OFFSET", "Endpoint", "LogHistory", "Voter", "VoterSet", "find_endpoint", "has_distinct_listeners"]

BOOTSTRAP_OFFSET = Offset(-1)
"""Offset given to what comes from the 0-0 checkpoint: in force, but not yet in the log."""

_NO_DIRECTORY = Uuid.ZERO

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a voter listens, by listener name."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, eq=False)
class Voter:
    """One voter: who it is, where it is, which kraft.version levels it can run.

    Two are equal whatever the order of their endpoints and the case of listener names: another leader may have written
    the record in an order of its own, and nobody has to correct that (RCFG-54).
    """

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 0

    def __post_init__(self) -> None:
        """Refuse two endpoints of one listener (ENDP-04): nobody could tell which one counts."""
        if not has_distinct_listeners(self.endpoints):
            names = ", ".join(endpoint.name for endpoint in self.endpoints)
            msg = f"Voter {self.key.node_id} has two endpoints of one listener among {names}"
            raise ValueError(msg)

    def _facts(self) -> tuple[object, ...]:
        listeners = frozenset((endpoint.name.upper(), endpoint.host, endpoint.port) for endpoint in self.endpoints)
        return self.key, listeners, self.min_kraft_version, self.max_kraft_version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Voter) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())


def has_distinct_listeners(endpoints: Iterable[Endpoint]) -> bool:
    """Whether no two endpoints are of one listener."""
    names = [endpoint.name.upper() for endpoint in endpoints]
    return len(set(names)) == len(names)


def find_endpoint(endpoints: Iterable[Endpoint], listener_name: str) -> Endpoint | None:
    """The endpoint of a listener; names are compared without regard to case (ENDP-03)."""
    for endpoint in endpoints:
        if endpoint.name == listener_name or endpoint.name.upper() == listener_name.upper():
            return endpoint
    return None


class VoterSet:
    """An immutable set of voters with distinct ids.

    Attributes:
        majority_size: How many voters make a majority.
    """

    __slots__ = ("_voters", "majority_size")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        """Take the voters.

        Raises:
            ValueError: Two voters have the same id.
        """
        result: dict[NodeId, Voter] = {}
        for voter in voters:
            if voter.key.node_id in result:
                msg = f"Voter id {voter.key.node_id} is in the set twice"
                raise ValueError(msg)
            result[voter.key.node_id] = voter
        self._voters: Mapping[NodeId, Voter] = dict(sorted(result.items()))
        self.majority_size = len(result) // 2 + 1

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """Ids in ascending order."""
        return tuple(self._voters)

    def get(self, node_id: NodeId) -> Voter | None:
        """The voter with this id."""
        return self._voters.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        """Whether this replica is a voter: same id and, where the set knows one, same directory id."""
        voter = self._voters.get(key.node_id)
        if voter is None:
            return False
        known = voter.key
        return known is key or known.directory_id in (key.directory_id, _NO_DIRECTORY)

    def endpoint(self, node_id: NodeId, listener_name: str) -> Endpoint | None:
        """Where a voter listens under this listener name; None when unknown (ENDP-09)."""
        voter = self._voters.get(node_id)
        return None if voter is None else find_endpoint(voter.endpoints, listener_name)

    def endpoints_of(self, node_id: NodeId) -> tuple[Endpoint, ...]:
        """All endpoints of a voter; none of a replica that is none."""
        voter = self._voters.get(node_id)
        return () if voter is None else voter.endpoints

    def with_added(self, voter: Voter) -> VoterSet | None:
        """The set with one more voter; None when its id is there already, whatever the directory id (RCFG-01)."""
        if voter.key.node_id in self._voters:
            return None
        return VoterSet([*self._voters.values(), voter])

    def with_removed(self, key: ReplicaKey) -> VoterSet | None:
        """The set without a voter; None when id and directory id are not those of one, or it is the last (RCFG-02)."""
        voter = self._voters.get(key.node_id)
        if voter is None or voter.key != key or len(self._voters) == 1:
            return None
        return VoterSet(member for member in self._voters.values() if member.key != key)

    def with_updated(self, voter: Voter, *, ignores_directory_id: bool = False) -> VoterSet | None:
        """The set with a voter's endpoints and versions replaced; None when there is no such voter (RCFG-03).

        Args:
            voter: Its new entry.
            ignores_directory_id: Match by id alone, as kraft.version 0 does (RCFG-04).
        """
        found = self._voters.get(voter.key.node_id)
        if found is None:
            return None
        if not ignores_directory_id and found.key.directory_id not in {Uuid.ZERO, voter.key.directory_id}:
            return None
        return VoterSet(voter if member is found else member for member in self._voters.values())

    def has_overlapping_majority(self, other: VoterSet) -> bool:
        """Whether any majority of one set meets any of the other: at most one voter differs each way (RCFG-06)."""
        mine = {voter.key for voter in self}
        theirs = {voter.key for voter in other}
        return len(mine - theirs) <= 1 and len(theirs - mine) <= 1

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether this replica alone is a majority."""
        return len(self._voters) == 1 and self.contains(key)


class LogHistory(Generic[T]):
    """Values in force from an offset on, as control records in the log set them.

    A value counts as soon as its record is in the log, committed or not, and goes away when the log is truncated
    below it.

    Attributes:
        latest: The value in force at the end of the log.
        latest_offset: Offset of the record that set it; None when no record did.
    """

    __slots__ = ("_entries", "_initial", "latest", "latest_offset")

    def __init__(self, initial: T) -> None:
        """Start with the value in force while the log has no such record."""
        self._initial = initial
        self._entries: list[tuple[Offset, T]] = []
        self.latest: T = initial
        self.latest_offset: Offset | None = None

    def _note_latest(self) -> None:
        # Every event asks for it several times: it is kept, not looked up.
        self.latest_offset, self.latest = self._entries[-1] if self._entries else (None, self._initial)

    def add(self, offset: Offset, value: T) -> None:
        """Note the value of a record at ``offset``.

        Raises:
            ValueError: An entry at or above that offset is there already.
        """
        if self._entries and offset <= self._entries[-1][0]:
            msg = f"Offset {offset} is not above {self._entries[-1][0]}"
            raise ValueError(msg)
        self._entries.append((offset, value))
        self._note_latest()

    def value_before(self, end_offset: Offset) -> T | None:
        """The value that records below ``end_offset`` set; None when none did: the initial one is of no record."""
        for offset, value in reversed(self._entries):
            if offset < end_offset:
                return value
        return None

    def truncate_to(self, end_offset: Offset) -> None:
        """Forget values whose records are at or above ``end_offset``."""
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()
        self._note_latest()

    def restart_at(self, offset: Offset, value: T | None) -> None:
        """Forget all entries, as a snapshot replaced the log, and note the one that the snapshot has, if any."""
        self._entries = [] if value is None else [(offset, value)]
        self._note_latest()

    def trim_to(self, offset: Offset) -> None:
        """Forget values that a newer one replaced at or below ``offset`` (SNAP-16)."""
        keep = 0
        for index, (entry_offset, _) in enumerate(self._entries):
            if entry_offset <= offset:
                keep = index
        del self._entries[:keep]
