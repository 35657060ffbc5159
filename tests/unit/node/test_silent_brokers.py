"""Sessions of brokers on a node: the active controller fences who is silent, and a restarted broker waits its turn."""

from __future__ import annotations

import asyncio
import logging
import time
from types import SimpleNamespace

import pytest

from kraftlog.api.context import RequestContext
from kraftlog.api.handlers import broker_heartbeat
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.node.config import NodeConfig
from kraftlog.node.controller_registration import ControllerRegistration
from kraftlog.node.node import Node
from kraftlog.node.registration import BrokerRegistration, BrokerState
from kraftlog.node.settings import broker_registration_settings
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationResponse
from kraftlog.wire.messages.controller_registration import ControllerRegistrationResponse
from metadata_fixture import Cluster
from quorum_fixture import PROPERTIES, format_directory, started
from waiting import TIMEOUT_S, until

CONTEXT = RequestContext(63, 2, 1, "2", PeerContext("CONTROLLER", True, ANONYMOUS, "127.0.0.1", "127.0.0.1:1"))


@pytest.fixture
def path(tmp_path):
    format_directory(tmp_path / "data")
    return tmp_path / "data"


def heartbeat_of(quorum, broker_id):
    broker = quorum.image.cluster.brokers[broker_id]
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=broker.epoch, current_metadata_offset=quorum.image.offset
    )


def test_active_controller_fences_a_broker_that_is_silent(path, caplog):
    async def run():
        quorum = await started(path, **{"broker.session.timeout.ms": "300", "node.id": "1"})
        try:
            for broker_id in (2, 3):
                request = Cluster.registration(broker_id)
                await quorum.submit(lambda core, now_ms, request=request: core.register_broker(request, now_ms))
                await broker_heartbeat.handle(CONTEXT, heartbeat_of(quorum, broker_id), controller=quorum)
            brokers = quorum.image.cluster.brokers
            assert not brokers[2].fenced
            assert not brokers[3].fenced
            with caplog.at_level(logging.WARNING):
                async with asyncio.timeout(TIMEOUT_S):
                    while not brokers[2].fenced:
                        await broker_heartbeat.handle(CONTEXT, heartbeat_of(quorum, 3), controller=quorum)
                        await asyncio.sleep(0)
            assert not brokers[3].fenced
            assert "broker 2 has sent no heartbeat for its session timeout and is fenced" in caplog.text
            await until(lambda: brokers[3].fenced)
        finally:
            await quorum.stop()

    asyncio.run(run())


def test_heartbeat_that_no_controller_begins_in_time_is_refused_and_counted(path):
    async def run():
        quorum = await started(path, **{"broker.heartbeat.interval.ms": "100"})
        try:
            request = Cluster.registration(2)
            await quorum.submit_request(request)
            answer = await broker_heartbeat.handle(CONTEXT, heartbeat_of(quorum, 2), controller=quorum)
            assert answer.error_code == 0
            # As while a new leader reads what there is.
            core, quorum.controller._core = quorum.controller._core, None
            late = broker_heartbeat.handle(CONTEXT, heartbeat_of(quorum, 2), controller=quorum)
            patient = quorum.submit(lambda core, _: core.no_op())
            with pytest.raises(KafkaError) as caught:
                await late
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert not patient.done()
            quorum.controller._core = core
            quorum.controller.operations.schedule_turn()
            await patient
            assert quorum._metrics._controller._heartbeats_timed_out == 1
            assert quorum._metrics._controller._operations_timed_out == 1
        finally:
            await quorum.stop()

    asyncio.run(run())


def registering(tmp_path, answers, log_dirs=(), fatal=None, **properties):
    """A broker's registration with a controller that gives these answers, one after the other."""
    config = NodeConfig(
        {
            "node.id": "2",
            "log.dirs": str(tmp_path),
            **PROPERTIES,
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            **properties,
        }
    )
    asked = []

    async def request(message):
        asked.append(message)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    settings = broker_registration_settings(config, "c", config.advertised_listeners, ())
    channel = SimpleNamespace(request=request)
    on_fatal = [].append if fatal is None else fatal.append
    return BrokerRegistration(settings, log_dirs, channel, lambda: 7, on_fatal), asked


