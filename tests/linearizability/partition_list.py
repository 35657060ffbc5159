"""A partition as a list to which clients append: what they were told, and what is in it in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Append", "complaints"]


@dataclass(frozen=True)
class Append:
    """One call.

    Args:
        name: Of the appended entry, unique.
        begun_ns: When it was called.
        ended_ns: When it was acknowledged; None if it was not.
        offset: Where it is, as the acknowledgement said.
    """

    name: str
    begun_ns: int
    ended_ns: int | None
    offset: int | None


def complaints(
    entries: Sequence[tuple[int, str]], appends: Iterable[Append], seen: Iterable[Sequence[tuple[int, str]]]
) -> list[str]:
    """What speaks against a list that only grows, and whose order is that of the calls; nothing if all is well.

    Args:
        entries: Offset and name of each entry, in the end.
        appends: The calls.
        seen: What each reader got, from the beginning on, while the list grew.
    """
    found = []
    times = Counter(name for _, name in entries)
    found += [f"{name} is there {count} times" for name, count in times.items() if count > 1]
    offsets = {name: offset for offset, name in entries}
    appends = sorted(appends, key=lambda append: append.begun_ns)
    known = {append.name for append in appends}
    found += [f"nobody appended {name}" for name in times if name not in known]
    for append in appends:
        if append.ended_ns is not None and offsets.get(append.name) != append.offset:
            found.append(f"{append.name} was acknowledged at {append.offset} and is at {offsets.get(append.name)}")
    ended = sorted((append for append in appends if append.ended_ns is not None), key=lambda append: append.ended_ns)
    highest, index = -1, 0
    for append in appends:
        while index < len(ended) and ended[index].ended_ns < append.begun_ns:
            highest = max(highest, ended[index].offset)
            index += 1
        offset = offsets.get(append.name)
        if offset is not None and offset <= highest:
            found.append(f"{append.name} is at {offset}, before offset {highest}, which had been acknowledged")
    for number, read in enumerate(seen):
        if list(read) != list(entries[: len(read)]):
            found.append(f"reader {number} saw entries that are not the first {len(read)} of the list")
    return found
