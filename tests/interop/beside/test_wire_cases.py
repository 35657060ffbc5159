"""The W behaviours of docs/behaviours: one table, asked of a kraftlog controller and of Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.beside.case import Case, check
from interop.beside.cases_epochs import CHECKS, EPOCHS, RESIGNED
from interop.beside.cases_fetch import FETCHES
from interop.beside.cases_quorum import QUORUM, VERSIONS, VOTERS
from interop.beside.cases_snapshots import SNAPSHOTS
from interop.beside.cases_votes import PRE_VOTES, VOTES
from interop.beside.driven import Driven
from interop.harness import Java


@pytest.fixture(scope="module", params=["kraftlog", "kafka"])
def driven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Driven]:
    one = Driven(request.param, tmp_path_factory.mktemp("driven") / request.param, java)
    try:
        one.be("leader")
        yield one
    finally:
        one.close()


@pytest.mark.parametrize(
    "case",
    [
        case.param(n)
        for n, case in enumerate(
            [*PRE_VOTES, *VOTES, *CHECKS, *EPOCHS, *RESIGNED, *FETCHES, *VERSIONS, *QUORUM, *VOTERS, *SNAPSHOTS]
        )
    ],
)
def test_case(case: Case, driven: Driven) -> None:
    check(case, driven)
