from __future__ import annotations

import gzip
import json

import pytest

from batch_rows import GOLDEN
from kraftlog.features import (
    FEATURES,
    LATEST_PRODUCTION,
    default_levels,
    metadata_version,
    metadata_version_from_string,
    supported_ranges,
)

FACTS = json.loads(gzip.decompress((GOLDEN / "protocol-facts.json.gz").read_bytes()))["features"]


def test_metadata_versions_are_those_of_kafka():
    for row in FACTS["MetadataVersion"]:
        version = metadata_version(row["featureLevel"])
        assert version.name == row["version"]
        assert (version <= LATEST_PRODUCTION) == row["isProduction"]
        assert version.register_broker_record_version == row["registerBrokerRecordVersion"]
        assert version.partition_record_version == row["partitionRecordVersion"]
        assert version.partition_change_record_version == row["partitionChangeRecordVersion"]
        assert version.is_metadata_transaction_supported == row["isMetadataTransactionSupported"]
        assert version.is_controller_registration_supported == row["isControllerRegistrationSupported"]
        assert version.is_directory_assignment_supported == row["isDirectoryAssignmentSupported"]
        assert version.is_elr_supported == row["isElrSupported"]
        assert version.is_cordoned_log_dirs_supported == row["isCordonedLogDirsSupported"]
        assert version.is_scram_supported == row["isScramSupported"]
        assert version.is_delegation_token_supported == row["isDelegationTokenSupported"]
        assert version.is_leader_epoch_bump_required_on_isr_shrink == row["isLeaderEpochBumpRequiredOnIsrShrink"]


@pytest.mark.parametrize("name", [name for name in FACTS if name.endswith("Version") and name != "MetadataVersion"])
def test_feature_levels_and_dependencies_are_those_of_kafka(name):
    rows = FACTS[name]
    feature = FEATURES[rows[0]["featureName"]]
    assert feature.latest == max(row["featureLevel"] for row in rows)
    for row in rows:
        assert dict(feature.dependencies.get(row["featureLevel"], {})) == row["dependencies"]


# Seen: kafka-storage version-mapping --release-version <version> of 4.3.1.
@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.3", (7, 0, 0, 0, 0, 0, 0)),
        ("3.5", (11, 0, 0, 0, 0, 0, 0)),
        ("3.9", (21, 1, 0, 0, 0, 0, 0)),
        ("4.0-IV0", (22, 1, 0, 1, 0, 0, 0)),
        ("4.0-IV1", (23, 1, 0, 1, 0, 0, 0)),
        ("4.0-IV2", (24, 1, 2, 1, 0, 0, 0)),
        ("4.0-IV3", (25, 1, 2, 1, 0, 0, 0)),
        ("4.1-IV0", (26, 1, 2, 1, 1, 0, 0)),
        ("4.1-IV1", (27, 1, 2, 1, 1, 0, 0)),
        ("4.2-IV0", (28, 1, 2, 1, 1, 1, 0)),
        ("4.2-IV1", (29, 1, 2, 1, 1, 1, 1)),
        ("4.3", (30, 1, 2, 1, 1, 1, 1)),
    ],
)
def test_default_levels_are_those_kafka_prints(release, levels):
    found = default_levels(metadata_version_from_string(release))
    names = ("metadata", "kraft", "transaction", "group", "eligible.leader.replicas", "share", "streams")
    assert tuple(found[f"{name}.version"] for name in names) == levels


def test_unknown_releases_are_refused_in_kafkas_words():
    for text in ("9.9", "4.4-IV0", "3.3-IV2", ""):
        with pytest.raises(
            ValueError, match=f"^Unknown metadata.version '{text}'. Supported metadata.version are: 3.3"
        ):
            metadata_version_from_string(text)
    with pytest.raises(ValueError, match="No MetadataVersion with feature level 99"):
        metadata_version(99)


@pytest.mark.spec("KVER-02")
def test_supported_ranges_are_those_kafka_advertises():
    assert supported_ranges() == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
