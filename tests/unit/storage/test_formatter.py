from __future__ import annotations

import itertools

import pytest

from batch_rows import GOLDEN
from kraftlog.features import metadata_version_from_string
from kraftlog.storage.dynamic_voter import DynamicVoter, from_kip_spelling, parse_dynamic_voters
from kraftlog.storage.formatter import FormatError, Formatter
from kraftlog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftlog.storage.snapshot_file import read_snapshot
from kraftlog.types import NodeId, Uuid

KAFKA = GOLDEN / "kraft" / "logs" / "standalone" / "00-formatted" / "node-1"
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
CLUSTER_ID = "6ukEYB2qBMCQ4OIrSkFKQA"
VOTER = DynamicVoter(node_id=NodeId(1), host="127.0.0.1", port=21171, directory_id=Uuid.parse("2Iyr024IQ0uAyQIgjhiQEQ"))


def formatter(path, **changes):
    settings = {
        "directories": [path],
        "metadata_directory": path,
        "cluster_id": CLUSTER_ID,
        "node_id": NodeId(1),
        "initial_voters": (VOTER,),
        "has_dynamic_quorum": True,
        "report": lambda _: None,
    }
    return Formatter(**(settings | changes))


def without_times(data):
    """The bytes with timestamps and the CRCs over them blanked: Kafka's clock moved on between its batches."""
    result, position = bytearray(data), 0
    while position < len(result):
        size = 12 + int.from_bytes(result[position + 8 : position + 12], "big")
        result[position + 17 : position + 21] = bytes(4)
        result[position + 27 : position + 43] = bytes(16)
        position += size
    return bytes(result)


@pytest.mark.spec("BOOT-02", "BOOT-23", "BOOT-19")
def test_format_standalone_writes_kafkas_bytes(tmp_path):
    path = tmp_path / "data"
    formatter(path, now_ms=lambda: 1795252923484).run()
    for name in ("bootstrap.checkpoint", CHECKPOINT):
        ours, kafkas = (path / name).read_bytes(), (KAFKA / name).read_bytes()
        assert without_times(ours) == without_times(kafkas), name
    assert read_snapshot(path / CHECKPOINT) == read_snapshot(KAFKA / CHECKPOINT)
    ours, kafkas = ((directory / "meta.properties").read_text().splitlines() for directory in (path, KAFKA))
    assert ours[0] == kafkas[0] == "#"
    assert ours[2:] == kafkas[2:]


@pytest.mark.spec("BOOT-18")
def test_format_writes_meta_properties_last_and_never_a_reserved_directory_id(tmp_path):
    path = tmp_path / "data"
    formatter(path, initial_voters=None, has_dynamic_quorum=False).run()
    properties = read_meta_properties(path)
    assert properties.version == 1
    assert int.from_bytes(properties.directory_id, "big") >= 100
    assert not str(properties.directory_id).startswith("-")


@pytest.mark.spec("BOOT-06")
def test_format_without_initial_controllers_writes_no_checkpoint(tmp_path):
    formatter(tmp_path / "data", initial_voters=None).run()
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


@pytest.mark.spec("BOOT-04")
def test_format_initial_controllers_takes_the_given_directory_id(tmp_path):
    path = tmp_path / "data"
    formatter(path).run()
    assert read_meta_properties(path).directory_id == VOTER.directory_id


@pytest.mark.spec("BOOT-05")
def test_format_initial_controllers_without_this_node_still_writes_the_checkpoint(tmp_path):
    path, lines = tmp_path / "data", []
    other = DynamicVoter(node_id=NodeId(2), host="h", port=1, directory_id=VOTER.directory_id)
    formatter(path, initial_voters=(other,), report=lines.append).run()
    assert read_meta_properties(path).directory_id != VOTER.directory_id
    assert read_snapshot(path / CHECKPOINT).voters.voters[0].voter_id == 2
    assert lines[1] == f"Formatting dynamic metadata directory {path} with metadata.version 4.3-IV0."


@pytest.mark.spec("BOOT-12")
def test_format_kraft_version_follows_the_kind_of_quorum(tmp_path):
    formatter(tmp_path / "a").run()
    assert read_snapshot(tmp_path / "a" / CHECKPOINT).kraft_version == 1


@pytest.mark.spec("BOOT-13", "BOOT-14", "BOOT-15")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"feature_levels": {"kraft.version": 0}},
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty",
        ),
        (
            {"feature_levels": {"kraft.version": 1}, "has_dynamic_quorum": False, "initial_voters": None},
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty",
        ),
        (
            {"feature_levels": {"metadata.version": 20}, "release_version": metadata_version_from_string("3.9")},
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        ),
        ({"feature_levels": {"foo.bar": 1}}, "Unsupported feature: foo.bar. Supported features are: eligible.leader"),
        ({"feature_levels": {"group.version": 7}}, "No feature:group.version with feature level 7"),
        ({"feature_levels": {"metadata.version": 31}}, "metadata.version 4.4-IV0 is not yet stable."),
        (
            {
                "feature_levels": {"eligible.leader.replicas.version": 1},
                "release_version": metadata_version_from_string("3.9"),
            },
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        ({"directories": []}, "You must specify at least one directory to format"),
    ],
)
def test_format_refuses_in_kafkas_words_and_writes_nothing(tmp_path, changes, message):
    with pytest.raises(FormatError) as caught:
        formatter(tmp_path / "data", **changes).run()
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "data").exists()


