"""Topics that are created because they are needed, as the controller is asked for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.node.config import NodeConfig
from kraftlog.node.settings import topic_creation_settings
from kraftlog.runtime.metadata.topic_creation import TopicCreation
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

_CONFIG = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "log.dirs": "unused",
}


class Controller:
    """Answers with one error code."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.requests: list[CreateTopicsRequest] = []

    async def request(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        self.requests.append(request)
        result = CreateTopicsResponse.CreatableTopicResult
        return CreateTopicsResponse(topics=[result(name=topic.name, error_code=self.code) for topic in request.topics])


def _created(name: str, brokers: int, code: int = 0) -> tuple[Any, dict[str, int]]:
    waited: list[list[str]] = []

    async def wait(names: Any) -> None:
        waited.append(list(names))

    alive = {number: SimpleNamespace(fenced=number > brokers) for number in range(1, 6)}
    metadata: Any = SimpleNamespace(image=SimpleNamespace(cluster=SimpleNamespace(brokers=alive)), wait_for_topics=wait)
    opening: Any = SimpleNamespace(wait_until_open=wait)
    controller = Controller(code)
    creation = TopicCreation(topic_creation_settings(NodeConfig(_CONFIG)), controller, metadata, opening)  # type: ignore[arg-type]
    errors = asyncio.run(creation.create([name]))
    assert waited == [[] if code else [name]] * 2
    ((topic,),) = [request.topics for request in controller.requests]
    return topic, errors


@pytest.mark.parametrize(("brokers", "factor"), [(5, 3), (3, 3), (2, 2), (1, 1), (0, 1)])
def test_the_topic_of_groups_has_the_settings_of_kafka(brokers: int, factor: int) -> None:
    """CGRP-02; where Kafka waits for as many brokers as replicas are configured, as many as there are have one."""
    topic, errors = _created("__consumer_offsets", brokers)
    assert (topic.num_partitions, topic.replication_factor, errors) == (50, factor, {})
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_a_topic_that_is_there_already_is_no_error_and_any_other_refusal_is() -> None:
    assert _created("__consumer_offsets", 3, int(ErrorCode.TOPIC_ALREADY_EXISTS))[1] == {}
    refused = _created("__consumer_offsets", 3, int(ErrorCode.POLICY_VIOLATION))[1]
    assert refused == {"__consumer_offsets": ErrorCode.POLICY_VIOLATION}
