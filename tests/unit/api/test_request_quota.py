"""The dispatcher judges requests by client quotas, in virtual time: what is counted, answered and muted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.request_quota import ClientQuotas, QuotaWindows, forwarded_throttle_ms
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.principal import Principal
from kraftlog.transport.exchange import PeerContext, PeerThrottle
from kraftlog.wire.frame import decode_response, encode_request, encode_response
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.describe_quorum import DescribeQuorumResponse
from kraftlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kraftlog.wire.messages.metadata_records import ClientQuotaRecord
from kraftlog.wire.messages.produce import ProduceRequest, ProduceResponse
from kraftlog.wire.messages.vote import VoteRequest, VoteResponse
from waiting import until

MS = 1_000_000


class Desk:
    """A dispatcher with quotas, a clock that the handlers move, and one client."""

    def __init__(self, handlers: dict[int, Any], **limits: float) -> None:
        self.clock_ns = 10**15
        self.quotas = ClientQuotas(QuotaWindows(), lambda: self.clock_ns)
        self.image = MetadataImage()
        self.switched: list[bool] = []
        self.quotas.on_data_judged = self.switched.append
        self.limit({"user": "alice"}, **limits)
        self.muted: list[int] = []
        throttle = PeerThrottle()
        throttle.mute = self.muted.append
        self.peer = PeerContext("L", False, Principal("User", "alice"), "h", "h:1", throttle=throttle)
        services: Any = SimpleNamespace()
        self.dispatcher = Dispatcher(services, "broker", keys=(), handlers=handlers, quotas=self.quotas)

    def limit(self, entity: dict[str, str | None], **limits: float | None) -> None:
        delta = MetadataDelta()
        parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        for key, value in limits.items():
            record = ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)
            self.image.replay(record, delta)
        self.quotas.apply(self.image, delta)

    def ask(self, request: Any, version: int, peer: PeerContext | None = None) -> Any:
        """The response, or None."""
        frame = b"".join(map(bytes, encode_request(request.API_KEY, version, 1, "c", request)))[4:]
        answer = self.dispatcher.handle(peer or self.peer, frame)
        if answer is None:
            return None
        assert isinstance(answer, list)
        data = b"".join(map(bytes, answer))[4:]
        return decode_response(request.API_KEY, version, data)[1]

    def works(self, response: Any, time_ms: float) -> Callable[[Any, Any], Any]:
        """A handler that takes that time."""

        def handle(_context: Any, _request: Any) -> Any:
            self.clock_ns += int(time_ms * MS)
            if isinstance(response, KafkaError):
                raise response
            return response

        return handle


def produce(size_bytes: int, acks: int = 1) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(size_bytes))
    return ProduceRequest(acks=acks, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])


@pytest.mark.spec("CERR-36")
def test_a_producer_above_its_quota_is_answered_with_the_time_to_wait_and_muted() -> None:
    desk = Desk({0: lambda *_: ProduceResponse()}, producer_byte_rate=1_000)
    assert desk.ask(produce(5_000), 11).throttle_time_ms == 0
    assert desk.muted == []
    response = desk.ask(produce(10_000), 11)
    assert 5_000 < response.throttle_time_ms < 5_400, "15 000 bytes and some in ten seconds, of 10 000"
    assert desk.muted == [response.throttle_time_ms]
    other = PeerContext("L", False, Principal("User", "bob"), "h", "h:1", throttle=PeerThrottle())
    assert desk.ask(produce(1 << 20), 11, other).throttle_time_ms == 0


def test_a_producer_that_wants_no_answer_is_muted_all_the_same() -> None:
    desk = Desk({0: lambda *_: None}, producer_byte_rate=1_000, request_percentage=1e-9)
    assert desk.ask(produce(20_000, acks=0), 11) is None
    (duration_ms,) = desk.muted
    assert 10_000 < duration_ms < 10_400, "the time of its processing does not count"


def test_time_of_processing_counts_and_waiting_for_it_is_bounded_by_a_window() -> None:
    """KIP-124: 10 % of one second for each of ten seconds are 1 000 ms."""
    desk = Desk({}, request_percentage=10)
    desk.dispatcher._handlers[16] = (0, 5, desk.works(ListGroupsResponse(), 900))
    assert desk.ask(ListGroupsRequest(), 5).throttle_time_ms == 0
    desk.clock_ns += 100 * MS
    assert desk.ask(ListGroupsRequest(), 5).throttle_time_ms == 1_000
    assert desk.muted == [1_000]


def test_errors_carry_the_time_to_wait_as_well() -> None:
    desk = Desk({}, request_percentage=1)
    desk.dispatcher._handlers[16] = (0, 5, desk.works(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE), 500))
    response = desk.ask(ListGroupsRequest(), 5)
    assert (response.error_code, response.throttle_time_ms) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1_000)
    assert desk.muted == [1_000]


def test_time_between_slices_and_of_waiting_does_not_count() -> None:
    async def scenario() -> None:
        desk = Desk({}, request_percentage=10)
        future = asyncio.get_running_loop().create_future()
        waited: list[str] = []

        def handle(_context: Any, _request: Any) -> Any:
            desk.clock_ns += 300 * MS
            waited.append("others are served")
            yield None
            desk.clock_ns += 300 * MS
            waited.append("a future")
            yield future
            desk.clock_ns += 500 * MS
            return ListGroupsResponse()

        def begin(context: Any, request: Any) -> Any:
            slices = handle(context, request)
            next(slices)
            return slices

        desk.dispatcher._handlers[16] = (0, 5, begin)
        frame = b"".join(map(bytes, encode_request(16, 5, 1, "c", ListGroupsRequest())))[4:]
        pending: Any = desk.dispatcher.handle(desk.peer, frame)
        await until(lambda: len(waited) == 2)
        desk.clock_ns += 60_000 * MS
        future.set_result(None)
        await asyncio.wait([pending.future])
        desk.clock_ns += 60_000 * MS
        outputs = pending.finish(pending.future)
        response: Any = decode_response(16, 5, b"".join(map(bytes, outputs))[4:])[1]
        assert response.throttle_time_ms == 1_000, "1 100 ms of processing, of 1 000"

    asyncio.run(scenario())


def test_what_nodes_ask_of_each_other_is_exempt() -> None:
    desk = Desk({}, request_percentage=1e-9)
    desk.dispatcher._handlers[52] = (0, 2, desk.works(VoteResponse(), 500))
    desk.ask(VoteRequest(), 1)
    assert desk.muted == []

    def follower(context: Any, _request: Any) -> Any:
        context.quota.exempt()
        return ListGroupsResponse()

    desk.dispatcher._handlers[16] = (0, 5, follower)
    assert desk.ask(ListGroupsRequest(), 5).throttle_time_ms == 0
    assert desk.muted == []


def test_a_fetch_above_its_quota_is_not_counted() -> None:
    desk = Desk({}, consumer_byte_rate=1_000)
    judged: list[tuple[int | None, int]] = []

    def fetch(context: Any, _request: Any) -> Any:
        judged.append((context.quota.most_fetched(), context.quota.judge_fetch(sizes.pop(0))))
        return ListGroupsResponse()

    sizes = [9_000, 2_000, 1_000]
    desk.dispatcher._handlers[16] = (0, 5, fetch)
    responses = [desk.ask(ListGroupsRequest(), 5) for _ in range(3)]
    assert judged == [(10_000, 0), (10_000, 1_000), (10_000, 0)]
    assert [response.throttle_time_ms for response in responses] == [0, 1_000, 0]
    assert desk.muted == [1_000]


@pytest.mark.spec("CERR-36")
@pytest.mark.parametrize(("version", "is_refused"), [(5, False), (6, True)])
def test_changes_are_charged_strictly_if_the_client_knows_the_error(version: int, is_refused: bool) -> None:
    desk = Desk({}, controller_mutation_rate=1)
    refused: list[int] = []

    def create(context: Any, _request: Any) -> Any:
        charge = context.mutation_charge(6)
        for _ in range(2):
            try:
                charge(13)
            except KafkaError as error:
                refused.append(error.code)
        return CreateTopicsResponse()

    desk.dispatcher._handlers[19] = (2, 7, create)
    response = desk.ask(CreateTopicsRequest(), version)
    assert refused == ([ErrorCode.THROTTLING_QUOTA_EXCEEDED] if is_refused else [])
    assert response.throttle_time_ms == (2_000 if is_refused else 15_000)
    assert desk.muted == [response.throttle_time_ms]
    assert desk.switched == [], "no I/O thread answers such requests"


def test_data_has_to_be_judged_only_while_a_quota_may_apply_to_it() -> None:
    desk = Desk({}, controller_mutation_rate=1)
    assert (desk.switched, desk.quotas.is_active) == ([], True)
    desk.limit({"client-id": None}, consumer_byte_rate=1)
    desk.limit({"user": None}, producer_byte_rate=1)
    assert desk.switched == [True]
    desk.limit({"client-id": None}, consumer_byte_rate=None)
    desk.limit({"user": None}, producer_byte_rate=None)
    assert desk.switched == [True, False]
    desk.limit({"user": "alice"}, controller_mutation_rate=None)
    assert not desk.quotas.is_active
    desk.limit({"ip": None}, connection_creation_rate=1)
    assert not desk.quotas.is_active


def test_rates_of_addresses_are_told_as_they_are_committed() -> None:
    desk = Desk({}, producer_byte_rate=1)
    told: list[tuple[int | None, dict[str, int]]] = []
    desk.quotas.on_connection_rates = lambda default, by_address: told.append((default, by_address))
    desk.limit({"ip": "192.0.2.1"}, connection_creation_rate=2.9)
    desk.limit({"ip": None}, connection_creation_rate=0)
    desk.limit({"ip": "192.0.2.1"}, connection_creation_rate=None)
    desk.limit({"ip": None}, connection_creation_rate=None)
    assert told == [(None, {"192.0.2.1": 2}), (0, {"192.0.2.1": 2}), (0, {}), (None, {})]


def test_a_broker_lets_its_client_wait_as_the_active_controller_says() -> None:
    for version in (2, 5, 7):
        outputs = encode_response(19, version, 7, CreateTopicsResponse(throttle_time_ms=1_234))
        data = b"".join(map(bytes, outputs))
        assert forwarded_throttle_ms(19, version, [data[:4], data[4:]]) == 1_234
    quorum = b"".join(map(bytes, encode_response(55, 2, 7, DescribeQuorumResponse(error_code=1))))
    assert forwarded_throttle_ms(55, 2, [quorum]) == 0, "has no such field"

    async def scenario() -> None:
        desk = Desk({19: lambda *_: None})  # it does not know the quota yet
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        desk.dispatcher._forward = lambda _context, _frame: answer
        frame = b"".join(map(bytes, encode_request(19, 7, 1, "c", CreateTopicsRequest())))[4:]
        pending: Any = desk.dispatcher.handle(desk.peer, frame)
        encoded = b"".join(map(bytes, encode_response(19, 7, 1, CreateTopicsResponse(throttle_time_ms=77))))
        answer.set_result([encoded[:4], encoded[4:]])
        assert pending.finish(answer) == [encoded[:4], encoded[4:]]
        assert desk.muted == [77]

    asyncio.run(scenario())
