"""The data service answers every frame with the bytes of the Python handlers, or hands it over untouched.

A broker and a data service get the same requests over logs of the same content: produce with every kind of batch,
fetches with and without sessions, transactions, deleted records. What the service hands over only the broker answers;
what the broker appended then is appended to the service's log too.
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kraftlog
from kraftlog._kraftlog import DataServiceProbe, LogConfig, encode_batch
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.delete_records import DeleteRecordsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse
from raw_client import RawClient
from waiting import until_true

PARTITIONS = 3
SESSION_ID = slice(15, 19)
"""Where the session id of a fetch response is, with the size of the frame before it."""
NOW_MS = 1_700_000_000_000

numbers = itertools.count()


class Twins:
    """A broker's topic and the same one of a data service."""

    def __init__(self, broker, probe, client, timestamp_type):
        self.broker = broker
        self.probe = probe
        self.client = client
        self.topic = f"t-{next(numbers)}"
        broker.create_topic(self.topic, partitions=PARTITIONS, config={"message.timestamp.type": timestamp_type})
        image = broker._embedded.running.metadata.image.topics.by_name(self.topic)
        self.topic_id = image.topic_id
        for index in range(PARTITIONS):
            epoch = image.partitions[index].leader_epoch
            config = LogConfig(timestamp_type=timestamp_type)
            probe.add_partition(self.topic, bytes(self.topic_id), index, leader_epoch=epoch, config=config)
        self.sequences = [0] * PARTITIONS
        self.transaction_sequences = [0] * PARTITIONS
        self.session = None
        self.served = self.handed_over = 0

    def partition(self, index):
        return self.broker._embedded.running.partitions.get_by_name(self.topic, index)

    def end_offset(self, index):
        return self.probe.log_end_offset(self.topic, index)

    def names(self, has_topic_ids):
        """Topic and topic id as a version has them."""
        return ("", self.topic_id) if has_topic_ids else (self.topic, Uuid.ZERO)

    # -- produce -----------------------------------------------------------------------------------------------

    def batch(self, kind, index):
        records = [(NOW_MS, None, b"value %d" % self.end_offset(index), [])]
        plain = encode_batch(records)
        match kind:
            case "large":
                return encode_batch([(NOW_MS, b"key", bytes(3000), [("h", b"v")])] * 3)
            case "lz4":
                return encode_batch(records * 40, compression="lz4")
            case "idempotent" | "repeated" | "gap":
                sequence = self.sequences[index] + {"idempotent": 0, "repeated": -1, "gap": 5}[kind]
                return encode_batch(records, producer_id=77, producer_epoch=0, base_sequence=max(sequence, 0))
            case "damaged":
                return plain[:-1] + bytes([plain[-1] ^ 1])
            case "cut":
                return plain[:-3]
            case "late":
                return encode_batch([(NOW_MS * 3, None, b"v", []), (NOW_MS, None, b"v", [])])
            case "magic":
                return plain[:16] + b"\1" + plain[17:]
            case "two":
                return plain + plain
            case "transactional":
                return encode_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
            case "empty":
                return b""
        return plain

    def produce(self, version, acks, kinds):
        if acks == 0 and any(kind not in {"plain", "large", "lz4", "damaged"} for _, kind in kinds):
            acks = 1  # a broker that appended before it closed could not be told from one that did not
        batches = [(index, kind, self.batch(kind, index)) for index, kind in kinds]
        topic, topic_id = self.names(version >= 13)
        data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, _, records in batches]
        topics = [ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
        request = ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)
        became, answer = self.ask(request, version, is_answered=acks != 0)
        if became == "close":
            assert self.client.is_closed_by_peer()
            self.client = RawClient(self.broker.bootstrap_servers)
        codes = [0 if acks == 0 else -1] * len(batches)
        if answer is not None:
            response = ProduceResponse.decode(answer[9:], version)
            found = [part for topic in response.responses for part in topic.partition_responses]
            codes = [part.error_code for part in found]
        for (index, kind, records), code in zip(batches, codes, strict=True):
            if code == 0 and became == "hand over":
                self.probe.append(self.topic, index, records)
            if code == 0 and kind == "idempotent":
                self.sequences[index] += 1
        self.settle()

    def settle(self):
        """Without an acknowledgement of all, the broker may not have the batch yet, or not durably."""
        for index in range(PARTITIONS):
            end = self.end_offset(index)
            until_true(lambda at=index, end=end: self.partition(at).high_watermark == end, timeout_s=5)
            until_true(lambda at=index, end=end: self.probe.high_watermark(self.topic, at) == end, timeout_s=5)

    def transact(self, index, is_committed):
        """A transaction of one batch, by the coordinators of both."""
        data = encode_batch(
            [(NOW_MS, None, b"transactional", [])],
            producer_id=9,
            producer_epoch=0,
            base_sequence=self.transaction_sequences[index],
            transactional=True,
        )
        marker = encode_batch(
            [(NOW_MS, bytes(2) + (b"\0\1" if is_committed else b"\0\0"), bytes(6), [])],
            producer_id=9,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        self.transaction_sequences[index] += 1
        for records in (data, marker):
            offset = self.append_as_coordinator(self.partition(index), records)
            assert offset == self.probe.append(self.topic, index, records, is_coordinator=True)

    def append_as_coordinator(self, partition, records):
        """Append to the broker's partition on the broker's loop; the offset once it is committed."""
        done = []
        self.broker._embedded.running.loop.call_soon_threadsafe(
            lambda: partition.append_coordinator(records, transaction_version=0).add_done_callback(done.append)
        )
        until_true(lambda: done)
        return done[0].result()

    def delete(self, index, share):
        offset = self.end_offset(index) * share // 4
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=self.topic, partitions=[partition])
        self.client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5000))
        self.probe.delete_records(self.topic, index, offset)

    # -- fetch -------------------------------------------------------------------------------------------------

    def fetch(self, version, session, asked, forgotten, limits):
        is_incremental = session == "next" and self.session is not None
        if is_incremental and self.session.has_topic_ids != (version >= 13):
            version = 16 if self.session.has_topic_ids else 12
        has_topic_ids = version >= 13
        topic, topic_id = self.names(has_topic_ids)
        partitions = []
        for index, share, max_bytes, epoch in asked:
            if is_incremental and (index >= PARTITIONS or epoch == "old"):
                continue  # ends a session of the service, and is an error of one partition in Python
            partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=self.end_offset(index) * share // 4 if index < PARTITIONS else 0,
                    partition_max_bytes=max_bytes,
                    current_leader_epoch={"none": -1, "right": 0, "new": 3, "old": 0}[epoch],
                    last_fetched_epoch=0 if epoch == "old" else -1,
                )
            )
        topics = [FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)]
        left_out = [FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=forgotten)]
        fields = {"topics": topics if partitions else [], "replica_id": -1, **limits}
        if is_incremental:
            fields |= {"forgotten_topics_data": left_out if forgotten else [], "session_epoch": self.session.epoch}
        else:
            fields |= {"session_epoch": -1 if session == "none" else 0}
        ids = (0, 0)
        if self.session is not None:
            ids = (self.session.of_broker, self.session.of_service)
        requests = [FetchRequest(session_id=session_id, **fields) for session_id in ids]
        became, answer = self.ask(requests[0], version, native=requests[1])
        if not is_incremental:
            self.session = None
        if became == "hand over":
            return
        of_broker, of_service = (int.from_bytes(part[SESSION_ID], "big") for part in (answer, self.answer_of_service))
        assert (of_broker == 0) == (of_service == 0)
        if is_incremental:
            self.session.epoch += 1
        if of_broker == 0:
            self.session = None
        elif self.session is None:
            assert of_service % 2 == 0
            self.session = SimpleNamespace(
                of_broker=of_broker, of_service=of_service, epoch=1, has_topic_ids=has_topic_ids
            )

    # -- both --------------------------------------------------------------------------------------------------

    def ask(self, request, version, *, native=None, is_answered=True):
        """Ask both; what became of the frame in the service, and the broker's answer."""
        frames = [
            b"".join(map(bytes, encode_request(sent.API_KEY, version, 7, "me", sent)))
            for sent in (request, native or request)
        ]
        ends = [self.end_offset(index) for index in range(PARTITIONS)]
        became, self.answer_of_service, _ = self.probe.handle(frames[1][4:])
        self.client.sock.sendall(frames[0])
        answer = None
        if is_answered:
            size = self.client._exactly(4)
            answer = size + self.client._exactly(int.from_bytes(size, "big"))
        if became == "hand over":
            self.handed_over += 1
            assert [self.end_offset(index) for index in range(PARTITIONS)] == ends
            return became, answer
        self.served += 1
        assert (became == "answer") == is_answered
        if is_answered:
            assert self.without_session(self.answer_of_service, native) == self.without_session(answer, native)
        return became, answer

    @staticmethod
    def without_session(answer, native):
        return answer if native is None else answer[: SESSION_ID.start] + answer[SESSION_ID.stop :]


