"""Followers' fetches on the data path have the effects and the answers that they have in Python.

Two replica managers lead the same partitions. Followers send the same requests to both: one answers with the Python
handler, the other with a data service, and with the handler what the service hands over. All answers are equal. High
watermarks, in-sync sets, proposals and what is known of each follower are equal whenever somebody looks; looking
passes on when sessions last fetched, so that it is drawn, too.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftlog._kraftlog import DataServiceProbe, encode_batch
from kraftlog.api.handlers import fetch
from kraftlog.runtime.replica.fetch_session import FetchSessionCache
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.frame import encode_request, encode_response
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    RegisterBrokerRecord,
)
from replica_bench import FIRST, NODE, Bench, change
from waiting import until

PARTITIONS = 3
FOLLOWERS = (2, 3)
SESSION_ID = slice(15, 19)
"""Where the session id of a fetch response is, with the size of the frame before it."""
LAG_MS = 30_000


class Traffic:
    """Bytes that followers were sent."""

    def __init__(self):
        self.size_bytes = self.reassigned_bytes = 0

    def on_replicated_out(self, size_bytes, *, is_reassignment):
        self.size_bytes += size_bytes
        self.reassigned_bytes += size_bytes * is_reassignment


class Side:
    """A leader of the partitions, and what its followers have of it."""

    def __init__(self, path, *, is_native):
        self.bench = Bench(path)
        self.is_native = is_native
        self.sessions = FetchSessionCache(1000, 120_000, random.Random(1), id_step=2)
        self.proposals = []
        self.bench.manager.isr_changes = SimpleNamespace(submit=self.propose)
        self.probe = DataServiceProbe(path, flush_on_ack=False, partitions=self.bench.partitions.native)
        self.bench.partitions.traffic = Traffic()
        self.served = 0
        self.ids = dict.fromkeys(FOLLOWERS, 0)

    def propose(self, partition, proposal):
        self.proposals.append((partition.index, proposal))

    async def start(self):
        self.bench.create(partitions=PARTITIONS, replicas=(NODE, *FOLLOWERS))
        self.bench.commit(
            *(
                RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id * 10, fenced=False)
                for broker_id in FOLLOWERS
            ),
            change(1, isr=[NODE, 2]),
            change(2, isr=[NODE], adding_replicas=[3]),
        )
        await self.settle()

    async def settle(self):
        """Also the beginnings of epochs are written then, on threads."""
        await self.bench.settle()
        replicas = [self.partition(index).replica for index in range(PARTITIONS)]
        await until(lambda: all(replica.is_published for replica in replicas))

    def partition(self, index):
        return self.bench.partitions.get(FIRST, index)

    def ask(self, request, version):
        """The answer, and whether the data service gave it."""
        if self.is_native:
            self.probe.stop_clock(self.bench.now_ms)
            frame = b"".join(map(bytes, encode_request(request.API_KEY, version, 7, "2", request)))
            became, answer, _ = self.probe.handle(frame[4:])
            self.bench.manager.inbox.take()
            if became == "answer":
                self.served += 1
                return answer
            assert became == "hand over"
        context = SimpleNamespace(
            api_version=version,
            peer=SimpleNamespace(is_on_data_path=self.is_native),
            listener_name="PLAINTEXT",
            quota=None,
        )
        answer = fetch.handle(
            context,
            request,
            cluster=SimpleNamespace(image=self.bench.image, node_id=NODE),
            settings=SimpleNamespace(fetch_max_bytes=57_671_680, selects_replicas_by_rack=False),
            replicas=self.bench.partitions,
            sessions=self.sessions,
            isr_changes=SimpleNamespace(submit=self.propose),
        )
        return b"".join(map(bytes, encode_response(request.API_KEY, version, 7, answer)))

    def state(self):
        self.bench.partitions.take_replicated_out()
        traffic = self.bench.partitions.traffic
        replicas = [self.partition(index).replica for index in range(PARTITIONS)]
        return [
            traffic.size_bytes,
            traffic.reassigned_bytes,
            *(
                (
                    replica.high_watermark,
                    replica.log_end_offset,
                    sorted(replica.isr),
                    sorted(replica.in_sync_followers_with(0)),
                    replica.is_under_min_isr,
                    replica.low_watermark,
                )
                for replica in replicas
            ),
        ]


class Follower:
    """What one follower asks next."""

    def __init__(self, replica_id):
        self.replica_id = replica_id
        self.session_epoch = 0
        self.version = 0


class Pair:
    def __init__(self, python, native):
        self.sides = (python, native)
        self.followers = {replica_id: Follower(replica_id) for replica_id in FOLLOWERS}
        self.leader_epoch = 0

    def partition_of(self, index, offset, epoch, last_epoch):
        replica = self.sides[0].partition(min(index, PARTITIONS - 1)).replica
        end = replica.log_end_offset
        offset = {"end": end, "behind": max(end - 1, 0), "start": 0, "beyond": end + 5}[offset]
        return FetchRequest.FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch={"right": self.leader_epoch, "old": self.leader_epoch - 1, "new": 99, "none": -1}[
                epoch
            ],
            last_fetched_epoch={"right": self.leader_epoch, "none": -1, "old": 0, "new": 99}[last_epoch],
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )

    def fetch(self, replica_id, kind, version, named, broker_epoch, forgotten):
        follower = self.followers[replica_id]
        is_next = kind == "next" and follower.session_epoch > 0
        if is_next:
            version, broker_epoch = follower.version, follower.broker_epoch
            named = [asked for asked in named if asked[0] < PARTITIONS]  # ends a session of the data path
        if not named and not is_next:
            return
        broker_epoch = broker_epoch if version >= 15 else -1
        epoch = follower.session_epoch if is_next else {"none": -1}.get(kind, 0)
        named = list({asked[0]: asked for asked in named}.values())
        has_topic_ids = version >= 13
        topic, topic_id = ("", FIRST) if has_topic_ids else ("t", Uuid.ZERO)
        partitions = [self.partition_of(*asked) for asked in named]
        answers = []
        for side in self.sides:
            request = FetchRequest(
                replica_id=replica_id if version < 15 else -1,
                replica_state=FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
                if version >= 15
                else FetchRequest.ReplicaState(),
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=side.ids[replica_id] if is_next else 0,
                session_epoch=epoch,
                topics=[FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)]
                if partitions
                else [],
                forgotten_topics_data=[
                    FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=forgotten)
                ]
                if is_next and forgotten
                else [],
            )
            answers.append(side.ask(request, version))
        found = [int.from_bytes(answer[SESSION_ID], "big") for answer in answers]
        without = [answer[: SESSION_ID.start] + answer[SESSION_ID.stop :] for answer in answers]
        assert without[0] == without[1]
        # What is handed over opens no session in Python: the next fetch is full, and the data path takes it.
        is_open = all(found)
        assert found[0] or not found[1]
        if kind != "none":
            follower.session_epoch = 0
            if is_open:
                follower.session_epoch, follower.version, follower.broker_epoch = epoch + 1, version, broker_epoch
                for side, session_id in zip(self.sides, found, strict=True):
                    side.ids[replica_id] = session_id

    def append(self, index):
        for side in self.sides:
            replica = side.partition(index).replica
            if replica.is_leader:
                records = encode_batch([(0, None, b"x" * 20, [])])
                replica.append(records, acks=1, now_ms=side.bench.now_ms)

    def wait(self, time_ms):
        for side in self.sides:
            side.bench.now_ms += time_ms

    def shrink(self, index):
        for side in self.sides:
            proposal = side.partition(index).replica.propose_shrink(side.bench.now_ms)
            if proposal is not None:
                side.proposals.append((index, proposal))

    def decide(self, is_confirmed):
        for side in self.sides:
            if not side.proposals:
                return
            index, (number, leader_epoch, partition_epoch, members) = side.proposals[-1]
            replica = side.partition(index).replica
            if is_confirmed:
                isr = [member for member, _ in members]
                replica.isr_committed(number, leader_epoch=leader_epoch, partition_epoch=partition_epoch + 1, isr=isr)
            else:
                replica.isr_refused(number)

    async def elect(self, leaders):
        """One leader after the other, of all partitions; this broker hears of the last."""
        self.leader_epoch += len(leaders)
        for side in self.sides:
            side.bench.commit(*(change(index, leader=leader) for leader in leaders for index in range(PARTITIONS)))
            await side.settle()

    async def reassign(self, index, replicas):
        for side in self.sides:
            isr = [broker_id for broker_id in side.partition(index).replica.isr if broker_id in replicas]
            side.bench.commit(change(index, replicas=list(replicas), isr=isr or [NODE]))
            await side.settle()

    async def configure(self, min_insync_replicas):
        for side in self.sides:
            side.bench.commit(
                ConfigRecord(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name="t",
                    name="min.insync.replicas",
                    value=str(min_insync_replicas),
                )
            )
            await side.settle()

    async def shut_down(self, replica_id):
        """The broker of a follower begins its controlled shutdown."""
        for side in self.sides:
            epoch = side.bench.image.cluster.brokers[replica_id].epoch
            side.bench.commit(
                BrokerRegistrationChangeRecord(broker_id=replica_id, broker_epoch=epoch, in_controlled_shutdown=1)
            )
            await side.bench.settle()

    async def register(self, replica_id, is_fenced):
        """The broker of a follower starts again, or is not there."""
        for side in self.sides:
            epoch = side.bench.image.cluster.brokers[replica_id].epoch + 1
            side.bench.commit(RegisterBrokerRecord(broker_id=replica_id, broker_epoch=epoch, fenced=is_fenced))
            await side.bench.settle()

    def delete(self, index):
        for side in self.sides:
            partition = side.partition(index)
            partition.delete_records(partition.high_watermark)

    def look(self):
        python, native = self.sides
        assert python.state() == native.state()
        assert python.proposals == native.proposals


indexes = st.integers(0, PARTITIONS - 1)
followers = st.sampled_from(FOLLOWERS)
named = st.tuples(
    st.sampled_from([0, 1, 2, 2, 7]),
    st.sampled_from(["end", "end", "end", "behind", "start", "beyond"]),
    st.sampled_from(["right"] * 6 + ["old", "new", "none"]),
    st.sampled_from(["right"] * 3 + ["none", "old", "new"]),
)
steps = st.one_of(
    st.tuples(
        st.just("fetch"),
        followers,
        st.sampled_from(["next"] * 5 + ["full", "none"]),
        st.sampled_from([12, 13, 14, 15, 17, 18, 18]),
        st.lists(named, max_size=3),
        st.sampled_from([20, 30, 31, -1]),
        st.lists(indexes, max_size=1),
    ),
    st.tuples(st.just("append"), indexes),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, LAG_MS - 1, LAG_MS + 1])),
    st.tuples(st.just("shrink"), indexes),
    st.tuples(st.just("decide"), st.booleans()),
    st.tuples(st.just("elect"), st.sampled_from([(NODE,), (NODE,), (2,), (2, NODE), (NODE, NODE), (-1,)])),
    st.tuples(st.just("reassign"), indexes, st.sampled_from([(NODE, 2), (NODE, 3), (NODE, *FOLLOWERS)])),
    st.tuples(st.just("configure"), st.integers(1, 3)),
    st.tuples(st.just("shut_down"), followers),
    st.tuples(st.just("look")),
    st.tuples(st.just("register"), followers, st.booleans()),
    st.tuples(st.just("delete"), indexes),
)


async def play(path, drawn, *, looks_always=True):
    sides = [
        Side(path / name, is_native=name == "native") for name in ("python", "native") if not (path / name).mkdir()
    ]
    pair = Pair(*sides)
    try:
        for side in sides:
            await side.start()
        pair.look()
        for name, *arguments in drawn:
            done = getattr(pair, name)(*arguments)
            if done is not None:
                await done
            if looks_always:
                pair.look()
        pair.look()
    finally:
        for side in sides:
            await side.bench.manager.fetchers.stop()
            for log_dir in side.bench.log_dirs:
                log_dir.release()
    return sides[1].served


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=5, max_size=40), st.booleans())
def test_drawn_sequences_have_the_same_effects(drawn, looks_always):
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(Path(directory), drawn, looks_always=looks_always))


def test_a_story_of_two_followers_is_served_by_the_data_path(tmp_path):
    every = [(index, "end", "right", "none") for index in range(PARTITIONS)]
    drawn = [("fetch", 2, "full", 18, every, 20, []), ("fetch", 3, "full", 18, every, 30, [])]
    for index, replica_id in itertools.product(range(PARTITIONS), FOLLOWERS):
        moved = [(index, "end", "right", "right")]
        drawn += [("append", index), ("fetch", replica_id, "next", 18, moved, 0, [])]
        drawn += [("wait", 400), ("decide", True)]
    drawn += [("wait", LAG_MS - 1), ("fetch", 2, "next", 18, [], 0, []), ("wait", 400)]
    drawn += [("shrink", index) for index in range(PARTITIONS)]
    served = asyncio.run(play(tmp_path, drawn))
    assert served == sum(step[0] == "fetch" for step in drawn)
