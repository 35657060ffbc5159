"""What an operation of the controller gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kraftlog.controller.image import VersionedRecord

__all__ = ["ControllerResult"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T_co]):
    """Records to commit, and the answer to give once they are.

    Args:
        response: The answer; it holds only if all of ``records`` are committed.
        records: Metadata records with the version each is written in; may be empty.
        is_atomic: Whether they have to go into one batch; else they may be committed in several, in order.
        on_appended: Called once the records are in the log of the leader, with the offset of the last record there
            (inclusive): that of an earlier operation if ``records`` is empty.
    """

    response: T_co
    records: Sequence[VersionedRecord] = field(default=())
    is_atomic: bool = True
    on_appended: Callable[[int], None] | None = None
