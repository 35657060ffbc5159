"""Keywords of ``Broker`` and ``Quorum`` that are no keys."""

from __future__ import annotations

import pytest

import kraftlog


@pytest.mark.parametrize(
    ("keyword", "expected"),
    [
        (
            "auto_create_topic_enable",
            "auto.create.topic.enable is no key .*; did you mean auto_create_topics_enable\\?",
        ),
        ("datadir", "no parameter 'datadir', .*; did you mean data_dir\\?"),
        ("kraftlog_metrics_listner", "did you mean kraftlog_metrics_listener\\?"),
        ("zzzz", "zzzz is no key of Kafka's configuration\\Z"),
    ],
)
def test_a_misspelt_keyword_is_an_error_that_names_the_nearest(keyword, expected):
    with pytest.raises(TypeError, match=rf"Broker\(\) .*{expected}"):
        kraftlog.Broker(**{keyword: 1})


def test_a_misspelt_keyword_of_a_quorum_is_an_error(tmp_path):
    with pytest.raises(TypeError, match=r"Quorum\(\) has no parameter 'nodeid', .*; did you mean node_id\?"):
        kraftlog.Quorum(kraftlog.StateMachine, data_dir=tmp_path, nodeid=1)


def test_keys_of_listeners_and_unknown_keys_of_the_mapping_are_taken():
    kraftlog.Broker(listener_name_plaintext_max_connections=5, log_flush_on_ack=True, config={"my.plugin.key": "x"})
