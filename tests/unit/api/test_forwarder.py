"""A broker that is not the active controller checks changes of settings itself and forwards what is left."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from kraftlog.api.context import RequestContext
from kraftlog.api.forwarder import Forwarder
from kraftlog.api.handlers import incremental_alter_configs
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.messages.envelope import EnvelopeResponse
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

PEER = PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", "127.0.0.1:1")
CONTEXT = RequestContext(44, 1, 7, "client", PEER)
RESULT = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def resource(kind, name, key):
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value="1")
    return IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])


class Controller:
    """The active controller on another node: grants everything."""

    def __init__(self):
        self.forwarded = []

    async def request(self, envelope, *, timeout_s):
        header, request = decode_request(envelope.request_data)
        self.forwarded += [(wanted.resource_type, wanted.resource_name) for wanted in request.resources]
        granted = [
            RESULT(resource_type=resource.resource_type, resource_name=resource.resource_name)
            for resource in request.resources
        ]
        parts = encode_response(44, 1, header.correlation_id, IncrementalAlterConfigsResponse(responses=granted))
        return EnvelopeResponse(response_data=b"".join(map(bytes, parts))[4:])


def refuse(changes, *, per_broker):
    if "listeners" in changes:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "not at run time")


def test_what_the_broker_refuses_is_not_forwarded_and_the_rest_is():
    async def run():
        controller = Controller()
        tasks = SimpleNamespace(spawn=asyncio.get_running_loop().create_task)
        raft = SimpleNamespace(is_leader=False)
        request = IncrementalAlterConfigsRequest(
            resources=[
                resource(ConfigResourceType.BROKER, "2", "listeners"),
                resource(ConfigResourceType.BROKER, "3", "max.connections"),
                resource(ConfigResourceType.TOPIC, "t", "retention.ms"),
            ]
        )
        response = await incremental_alter_configs.handle(
            CONTEXT,
            request,
            cluster=SimpleNamespace(node_id=2),
            controller=None,
            dynamic_settings=SimpleNamespace(check=refuse),
            forwarding=Forwarder(raft, controller, tasks, request_timeout_ms=1000),
        )
        found = [(result.resource_name, result.error_code, result.error_message) for result in response.responses]
        wrong_broker = "Unexpected broker id, expected 2, but received 3"
        assert found == [
            ("2", ErrorCode.INVALID_REQUEST, "not at run time"),
            ("3", ErrorCode.INVALID_REQUEST, wrong_broker),
            ("t", ErrorCode.NONE, ""),
        ]
        assert controller.forwarded == [(ConfigResourceType.TOPIC, "t")]

    asyncio.run(run())
