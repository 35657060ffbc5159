"""Which quota applies to a client (KIP-55): the most specific one, and who shares it."""

from __future__ import annotations

from itertools import combinations

import pytest

from kraftlog.quota.limits import QuotaLimits

# From the most specific; each with who shares it.
PRECEDENCE: list[tuple[tuple[tuple[str, str | None], ...], tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


@pytest.mark.parametrize("count", range(1, len(PRECEDENCE) + 1))
def test_the_most_specific_quota_applies(count: int) -> None:
    for chosen in combinations(range(len(PRECEDENCE)), count):
        quotas = {PRECEDENCE[index][0]: {"k": index + 1.0} for index in reversed(chosen)}
        found = QuotaLimits.of("k", quotas).find("u", "c")
        assert found == (PRECEDENCE[chosen[0]][1], chosen[0] + 1.0)


def test_quotas_of_others_do_not_apply() -> None:
    quotas = {
        (("client-id", "other"), ("user", "u")): {"k": 1.0},
        (("user", "other"),): {"k": 1.0},
        (("client-id", "other"),): {"k": 1.0},
        (("ip", "192.0.2.1"),): {"k": 1.0},
        (("user", "u"),): {"another": 1.0},
    }
    assert QuotaLimits.of("k", quotas).find("u", "c") is None
    assert not QuotaLimits.of("k", {(("ip", None),): {"k": 1.0}})


def test_without_a_client_id_only_quotas_of_users_apply() -> None:
    both = (("client-id", None), ("user", None))
    assert QuotaLimits.of("k", {both: {"k": 1.0}, (("client-id", None),): {"k": 2.0}}).find("u", "") is None
    assert QuotaLimits.of("k", {both: {"k": 1.0}, (("user", None),): {"k": 3.0}}).find("u", "") == (("u", ""), 3.0)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_what_no_controller_accepts_is_no_limit(limit: float) -> None:
    assert not QuotaLimits.of("k", {(("user", "u"),): {"k": limit}})
