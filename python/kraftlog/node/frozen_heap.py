"""The garbage collector of a process that runs nothing but a node.

A full collection looks at each object that may be part of a cycle: some 35 000 of the modules and the node, and three
per partition, for 20 ms and more while nobody is served. These objects live as long as the node or their partition, and
end without the collector, so ``gc.freeze`` takes them out of its work.

A young collection, by default after 700 new objects, finds those of the requests that are being handled, which are
hardly ever garbage: some hundred requests on their way have more, and looking at them again and again took a seventh of
the time of a node that stores offsets. It begins after ``NEW_OBJECTS`` here.

A broker that is embedded in another program never does this: whether that program's own objects may be frozen is for
the program to decide.
"""

from __future__ import annotations

import gc
from collections.abc import Sized
from typing import Final

__all__ = ["NEW_OBJECTS", "PARTITIONS_PER_FREEZE", "FrozenHeap"]

PARTITIONS_PER_FREEZE: Final = 1000
NEW_OBJECTS: Final = 20_000

_YOUNG: Final = 1


class FrozenHeap:
    """Freezes what is alive at the start, and again whenever many partitions were opened.

    Args:
        partitions: Those that are open.
    """

    def __init__(self, partitions: Sized) -> None:
        self._partitions = partitions
        self._known_count = 0
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """The node has started: collect its garbage, for tens of milliseconds, and freeze the rest."""
        gc.collect()
        self._freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(NEW_OBJECTS, *self._thresholds[1:])

    def follow(self, _partition: object) -> None:
        """A partition was opened, changed or taken out."""
        count = len(self._partitions)
        self._known_count = min(self._known_count, count)
        if count - self._known_count >= PARTITIONS_PER_FREEZE:
            gc.collect(_YOUNG)  # what is frozen is never collected; the young generations are small
            self._freeze()

    def end(self) -> None:
        """The node has stopped: collect again whatever is left."""
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _freeze(self) -> None:
        gc.freeze()
        self._known_count = len(self._partitions)
