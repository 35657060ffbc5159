"""What a fetch session remembers of an answer."""

from __future__ import annotations

import random

from kraftlog.api.handlers.fetch import _must_answer
from kraftlog.runtime.replica.fetch_reader import PartitionRead
from kraftlog.runtime.replica.fetch_session import FetchSessionCache, SessionPartition
from kraftlog.types import Uuid


def test_a_follower_that_diverged_is_told_again_what_it_did_not_take_from_that_answer():
    """Seed 18 with losses: it truncated, and heard of the high watermark with the next record only (RINV-36)."""
    wanted = SessionPartition("t", Uuid.ZERO, 0, 1, 1, 2, 1, 0)
    session = FetchSessionCache(1, 1, random.Random(1)).create(
        [wanted], is_privileged=True, uses_topic_ids=False, now_ms=0
    )
    read = PartitionRead(wanted)
    read.high_watermark, read.log_start_offset = 61, 0

    def answers(diverging_epoch):
        read.diverging_epoch = diverging_epoch
        return _must_answer(session, read)

    assert answers(None)
    assert not answers(None)
    assert answers((1, 61))
    assert answers(None)
    assert not answers(None)
