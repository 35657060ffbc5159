"""A set that is iterated in the order in which its members came."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["OrderedSet"]

T = TypeVar("T", bound=Hashable)


class OrderedSet(Generic[T]):
    """For tasks, futures and connections, which a ``set`` orders by their addresses.

    Those differ from process to process, and a simulation has to take the same steps in each.
    """

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[T, None] = {}

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: T) -> None:
        """Put a member behind all others; one that is in the set keeps its place."""
        self._members[member] = None

    def discard(self, member: T) -> None:
        """Take a member out if it is in the set."""
        self._members.pop(member, None)

    def remove(self, member: T) -> None:
        """Take a member out.

        Raises:
            KeyError: It is not in the set.
        """
        del self._members[member]

    def clear(self) -> None:
        """Take all members out."""
        self._members.clear()
