"""One row of the tables: a state, a request, and the answer in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from interop.beside import asks
from interop.beside.driven import Driven
from kraftlog.types import Uuid

__all__ = [
    "OTHER_DIRECTORY",
    "Case",
    "add",
    "begin",
    "check",
    "end",
    "fetch",
    "remove",
    "snapshot",
    "steps",
    "update",
    "vote",
]

OTHER_DIRECTORY = Uuid.parse("JustAnotherDirectoryId")
SAME = "the same"


@dataclass(frozen=True)
class Case:
    """A behaviour of docs/behaviours on the wire.

    Attributes:
        ids: Ids of docs/behaviours.
        state: As ``Driven.be`` takes it; None leaves the node as it is.
        ask: What is done; its result, a response or a text, is compared.
        expected: The answer in words.
        then: Leader and epoch afterwards, unchanged by default.
        kafka: What Apache Kafka answers where we answer otherwise on purpose.
        only_ours: Why Apache Kafka is not asked.
    """

    ids: str
    state: str | None
    ask: Callable[[Driven], Any]
    expected: str
    then: str = SAME
    kafka: str | None = None
    only_ours: str = ""

    def param(self, number: int) -> Any:
        """For pytest: named after its ids and its state."""
        name = f"{self.ids.replace(' ', '+')}-{self.state}-{number}"
        return pytest.param(self, id=name, marks=pytest.mark.spec(*self.ids.split()))


def check(case: Case, driven: Driven) -> None:
    """Do what the case says and compare."""
    if case.only_ours and driven.kind == "kafka":
        pytest.skip(case.only_ours)
    if case.state is not None:
        driven.be(case.state)
    before = driven.look()
    begun = before.epoch
    result = case.ask(driven)
    said = result if isinstance(result, str) else asks.in_words(result, begun)
    after = driven.look()
    then = f"leader={after.leader_id} epoch={asks.relative(after.epoch, begun)}"
    expected = case.kafka if case.kafka is not None and driven.kind == "kafka" else case.expected
    if case.then == "any":
        then = "any"
    expected_then = f"leader={before.leader_id} epoch=E" if case.then == SAME else case.then
    if (said, then) != (expected, expected_then):
        raise AssertionError(f"{driven.kind} said\n  {said}; then {then}\nnot\n  {expected}; then {expected_then}")


def steps(*parts: Callable[[Driven], Any]) -> Callable[[Driven], Any]:
    """Do several things; the answer to the last one counts."""

    def run(driven: Driven) -> Any:
        result = None
        for part in parts:
            result = part(driven)
        return result

    return run


def _moved(driven: Driven, fields: dict[str, Any]) -> dict[str, Any]:
    """``epoch`` is given by its distance to the node's."""
    if "epoch" in fields:
        fields = {**fields, "epoch": driven.epoch + fields["epoch"]}
    return fields


def vote(*, log: str | tuple[int, int] = "same", version: int | None = None, **fields: Any) -> Callable[[Driven], Any]:
    """Ask for a vote; the log is the ``same`` as the node's, ``behind`` it by a record, or a given end."""

    def ask(driven: Driven) -> Any:
        last_epoch, end_offset = driven.log
        last = {"same": driven.log, "behind": (last_epoch, end_offset - 1)}[log] if isinstance(log, str) else log
        return driven.ask(asks.vote_request(driven, last=last, **_moved(driven, fields)), version)

    return ask


def _asking(build: Callable[..., Any]) -> Callable[..., Callable[[Driven], Any]]:
    def made(*, version: int | None = None, **fields: Any) -> Callable[[Driven], Any]:
        return lambda driven: driven.ask(build(driven, **_moved(driven, fields)), version)

    return made


begin = _asking(asks.begin_request)
end = _asking(asks.end_request)


def fetch(*, version: int = 18, **fields: Any) -> Callable[[Driven], Any]:
    """Ask for what comes after the log's end."""
    return lambda driven: driven.ask(asks.fetch_request(driven, version=version, **_moved(driven, fields)), version)


snapshot = _asking(asks.snapshot_request)
remove = _asking(asks.remove_request)
update = _asking(asks.update_request)


def add(*, version: int = 1, **fields: Any) -> Callable[[Driven], Any]:
    """Ask for a voter to be added."""
    return lambda driven: driven.ask(asks.add_request(driven, version=version, **fields), version)
