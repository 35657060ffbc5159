"""Sessions of brokers on a node: the active controller fences who is silent, and a restarted broker waits its turn."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from kraftlog.api.context import RequestContext
from kraftlog.api.handlers import broker_heartbeat
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.registration import BrokerRegistration
from kraftlog.node.settings import broker_registration_settings
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationResponse
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


def registering(tmp_path, answers, **properties):
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
    return BrokerRegistration(settings, (), channel, lambda: 7), asked


def test_restarted_broker_waits_for_the_session_of_the_killed_one(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("kraftlog.node.registration.DUPLICATE_RETRY_S", 0.01)
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    answers = [
        BrokerRegistrationResponse(error_code=code),
        KafkaError(code),
        BrokerRegistrationResponse(broker_epoch=7),
    ]
    registration, asked = registering(tmp_path, answers)
    with caplog.at_level(logging.WARNING):
        asyncio.run(registration.register())
    assert registration.broker_epoch == 7
    assert len(asked) == 3
    assert len({request.incarnation_id for request in asked}) == 1
    assert caplog.text.count("another process is registered as broker 2") == 1


def test_broker_gives_up_after_its_time_and_at_once_where_it_is_refused_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr("kraftlog.node.registration.DUPLICATE_RETRY_S", 0.01)
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    registration, asked = registering(
        tmp_path,
        [BrokerRegistrationResponse(error_code=code)],
        **{"initial.broker.registration.timeout.ms": "100"},
    )
    with pytest.raises(KafkaError, match=r"initial\.broker\.registration\.timeout\.ms") as caught:
        asyncio.run(registration.register())
    assert caught.value.code == code
    assert len(asked) > 1
    registration, asked = registering(tmp_path, [BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION)])
    with pytest.raises(KafkaError) as caught:
        asyncio.run(registration.register())
    assert caught.value.code == ErrorCode.INVALID_REGISTRATION
    assert len(asked) == 1


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
    answers = [late, BrokerHeartbeatResponse(is_fenced=True), BrokerHeartbeatResponse(is_fenced=False)]
    registration, asked = registering(tmp_path, answers)

    async def run():
        await registration.unfence()
        registration.stop()

    asyncio.run(run())
    assert len(asked) == 3