def test_restarted_broker_waits_for_the_session_of_the_killed_one(tmp_path, caplog):
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    answers = [
        BrokerRegistrationResponse(error_code=code),
        KafkaError(code),
        BrokerRegistrationResponse(broker_epoch=7),
    ]
    registration, asked = registering(tmp_path, answers, **{"broker.heartbeat.interval.ms": "10"})
    with caplog.at_level(logging.WARNING):
        asyncio.run(registration.register())
    assert registration.broker_epoch == 7
    assert len(asked) == 3
    assert len({request.incarnation_id for request in asked}) == 1
    assert caplog.text.count("another process is registered as broker 2") == 1


def test_controller_registers_again_when_the_active_one_could_not_store_it_in_time(monkeypatch):
    monkeypatch.setattr("kraftlog.node.controller_registration.RETRY_S", 0)
    code = ErrorCode.REQUEST_TIMED_OUT
    answers = [ControllerRegistrationResponse(error_code=code), KafkaError(code), ControllerRegistrationResponse()]

    async def request(_message):
        answer = answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    identity = SimpleNamespace(node_id=2, listeners=())
    asyncio.run(ControllerRegistration(identity, SimpleNamespace(request=request)).register())
    assert not answers


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_broker_registers_again_whatever_the_error_and_gives_up_after_its_time(tmp_path, caplog, code):
    """CPRT-11: with broker.heartbeat.interval.ms between; fails before the fix, where most errors were final."""
    answers = [BrokerRegistrationResponse(error_code=code), KafkaError(code)]
    settings = {"initial.broker.registration.timeout.ms": "200", "broker.heartbeat.interval.ms": "20"}
    registration, asked = registering(tmp_path, answers, **settings)
    with pytest.raises(KafkaError, match=r"initial\.broker\.registration\.timeout\.ms") as caught:
        asyncio.run(registration.register())
    assert caught.value.code == code
    assert 1 < len(asked) <= 11
    assert caplog.text.count("broker 2") == 1
    accepted = BrokerRegistrationResponse(broker_epoch=7)
    registration, asked = registering(tmp_path, [*answers, accepted], **{"broker.heartbeat.interval.ms": "20"})
    began_s = time.monotonic()
    asyncio.run(registration.register())
    assert (registration.broker_epoch, len(asked)) == (7, 3)
    assert time.monotonic() - began_s >= 0.04


def test_states_of_a_broker_that_starts(tmp_path, monkeypatch):
    """CPRT-20: fenced while it catches up and opens its logs, with heartbeats; fails before the fix, without any."""
    monkeypatch.setattr("kraftlog.node.registration.UNFENCE_RETRY_S", 0.01)
    answers = [
        BrokerRegistrationResponse(broker_epoch=7),
        *[BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=True) for is_caught_up in (False, False, True)],
        BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True),
    ]
    registration, asked = registering(tmp_path, answers, **{"broker.heartbeat.interval.ms": "20"})
    states = [registration.state]

    async def run():
        await registration.register()
        states.append(registration.state)
        await registration.catch_up()
        states.append(registration.state)
        assert [request.want_fence for request in asked[1:]] == [True] * 3
        await until(lambda: len(asked) >= 6)
        assert all(request.want_fence for request in asked[1:]), "the logs are being opened"
        count = len(asked)
        unfencing = asyncio.create_task(registration.unfence())
        await until(lambda: len(asked) > count + 1)
        assert (registration.state, unfencing.done()) == (BrokerState.RECOVERY, False)
        answers.append(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
        await unfencing
        states.append(registration.state)
        assert not any(request.want_fence for request in asked[count + 1 :])
        registration.stop()

    asyncio.run(run())
    assert states == [BrokerState.NOT_RUNNING, BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.RUNNING]


@pytest.mark.parametrize("is_controlled", [True, False])
def test_controlled_shutdown_is_left_out_where_it_is_turned_off(tmp_path, is_controlled):
    async def run():
        properties = standalone_properties(
            tmp_path / "data",
            port=0,
            is_durable=False,
            changes={"controlled.shutdown.enable": str(is_controlled).lower()},
        )
        config = NodeConfig(properties)
        format_when_needed(config)
        node = Node(config)
        await node.start()
        assert not node.metadata.image.cluster.brokers[config.node_id].fenced
        await node.stop()
        assert node.metadata.image.cluster.brokers[config.node_id].fenced is is_controlled

    asyncio.run(run())


def test_broker_asks_again_where_no_controller_began_its_heartbeat_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr("kraftlog.node.registration.UNFENCE_RETRY_S", 0.01)
    late = BrokerHeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, is_fenced=False)
    in_this_process = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    answers = [late, in_this_process, *(BrokerHeartbeatResponse(is_fenced=is_fenced) for is_fenced in (True, False))]
    registration, asked = registering(tmp_path, answers)

    async def run():
        await registration.unfence()
        registration.stop()

    asyncio.run(run())
    assert len(asked) == 4


