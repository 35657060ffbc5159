"""Feature levels of Apache Kafka 4.3.1: what each metadata.version switches on, and the other features.

The facts are those of ``tests/golden/protocol-facts.json.gz`` (section ``features``); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "ELIGIBLE_LEADER_REPLICAS_VERSION",
    "FEATURES",
    "GROUP_VERSION",
    "KRAFT_VERSION",
    "LATEST_PRODUCTION",
    "METADATA_VERSION",
    "MINIMUM_VERSION",
    "Feature",
    "MetadataVersion",
    "default_levels",
    "metadata_version",
    "metadata_version_from_string",
    "production_metadata_versions",
    "supported_ranges",
    "validate_dependencies",
]

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True, order=True)
class MetadataVersion:
    """One level of metadata.version and the record versions it allows."""

    feature_level: int
    release: str
    sub_version: str

    @property
    def name(self) -> str:
        """The text Kafka prints, such as ``4.3-IV0``."""
        return f"{self.release}-{self.sub_version}"

    @property
    def register_broker_record_version(self) -> int:
        """Version of RegisterBrokerRecord to write."""
        if self.feature_level >= 30:
            return 4
        if self.feature_level >= 17:
            return 3
        return 2 if self.feature_level >= 8 else 1

    @property
    def broker_registration_change_record_version(self) -> int:
        """Highest version of BrokerRegistrationChangeRecord to write."""
        if self.feature_level >= 30:
            return 3
        if self.feature_level >= 17:
            return 2
        return 1

    @property
    def partition_record_version(self) -> int:
        """Version of PartitionRecord to write."""
        if self.is_elr_supported:
            return 2
        return 1 if self.is_directory_assignment_supported else 0

    @property
    def partition_change_record_version(self) -> int:
        """Version of PartitionChangeRecord to write."""
        return self.partition_record_version

    @property
    def is_leader_epoch_bump_required_on_isr_shrink(self) -> bool:
        """Whether a smaller in-sync set alone raises the leader epoch."""
        return self.feature_level < 12

    @property
    def is_metadata_transaction_supported(self) -> bool:
        """Whether Begin/End/AbortTransaction records may be written (KIP-868)."""
        return self.feature_level >= 13

    @property
    def is_controller_registration_supported(self) -> bool:
        """Whether RegisterController records may be written (KIP-919)."""
        return self.feature_level >= 15

    @property
    def is_directory_assignment_supported(self) -> bool:
        """Whether partitions carry directory ids (KIP-858)."""
        return self.feature_level >= 17

    @property
    def is_scram_supported(self) -> bool:
        """Whether SCRAM credentials may be stored (KIP-900)."""
        return self.feature_level >= 11

    @property
    def is_delegation_token_supported(self) -> bool:
        """Whether delegation tokens may be stored."""
        return self.feature_level >= 14

    @property
    def is_elr_supported(self) -> bool:
        """Whether eligible leader replicas may be stored (KIP-966)."""
        return self.feature_level >= 23

    @property
    def is_cordoned_log_dirs_supported(self) -> bool:
        """Whether brokers announce cordoned log directories."""
        return self.feature_level >= 30


def _versions(text: str) -> tuple[MetadataVersion, ...]:
    result: list[MetadataVersion] = []
    level = 7
    for entry in text.split():
        release, _, last = entry.partition(":")
        first, _, end = last.partition("-")
        for sub in range(int(first), int(end or first) + 1):
            result.append(MetadataVersion(level, release, f"IV{sub}"))
            level += 1
    return tuple(result)


_METADATA_VERSIONS = _versions("3.3:3 3.4:0 3.5:0-2 3.6:0-2 3.7:0-4 3.8:0 3.9:0 4.0:0-3 4.1:0-1 4.2:0-1 4.3:0 4.4:0")
MINIMUM_VERSION = _METADATA_VERSIONS[0]
_METADATA_VERSION_AT = {version.feature_level: version for version in _METADATA_VERSIONS}
LATEST_PRODUCTION = next(version for version in _METADATA_VERSIONS if version.name == "4.3-IV0")


def production_metadata_versions() -> tuple[MetadataVersion, ...]:
    """Every level that may be used in production, lowest first."""
    return tuple(version for version in _METADATA_VERSIONS if version <= LATEST_PRODUCTION)


def metadata_version(feature_level: int) -> MetadataVersion:
    """The metadata.version of a feature level.

    Raises:
        ValueError: No such level.
    """
    found = _METADATA_VERSION_AT.get(feature_level)
    if found is not None:
        return found
    highest = _METADATA_VERSIONS[-1].feature_level
    raise ValueError(
        f"No MetadataVersion with feature level {feature_level}. Valid feature levels are from"
        f" {MINIMUM_VERSION.feature_level} to {highest}."
    )


def metadata_version_from_string(text: str, *, is_unstable_known: bool = False) -> MetadataVersion:
    """Read ``4.3-IV0``, or ``4.3`` and ``4.3.1`` for the newest level of that release.

    Raises:
        ValueError: The text names no production level; with ``is_unstable_known``, no level at all.
    """
    versions = _METADATA_VERSIONS if is_unstable_known else production_metadata_versions()
    for version in reversed(versions):
        if text in (version.name, version.release) or text.startswith(version.release + "."):
            return version
    supported = ", ".join(version.name for version in versions)
    msg = f"Unknown metadata.version '{text}'. Supported metadata.version are: {supported}"
    raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature besides metadata.version: its levels 0..latest, and what the levels come with.

    ``bootstrap`` lists (metadata.version level, feature level) pairs: a cluster formatted at that metadata.version
    or above gets that level by default.
    """

    name: str
    latest: int
    bootstrap: tuple[tuple[int, int], ...]
    dependencies: Mapping[int, Mapping[str, int]]

    def default_level(self, version: MetadataVersion) -> int:
        """The level a cluster formatted with this metadata.version gets."""
        return max((level for needed, level in self.bootstrap if version.feature_level >= needed), default=0)


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, 1, ((21, 1),), {}),
        Feature("transaction.version", 2, ((24, 2),), {}),
        Feature(GROUP_VERSION, 1, ((22, 1),), {}),
        Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 1, ((26, 1),), {1: {METADATA_VERSION: 23}}),
        Feature("share.version", 1, ((28, 1),), {}),
        Feature("streams.version", 1, ((29, 1),), {}),
    )
}


def supported_ranges() -> dict[str, tuple[int, int]]:
    """Feature name to (lowest, highest) level this node can run with."""
    ranges = {name: (0, feature.latest) for name, feature in FEATURES.items()}
    ranges[METADATA_VERSION] = (MINIMUM_VERSION.feature_level, LATEST_PRODUCTION.feature_level)
    return dict(sorted(ranges.items()))


def default_levels(version: MetadataVersion) -> dict[str, int]:
    """Feature levels a cluster formatted at this metadata.version gets, metadata.version itself included."""
    levels = {name: feature.default_level(version) for name, feature in FEATURES.items()}
    levels[METADATA_VERSION] = version.feature_level
    return levels


def validate_dependencies(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return why this level of the feature cannot go with the others, or None."""
    feature = FEATURES.get(name)
    if feature is None:
        return None
    for other, needed in feature.dependencies.get(level, {}).items():
        if levels.get(other, 0) < needed:
            return f"{name} could not be set to {level} because it depends on {other} level {needed}"
    return None
