"""Setting client quotas; errors and words are those of Kafka's ClientQuotaControlManager."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.controller.image_difference import image_difference
from kraftlog.controller.operations import operation_of
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from metadata_fixture import Cluster, one_broker

_Request = AlterClientQuotasRequest
Entity = dict[str, str | None]
Ops = list[tuple[str, float | None]]
INVALID = ErrorCode.INVALID_REQUEST


def request(*entries: tuple[Entity, Ops], validate_only: bool = False) -> AlterClientQuotasRequest:
    return _Request(
        entries=[
            _Request.EntryData(
                entity=[_Request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[_Request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
            )
            for entity, ops in entries
        ],
        validate_only=validate_only,
    )


def alter(cluster: Cluster, *entries: tuple[Entity, Ops], **settings: bool) -> list[tuple[int, str | None]]:
    response: Any = cluster.ask(request(*entries, **settings))
    return [(entry.error_code, entry.error_message) for entry in response.entries]


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = one_broker()
    alice, default = {"user": "alice", "client-id": "c"}, {"user": None}
    keys: Ops = [("producer_byte_rate", 1024.0), ("request_percentage", 12.5)]
    assert alter(cluster, (alice, keys), (default, [("controller_mutation_rate", 0.5)])) == [(0, None)] * 2
    assert cluster.image.security.client_quotas == {
        (("client-id", "c"), ("user", "alice")): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        (("user", None),): {"controller_mutation_rate": 0.5},
    }
    assert cluster.versions == [0, 0, 0]
    assert alter(cluster, (alice, keys)) == [(0, None)]
    assert cluster.records == [], "nothing changes"
    removed: Ops = [("producer_byte_rate", None), ("consumer_byte_rate", None), ("request_percentage", 7.0)]
    assert alter(cluster, (alice, removed), (default, [("controller_mutation_rate", None)])) == [(0, None)] * 2
    assert len(cluster.records) == 3, "what was not set is not removed"
    assert cluster.image.security.client_quotas == {
        (("client-id", "c"), ("user", "alice")): {"request_percentage": 7.0}
    }


def test_nothing_is_written_of_a_request_that_only_validates() -> None:
    cluster = one_broker()
    assert alter(cluster, ({"ip": None}, [("connection_creation_rate", 5.0)]), validate_only=True) == [(0, None)]
    assert cluster.records == []
    assert alter(cluster) == []


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        ({}, [], "Invalid empty client quota entity"),
        ({"group": "g"}, [], "Unhandled client quota entity type: group"),
        ({"user": ""}, [], "Empty user not supported"),
        (
            {"ip": "192.0.2.1", "user": "u"},
            [],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "no address"}, [], "no address is not a valid IP or resolvable host."),
        ({"ip": "192.0.2.1"}, [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        ({"user": "u"}, [("connection_creation_rate", 1.0)], "Invalid configuration key connection_creation_rate"),
        ({"user": "u"}, [("producer_byte_rate", -1.0)], "Quota producer_byte_rate must be greater than 0"),
        ({"user": "u"}, [("consumer_byte_rate", 1.5)], "consumer_byte_rate cannot be a fractional value."),
        (
            {"user": "u"},
            [("producer_byte_rate", 1e19)],
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": "::1"},
            [("connection_creation_rate", 2.0**31)],
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            {"client-id": "c", "user": None},
            [("request_percentage", 1.0), ("request_percentage", 2.0)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=null})",
        ),
    ],
)
def test_what_cannot_be_a_quota_is_refused(entity: Entity, ops: Ops, message: str) -> None:
    cluster = one_broker()
    good: tuple[Entity, Ops] = ({"user": "good"}, [("producer_byte_rate", 1.0)])
    assert alter(cluster, (entity, ops), good) == [(INVALID, message), (0, None)]
    assert len(cluster.records) == 1


def test_the_second_change_of_an_entity_is_refused_and_the_first_one_stays() -> None:
    cluster = one_broker()
    first, second = [("producer_byte_rate", 1.0)], [("producer_byte_rate", 2.0)]
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    assert alter(cluster, ({"user": "u"}, first), ({"user": "u"}, second)) == [(INVALID, message)]
    assert cluster.image.security.client_quotas == {(("user", "u"),): {"producer_byte_rate": 1.0}}


def test_too_many_changes_are_refused_as_a_whole() -> None:
    cluster = one_broker()
    entries = [({"user": str(number)}, [("producer_byte_rate", 1.0)]) for number in range(10_001)]
    with pytest.raises(KafkaError) as raised:
        alter(cluster, *entries)
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert not cluster.image.security.client_quotas
    refused: Any = operation_of(request(*entries[:2])).refuse
    answer = refused(request(*entries[:2]), raised.value)
    assert [(entry.error_code, entry.entity[0].entity_name) for entry in answer.entries] == [(44, "0"), (44, "1")]


def test_a_snapshot_has_the_quotas_and_a_delta_says_that_they_changed() -> None:
    cluster = one_broker()
    before = cluster.image.copy()
    alter(cluster, ({"user": None, "client-id": "c"}, [("consumer_byte_rate", 9.0)]), ({"ip": None}, []))
    again, delta = MetadataImage(), MetadataDelta()
    for record, _ in cluster.image.to_records():
        again.replay(record, delta)
    assert again.security.client_quotas == cluster.image.security.client_quotas != {}
    assert delta.quotas_changed
    assert image_difference(before, again).quotas_changed
    assert not image_difference(cluster.image, again).quotas_changed


def test_partitions_are_charged_once_it_is_known_that_they_can_be_made_or_deleted() -> None:
    cluster = one_broker()
    charged: list[int] = []

    def ask(message: Any, left: int) -> list[tuple[str, int]]:
        def charge(count: int) -> None:
            if len(charged) >= left:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much")
            charged.append(count)

        charged.clear()
        begin: Any = operation_of(message).begin_charged
        response = cluster.run(begin(cluster.core, message, charge))
        results = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
        return [(result.name, result.error_code) for result in results]

    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=name, num_partitions=count, replication_factor=1) for name, count in (("a", 3), ("b", 2))]
    bad = topic(name="bad", num_partitions=0, replication_factor=1)
    creation = CreateTopicsRequest(topics=[bad, *topics])
    assert ask(creation, 1) == [("bad", 37), ("a", 0), ("b", 89)]
    assert charged == [3]
    assert ask(CreateTopicsRequest(topics=topics), 1) == [("a", 36), ("b", 0)]
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    growth = [grown(name="a", count=3, assignments=None), grown(name="a2", count=3, assignments=None)]
    more = [grown(name="b", count=6, assignments=None)]
    assert [code for _, code in ask(CreatePartitionsRequest(topics=[*growth, *more]), 1)] == [37, 3, 0]
    assert charged == [4]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in ("a", "b")])
    assert ask(deletion, 1) == [("a", 0), ("b", 89)]
    assert charged == [3]
    assert cluster.image.topics.by_name("b") is not None
