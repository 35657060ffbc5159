"""The queue of effects of one shard, and what happens once its appends are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Effect, Emit, Respond

__all__ = ["WriteLog"]


class WriteLog:
    """Answers and appends in the order in which a shard decided them.

    A state that has to be durable changes in the ``then`` of its append. Appends complete in the order in which they
    were made, each exactly once.
    """

    __slots__ = ("_effects", "_next_append_id", "_waiting")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._next_append_id = 0

    def respond(self, token: object, response: object) -> None:
        """Answer the request that came with ``token``."""
        self._effects.append(Respond(token, response))

    def emit(self, event: object) -> None:
        """Hand an event to the shell."""
        self._effects.append(Emit(event))

    def append(
        self,
        records: tuple[CoordinatorRecord, ...],
        then: Callable[[int], None],
        *,
        producer: tuple[int, int] | None = None,
        encoded: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> int:
        """Append ``records``, and call ``then`` with 0 once they are committed or with the error code.

        Args:
            records: At least one, unless there are ``encoded`` ones.
            then: Takes the outcome.
            producer: Id and epoch of the transaction that the records belong to.
            encoded: Key and value of each record, instead of ``records``.

        Returns:
            The id of the append.
        """
        append_id = self._next_append_id
        self._next_append_id += 1
        self._waiting[append_id] = then
        self._effects.append(AppendRecords(append_id, records, producer, encoded))
        return append_id

    def after_pending(self, then: Callable[[int], None]) -> None:
        """Call ``then`` once the last append so far is committed, with 0 or its error; at once when none is pending."""
        if not self._waiting:
            then(0)
            return
        last_id = next(reversed(self._waiting))
        first = self._waiting[last_id]

        def both(error_code: int) -> None:
            first(error_code)
            then(error_code)

        self._waiting[last_id] = both

    def take_effects(self) -> list[Effect]:
        """Drain what has to be done, in order."""
        effects = self._effects
        self._effects = []
        return effects

    def on_appended(self, append_id: int, error_code: int) -> None:
        """Take the outcome of an append: 0 once its records are committed, else the error for the client."""
        self._waiting.pop(append_id)(error_code)
