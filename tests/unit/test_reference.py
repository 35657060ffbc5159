"""The generated reference pages: they are what the code says now, and what they say of a key is so."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kraftlog import config_table
from kraftlog.errors import KafkaError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.node.standalone import standalone_properties

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "generate_reference.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(page, heading):
    """The cells of the first table below a heading."""
    below = page.split(f"\n{heading}\n", 1)[1]
    found = []
    for line in below.splitlines():
        if line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").replace("\\|", "¦").split("|")])
        elif found:
            break
    return found[2:]


def test_reference_pages_are_what_the_generator_makes(generator):
    assert generator.outdated() == [], "run python .ci/generate_reference.py"


def test_configuration_page_has_every_key(generator):
    page = generator.configuration_page()
    for table in (config_table.broker_configs(), config_table.topic_configs(), config_table.group_configs()):
        for name in table:
            assert f"| `{name}`<br>" in page or f"| `{name}` |" in page, name


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("log.segment.bytes", "read"),
        ("socket.request.max.bytes", "read"),
        ("compression.lz4.level", "read"),  # the code builds this name out of the codec's
        ("ssl.keystore.type", "read"),
        ("metric.reporters", "no effect"),  # named as a prefix only
        ("replica.selector.class", "read"),
        ("sasl.jaas.config", "read"),
        ("sasl.kerberos.service.name", "no effect"),
        ("sasl.login.class", "default only: a class of Java"),
        ("authorizer.class.name", "read: empty or StandardAuthorizer"),
        ("ssl.provider", "default only: a feature of Java's TLS"),
    ],
)
def test_effect_of_a_key_follows_the_code(generator, key, words):
    assert generator.effect(config_table.broker_config(key), generator.keys_read()) == words


def test_refused_keys_stop_a_node_from_starting(generator, tmp_path):
    for key in generator.REFUSED:
        changes = {key: "org.example.Plugin"}
        with pytest.raises((ConfigError, KafkaError), match=key.replace(".", r"\.")):
            NodeConfig(standalone_properties(tmp_path, port=0, is_durable=False, changes=changes))


def test_refused_keys_of_topics_are_refused(generator):
    for key in generator.REFUSED_OF_TOPICS:
        with pytest.raises(KafkaError, match="INVALID_CONFIG"):
            config_table.validate_topic_configs({key: "true"})


@pytest.mark.parametrize(
    ("key", "level"),
    [
        ("log.retention.ms", "cluster"),
        ("listeners", ""),
        ("ssl.keystore.location", ""),
        ("node.id", ""),
        ("log.dirs", ""),
    ],
)
def test_dynamic_level_of_a_key(generator, key, level):
    assert generator.dynamic(config_table.broker_config(key)) == level


def test_limits_read_as_words(generator):
    limits = {name: generator.limits(config_table.topic_config(name)) for name in config_table.topic_configs()}
    assert limits["retention.ms"] == "≥ -1"
    assert limits["min.cleanable.dirty.ratio"] == "0 to 1"
    assert limits["compression.gzip.level"] == "1 to 9 or -1"
    assert limits["cleanup.policy"] == "`[compact, delete]`"


def test_cli_page_has_every_flag_with_its_meaning(generator):
    page = generator.cli_page()
    flags = {row[0]: row[1] for row in rows(page, "### kraftlog storage format")}
    assert flags["`--cluster-id CLUSTER-ID`, `-t`"].endswith("(required)")
    assert "`--port N`" in {row[0] for row in rows(page, "## kraftlog dev")}
    assert "### kraftlog metadata-quorum add-controller" in page


def test_flag_without_help_is_refused(generator):
    parser = generator.argparse.ArgumentParser(prog="kraftlog x")
    parser.add_argument("--silent")
    with pytest.raises(ValueError, match=r"kraftlog x.*silent.*has no help text"):
        list(generator.flag_rows(parser))
