"""Settings of Broker and Quorum, as properties."""

from __future__ import annotations

import pytest

from kraftlog.config_input import config_properties, config_property


@pytest.mark.parametrize(
    ("value", "text"), [("a,b", "a,b"), (7, "7"), (0.5, "0.5"), (True, "true"), (False, "false"), ("True", "True")]
)
def test_value_is_written_as_in_a_properties_file(value, text):
    assert config_property(value) == text


def test_keywords_have_underscores_for_dots_and_go_before_the_mapping():
    found = config_properties(
        {"node.id": 1, "log.flush.on.ack": True}, {"node_id": 2, "auto_create_topics_enable": False}
    )
    assert found == {"node.id": "2", "log.flush.on.ack": "true", "auto.create.topics.enable": "false"}


def test_nothing_given_is_nothing():
    assert config_properties(None, {}) == {}