def test_failed_directories_are_reported_at_once(tmp_path):
    """RDLT-49: all that failed so far, without waiting for the next heartbeat."""
    log_dirs = [SimpleNamespace(directory_id=letter, path=letter, is_online=True) for letter in "ab"]
    registration, asked = registering(
        tmp_path, [BrokerHeartbeatResponse(is_fenced=False)], log_dirs, **{"broker.heartbeat.interval.ms": "60000"}
    )

    async def run():
        async with asyncio.timeout(10):
            await registration.unfence()
            for log_dir in log_dirs:
                log_dir.is_online = False
                registration.report_failed_directory()  # the second one while the first heartbeat is under way
                await asyncio.sleep(0)
            await until(lambda: len(asked) == 3)
            await until(lambda: registration._report_deadline is None)
            registration.stop()

    asyncio.run(run())
    assert [request.offline_log_dirs for request in asked] == [[], ["a"], ["a", "b"]]


@pytest.mark.parametrize("answer", [KafkaError(ErrorCode.BROKER_NOT_AVAILABLE), BrokerHeartbeatResponse(error_code=7)])
def test_broker_whose_failed_directory_no_controller_learns_of_ends(tmp_path, answer):
    """RDLT-49: after log.dir.failure.timeout.ms."""
    log_dir = SimpleNamespace(directory_id="a", path="/a", is_online=True)
    fatal = []
    registration, asked = registering(
        tmp_path,
        [BrokerHeartbeatResponse(is_fenced=False), answer],
        [log_dir],
        fatal,
        **{"broker.heartbeat.interval.ms": "20", "log.dir.failure.timeout.ms": "100"},
    )

    async def run():
        async with asyncio.timeout(10):
            await registration.unfence()
            log_dir.is_online = False
            registration.report_failed_directory()
            await until(lambda: fatal)
            registration.stop()

    asyncio.run(run())
    assert "log.dir.failure.timeout.ms (100 ms) that /a is offline" in str(fatal[0])
    assert len(asked) > 2, "it was sent again until then"


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ([(True, 321), (True, 321)], 321),
        ([(True, 321), (False, -1)], -1),  # a kill, or a directory that is offline
        ([(True, 321), (True, 320)], -1),
        ([(True, -1), (True, -1)], -1),  # the empty file of an older release
    ],
)
def test_registration_names_the_epoch_of_a_clean_shutdown(tmp_path, left, expected):
    """RDLT-58: only if all directories were left cleanly by one incarnation."""
    log_dirs = [SimpleNamespace(was_clean_shutdown=is_clean, previous_broker_epoch=epoch) for is_clean, epoch in left]
    registration, asked = registering(tmp_path, [BrokerRegistrationResponse(broker_epoch=7)], log_dirs)
    asyncio.run(registration.register())
    assert [request.previous_broker_epoch for request in asked] == [expected]