@pytest.mark.spec("BOOT-16")
def test_format_again_is_refused_unless_told_to_ignore(tmp_path):
    first, second, lines = tmp_path / "a", tmp_path / "b", []
    formatter(first).run()
    before = (first / "meta.properties").read_bytes()
    with pytest.raises(FormatError, match=r"is already formatted\. Use --ignore-formatted"):
        formatter(first).run()
    formatter(first, ignore_formatted=True, report=lines.append).run()
    assert lines == ["All of the log directories are already formatted."]
    formatter(first, directories=[first, second], ignore_formatted=True, report=lines.append).run()
    assert lines[-1] == f"Formatting data directory {second} with metadata.version 4.3-IV0."
    assert (first / "meta.properties").read_bytes() == before


@pytest.mark.spec("BOOT-17")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_id": "other"}, "Invalid cluster.id in: "),
        ({"node_id": NodeId(2)}, "Stored node id 1 doesn't match previous node id 2 in "),
    ],
)
def test_format_of_another_cluster_or_node_is_refused(tmp_path, changes, message):
    formatter(tmp_path / "data").run()
    with pytest.raises(FormatError, match=message):
        formatter(tmp_path / "data", ignore_formatted=True, **changes).run()


def test_format_draws_a_different_id_for_each_directory(tmp_path):
    ids = itertools.chain([Uuid(b"a" * 16)] * 3, [Uuid(b"b" * 16)])
    paths = [tmp_path / "a", tmp_path / "b"]
    formatter(
        paths[0], directories=paths, initial_voters=None, has_dynamic_quorum=False, new_uuid=lambda: next(ids)
    ).run()
    assert {read_meta_properties(path).directory_id for path in paths} == {Uuid(b"a" * 16), Uuid(b"b" * 16)}


def test_release_version_leaves_out_features_it_does_not_know(tmp_path):
    lines = []
    release = metadata_version_from_string("3.9")
    formatter(tmp_path / "data", release_version=release, report=lines.append).run()
    assert "metadataVersionLevel=21" in lines[0]
    assert "group.version" not in lines[0]


@pytest.mark.spec("BOOT-09", "BOOT-10")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x@h:9:2Iyr024IQ0uAyQIgjhiQEQ", "Failed to parse node id in dynamic voter string."),
        ("-1@h:9:2Iyr024IQ0uAyQIgjhiQEQ", "Invalid negative node id -1 in dynamic voter string."),
        ("1@", "No hostname found after node id."),
        ("1h:9:2Iyr024IQ0uAyQIgjhiQEQ", "No @ found in dynamic voter string."),
        ("1@h", "No colon following hostname could be found."),
        ("1@h:9", "No colon following port could be found."),
        ("1@h:x:2Iyr024IQ0uAyQIgjhiQEQ", "Failed to parse port in dynamic voter string."),
        ("1@h:99999:2Iyr024IQ0uAyQIgjhiQEQ", "Invalid port 99999 in dynamic voter string."),
        ("1@h:9:zz", "Failed to parse directory ID in dynamic voter string."),
        ("1@[::1:9:2Iyr024IQ0uAyQIgjhiQEQ", "Hostname began with left bracket, but no right bracket was found."),
        ("1@[::1]9:2Iyr024IQ0uAyQIgjhiQEQ", "Port section must start with a colon."),
        ("1@h:9:2Iyr024IQ0uAyQIgjhiQEQ,1@h:1:4Iyr024IQ0uAyQIgjhiQEQ", "Node id 1 was specified more than once."),
        ("", "No voters given."),
    ],
)
def test_initial_controllers_are_refused_in_kafkas_words(text, message):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        parse_dynamic_voters(text)


@pytest.mark.spec("BOOT-11")
def test_dynamic_voter_round_trip_keeps_brackets():
    text = "1@[::1]:9:2Iyr024IQ0uAyQIgjhiQEQ"
    assert str(DynamicVoter.parse(text)) == text
    assert DynamicVoter.parse(text).host == "::1"


def test_meta_properties_escape_and_read_back(tmp_path):
    properties = MetaProperties(
        cluster_id=" a=b:c#d!e\\f\té", node_id=NodeId(7), directory_id=None, other={"k e y": "v\n"}
    )
    write_meta_properties(tmp_path, properties)
    assert read_meta_properties(tmp_path) == properties
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.spec("BOOT-04")
def test_voters_as_kip_853_spells_them_are_the_same():
    first, second = "x-2Iyr024IQ0uAyQIgj-hQ", "FQgOjCvOTu6yIpYZT_LP7A"
    kip = f"1-{first}@[::1]:9093, 2-{second}@localhost:9094"
    ours = f"1@[::1]:9093:{first},2@localhost:9094:{second}"
    assert from_kip_spelling(kip) == ours
    assert from_kip_spelling(ours) == ours
    assert parse_dynamic_voters(from_kip_spelling(kip)) == parse_dynamic_voters(ours)