@pytest.fixture(scope="module", params=["page cache", "flush on ack"])
def servers(request, tmp_path_factory):
    flush_on_ack = request.param == "flush on ack"
    probe = DataServiceProbe(tmp_path_factory.mktemp("service"), flush_on_ack=flush_on_ack)
    probe.stop_clock(NOW_MS)
    with (
        pytest.MonkeyPatch.context() as patch,
        kraftlog.Broker(
            tmp_path_factory.mktemp("broker"), kraftlog_data_path="python", log_flush_on_ack=flush_on_ack
        ) as broker,
    ):
        # The time of an append is in answers, and in records with LogAppendTime.
        patch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
        yield broker, probe


indexes = st.integers(0, PARTITIONS - 1)
plain_kinds = st.sampled_from(["plain", "plain", "large", "lz4", "idempotent", "repeated", "damaged", "gap", "late"])
kinds = st.one_of(
    plain_kinds, plain_kinds, plain_kinds, st.sampled_from(["cut", "magic", "two", "transactional", "empty"])
)
produces = st.tuples(
    st.just("produce"),
    st.integers(9, 13),
    st.sampled_from([-1, -1, 1, 0]),
    st.lists(st.tuples(indexes, kinds), min_size=1, max_size=4),
)
asked = st.lists(
    st.tuples(
        st.sampled_from([*range(PARTITIONS)] * 5 + [9]),
        st.integers(0, 5),
        st.sampled_from([1 << 20, 1 << 20, 4000, 1, 0]),
        st.sampled_from(["none", "right"] * 5 + ["new", "old"]),
    ),
    max_size=4,
    unique_by=lambda entry: entry[0],
)
limits = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, 0, 15]),
        "min_bytes": st.sampled_from([0, 1, 1, 5000]),
        "max_bytes": st.sampled_from([1 << 24, 1 << 24, 4000, 1]),
        "isolation_level": st.sampled_from([0, 1]),
    }
)
fetches = st.tuples(
    st.just("fetch"),
    st.integers(12, 18),
    st.sampled_from(["next", "next", "next", "new", "none"]),
    asked,
    st.lists(st.sampled_from([0, 1, 2, 9]), max_size=2),
    limits,
)
transactions = st.tuples(st.just("transact"), indexes, st.booleans())
deletes = st.tuples(st.just("delete"), indexes, st.integers(0, 4))
steps = st.lists(st.one_of(produces, fetches, fetches, transactions, deletes), min_size=1, max_size=14)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps, st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]))
def test_answers_equal_those_of_the_python_handlers(servers, steps, timestamp_type):
    broker, probe = servers
    with RawClient(broker.bootstrap_servers) as client:
        twins = Twins(broker, probe, client, timestamp_type)
        for name, *arguments in steps:
            getattr(twins, name)(*arguments)
        twins.client.sock.close()
    with suppress(Exception):
        broker.delete_topic(twins.topic)
