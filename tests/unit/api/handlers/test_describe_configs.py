"""DescribeConfigs of very many resources."""

from __future__ import annotations

import pytest

from kraftlog.api.handlers import describe_configs
from kraftlog.api.slices import at_once
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest
from kraftlog.wire.messages.metadata_records import ConfigRecord, TopicRecord

TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
RESOURCES = 2_000
SETTINGS_OF_A_BROKER_MAX = 400


@pytest.fixture
def node(node):
    for number in range(RESOURCES):
        node.replay(TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big"))))
    node.replay(
        ConfigRecord(resource_type=TOPIC, resource_name="t7", name="retention.ms", value="7"),
        ConfigRecord(resource_type=GROUP, resource_name="g7", name="consumer.session.timeout.ms", value="50000"),
    )
    return node


def request(kind, names, **options):
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources, **options)


def answer(node, asked):
    """The response to a request that is handled in slices."""
    slices = node.ask(asked, 4)
    response = slices if hasattr(slices, "results") else at_once(slices)
    assert not any(result.error_code for result in response.results)
    return response.results


def distinct(results):
    return {id(entry) for result in results for entry in result.configs}


@pytest.mark.parametrize("has_synonyms", [False, True])
@pytest.mark.parametrize("has_documentation", [False, True])
def test_topics_without_settings_share_their_entries(node, has_synonyms, has_documentation):
    names = [f"t{number}" for number in range(RESOURCES)]
    options = {"include_synonyms": has_synonyms, "include_documentation": has_documentation}
    results = answer(node, request(TOPIC, names, **options))
    one, other = results[0].configs, results[7].configs
    assert len(distinct(results)) == len(one) + len(other)
    values = {entry.name: entry.value for entry in one}
    others = {entry.name: entry.value for entry in other}
    assert others == values | {"retention.ms": "7"}
    assert all(bool(entry.documentation) is has_documentation for entry in one)
    assert any(entry.synonyms for entry in one) is has_synonyms
    # Each is what a request for it alone gets.
    for number in (0, 7, RESOURCES - 1):
        assert answer(node, request(TOPIC, [names[number]], **options))[0].configs == results[number].configs


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t7"), (GROUP, "g7"), (BROKER, "1"), (BROKER, ""), (GROUP, "g")])
def test_a_resource_that_is_named_again_gets_the_same_entries(node, kind, name):
    results = answer(node, request(kind, [name] * RESOURCES))
    assert len(distinct(results)) == len(results[0].configs) <= SETTINGS_OF_A_BROKER_MAX


def test_a_filter_leaves_the_other_topics_alone(node):
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = DescribeConfigsRequest(
        resources=[
            resource(resource_type=TOPIC, resource_name="t1", configuration_keys=["retention.ms"]),
            resource(resource_type=TOPIC, resource_name="t2", configuration_keys=None),
        ]
    )
    filtered, whole = answer(node, asked)
    assert [entry.name for entry in filtered.configs] == ["retention.ms"]
    assert len(whole.configs) > 30


def test_few_resources_are_described_in_one_slice(node, monkeypatch):
    counts = [0]
    describe = describe_configs._describe

    def counted(*arguments):
        counts[-1] += 1
        return describe(*arguments)

    monkeypatch.setattr(describe_configs, "_describe", counted)
    slices = node.ask(request(TOPIC, [f"t{number}" for number in range(200)]), 4)
    for _ in range(200):
        counts.append(0)
        if next(slices, slices) is slices:
            break
    assert sum(counts) == 200
    assert max(counts) <= describe_configs._RESOURCES_PER_SLICE


def test_an_empty_list_of_keys_asks_for_all_of_them(node):
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = DescribeConfigsRequest(
        resources=[
            resource(resource_type=TOPIC, resource_name="t1", configuration_keys=keys) for keys in (None, [], ["none"])
        ]
    )
    whole, also_whole, nothing = answer(node, asked)
    assert len(whole.configs) > 30
    assert also_whole.configs == whole.configs
    assert not nothing.configs
