"""Rounds of a replica fetcher name what changed since the last one, whatever happens between them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.errors import ErrorCode
from kraftlog.partition.replica_fetcher import Answer, FetcherState, FetchStart, ReplicaFetcher
from kraftlog.types import Uuid

BACKOFF_MS = 10
KEYS = [(Uuid(bytes([number] * 16)), 0) for number in range(1, 5)]
CODES = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
]
keys = st.sampled_from(KEYS)
events = st.one_of(
    st.tuples(st.just("add"), keys, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("round"), st.sets(keys), st.integers(0, 15)),
    st.tuples(st.just("answer"), st.dictionaries(keys, st.sampled_from(CODES)), st.sampled_from([0, 7, 7, 7])),
    st.tuples(st.just("diverging"), keys),
    st.tuples(st.just("appended"), keys, st.integers(0, 2)),
    st.tuples(st.just("cut"), keys),
    st.tuples(st.just("damaged"), keys),
    st.tuples(st.just("failed"), keys),
    st.tuples(st.just("end"), keys, st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH])),
    st.tuples(st.just("start"), keys, st.integers(0, 20)),
    st.tuples(st.just("failure")),
    st.tuples(st.just("refusal"), st.sampled_from([70, 71, 3])),
)


class Followed:
    """A fetcher, and what the leader has in its session according to the requests that it got."""

    def __init__(self):
        self.fetcher = ReplicaFetcher(BACKOFF_MS)
        self.session = {}
        self.now_ms = 0

    def epoch(self, key):
        return self.fetcher.leader_epoch(key) or 0

    def apply(self, event):
        one = self.fetcher
        match event:
            case ("add", key, epoch, is_cut):
                high_watermark, last_epoch = (5, -1) if is_cut else (10, epoch)
                one.add(
                    FetchStart(
                        key=key,
                        leader_epoch=epoch,
                        log_end_offset=10,
                        log_start_offset=0,
                        high_watermark=high_watermark,
                        last_epoch=last_epoch,
                    )
                )
            case ("remove", key):
                one.remove(key)
            case ("round", held, elapsed_ms):
                self.now_ms += elapsed_ms
                self.round(held)
            case ("answer", codes, session_id):
                answers = [
                    Answer(key=key, error_code=int(code), high_watermark=12)
                    for key, code in codes.items()
                    if key in self.session
                ]
                one.handle_answer(session_id, answers, self.now_ms)
            case ("diverging", key) if key in self.session:
                one.handle_answer(
                    7, [Answer(key=key, error_code=0, high_watermark=12, diverging_epoch=(1, 3))], self.now_ms
                )
            case ("appended", key, count) if key in one:
                end = 10 + count
                one.on_appended(key, self.epoch(key), log_end_offset=end, log_start_offset=0, last_epoch=1)
            case ("cut", key):
                one.on_cut(key, self.epoch(key), log_end_offset=4, last_epoch=1)
            case ("damaged", key):
                one.on_damaged(key, self.epoch(key), self.now_ms)
            case ("failed", key):
                one.on_failed(key, self.epoch(key))
            case ("end", key, code):
                one.handle_leader_end(
                    key, self.epoch(key), error_code=int(code), offset=20, log_end_offset=10, now_ms=self.now_ms
                )
            case ("start", key, offset):
                one.handle_leader_start(
                    key, self.epoch(key), error_code=0, offset=offset, log_end_offset=10, now_ms=self.now_ms
                )
            case ("failure",):
                one.handle_failure(self.now_ms)
            case ("refusal", code):
                one.handle_refusal(code, self.now_ms)

    def wanted(self, held):
        """What a fetch is to cover now: looked up in every partition, in the order of the last append."""
        found = {}
        for key, partition in self.fetcher._partitions.items():
            is_delayed = partition.delayed_until_ms is not None and self.now_ms < partition.delayed_until_ms
            if partition.state is FetcherState.FETCHING and not is_delayed and not (key in held and partition.lag != 0):
                found[key] = partition.asked(key)
        return found

    def round(self, held):
        wanted = self.wanted(held)
        found = self.fetcher.next_round(self.now_ms, held)
        if found is None:
            assert not wanted
            assert not self.session or self.fetcher._session_epoch == 0
            return
        asked = [each.key for each in found.partitions]
        assert asked == [key for key in wanted if key in asked], "not in the order in which they were served"
        if found.session_epoch == 0:
            assert found.forgotten == ()
            self.session = {}
        else:
            assert all(self.session.get(each.key) != each for each in found.partitions), "nothing new"
            assert all(key in self.session for key in found.forgotten)
        for key in found.forgotten:
            del self.session[key]
        self.session |= {each.key: each for each in found.partitions}
        assert self.session == wanted


@settings(max_examples=600, deadline=None)
@given(st.lists(events, max_size=40))
def test_the_leader_always_has_what_is_to_be_fetched_in_its_session(history):
    """RFET-08, RFET-12, RFET-18, RFET-19: the session after a round is what a look at every partition would ask."""
    followed = Followed()
    for event in history:
        followed.apply(event)
    followed.round(set())
