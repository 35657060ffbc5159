"""Format log directories as ``kafka-storage format`` does: same files, same refusals, same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kraftlog import host
from kraftlog.errors import KraftlogError
from kraftlog.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MetadataVersion,
    default_levels,
    metadata_version,
    validate_dependencies,
)
from kraftlog.storage.bootstrap import BootstrapMetadata, write_bootstrap
from kraftlog.storage.dynamic_voter import DynamicVoter, voters_record
from kraftlog.storage.files import make_directory
from kraftlog.storage.meta_properties import (
    META_PROPERTIES_NAME,
    MetaProperties,
    random_uuid,
    read_meta_properties,
    write_meta_properties,
)
from kraftlog.storage.snapshot_file import (
    BOOTSTRAP_SNAPSHOT_ID,
    Snapshot,
    encode_snapshot,
    write_snapshot,
)
from kraftlog.types import NodeId, Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY
from kraftlog.wire.struct import Message

__all__ = ["FormatError", "Formatter"]


class FormatError(KraftlogError):
    """The directories cannot be formatted as asked; nothing was written. The text is the one Kafka prints."""


def _now_ms() -> int:
    return host.wall_ms()


@dataclass(slots=True, kw_only=True)
class Formatter:
    """One run of the format command.

    Args:
        directories: Every log directory, the metadata directory among them; created when absent.
        metadata_directory: Where ``__cluster_metadata-0`` lives.
        cluster_id: Any text; conventionally a uuid.
        node_id: This node.
        release_version: metadata.version to start with; None unless given.
        feature_levels: Levels asked for by ``--feature``.
        initial_voters: Voters of a dynamic quorum, or None.
        has_dynamic_quorum: Whether one of ``--standalone``, ``--initial-controllers``, ``--no-initial-controllers``
            was given without controller.quorum.voters.
        controller_listener_name: First of controller.listener.names.
        ignore_formatted: Skip formatted directories instead of refusing.
        extra_records: Records appended to the bootstrap metadata (SCRAM credentials).
        new_uuid: Where directory ids come from.
        now_ms: Unix clock (ms).
        report: Called with each line of output.
    """

    directories: Sequence[Path]
    metadata_directory: Path
    cluster_id: str
    node_id: NodeId
    release_version: MetadataVersion | None = None
    feature_levels: Mapping[str, int] = field(default_factory=dict)
    initial_voters: tuple[DynamicVoter, ...] | None = None
    has_dynamic_quorum: bool = False
    controller_listener_name: str = "CONTROLLER"
    ignore_formatted: bool = False
    extra_records: Sequence[Message] = ()
    new_uuid: Callable[[], Uuid] = random_uuid
    now_ms: Callable[[], int] = _now_ms
    report: Callable[[str], None] = print

    def run(self) -> None:
        """Check everything, then write the unformatted directories; the metadata directory comes last.

        Raises:
            FormatError: The request is refused; nothing was written.
            LogError: A ``meta.properties`` that is there cannot be read.
            OSError: Writing failed; directories finished before stay formatted.
        """
        if not self.directories:
            msg = "You must specify at least one directory to format"
            raise FormatError(msg)
        release, levels = self._effective_levels()
        if self.extra_records and not release.is_scram_supported:
            raise FormatError("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
        formatted = {path: read_meta_properties(path) for path in self.directories}
        self._verify(formatted)
        missing = [path for path, properties in formatted.items() if properties is None]
        present = [path for path, properties in formatted.items() if properties is not None]
        if present and not self.ignore_formatted:
            msg = (
                f"Log directory {present[0]} is already formatted. Use --ignore-formatted to ignore this directory"
                " and format the others."
            )
            raise FormatError(msg)
        if not missing:
            self.report("All of the log directories are already formatted.")
            return
        bootstrap = BootstrapMetadata.from_levels(levels, source="format command", extra=self.extra_records)
        self.report(f"Bootstrap metadata: {_describe(bootstrap)}")
        used = {properties.directory_id for properties in formatted.values() if properties is not None}
        missing.sort(key=lambda path: path == self.metadata_directory)
        for path in missing:
            self.report(f"Formatting {self._kind(path)} {path} with metadata.version {release.name}.")
            self._format_directory(path, bootstrap, used, levels[KRAFT_VERSION])

    def _effective_levels(self) -> tuple[MetadataVersion, dict[str, int]]:
        if self.release_version is not None and METADATA_VERSION in self.feature_levels:
            msg = "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
            raise FormatError(msg)
        release = self.release_version or LATEST_PRODUCTION
        if METADATA_VERSION in self.feature_levels:
            try:
                release = metadata_version(self.feature_levels[METADATA_VERSION])
            except ValueError as error:
                raise FormatError(str(error)) from error
            if release > LATEST_PRODUCTION:
                msg = f"metadata.version {release.name} is not yet stable."
                raise FormatError(msg)
        levels = default_levels(release)
        for name, level in self.feature_levels.items():
            if name == METADATA_VERSION:
                continue
            feature = FEATURES.get(name)
            if feature is None:
                msg = f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}"
                raise FormatError(msg)
            if not 0 <= level <= feature.latest:
                msg = f"No feature:{name} with feature level {level}"
                raise FormatError(msg)
            levels[name] = level
        for name, level in levels.items():
            reason = validate_dependencies(name, level, levels)
            if reason is not None:
                raise FormatError(reason)
        levels[KRAFT_VERSION] = self._kraft_version(self.feature_levels.get(KRAFT_VERSION))
        return release, levels

    def _kraft_version(self, asked: int | None) -> int:
        if asked is None:
            return 1 if self.has_dynamic_quorum else 0
        if asked == 0 and self.has_dynamic_quorum:
            msg = (
                "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone,"
                " --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try"
                " removing the --feature flag for kraft.version."
            )
            raise FormatError(msg)
        if asked > 0 and not self.has_dynamic_quorum:
            msg = (
                f"Cannot set kraft.version to {asked} unless controller.quorum.voters is empty and one of the flags"
                " --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers"
                " support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and"
                " removing controller.quorum.voters."
            )
            raise FormatError(msg)
        return asked

    def _verify(self, formatted: Mapping[Path, MetaProperties | None]) -> None:
        for path, properties in formatted.items():
            if properties is None:
                continue
            file = path / META_PROPERTIES_NAME
            if properties.cluster_id is not None and properties.cluster_id != self.cluster_id:
                msg = f"Invalid cluster.id in: {file}. Expected {self.cluster_id}, but read {properties.cluster_id}"
                raise FormatError(msg)
            if properties.node_id is not None and properties.node_id != self.node_id:
                msg = (
                    f"Stored node id {properties.node_id} doesn't match previous node id {self.node_id} in {file}. If"
                    " you moved your data, make sure your configured node id matches. If you intend to create a new"
                    " node, you should remove all data in your data directories."
                )
                raise FormatError(msg)

    def _own_voter(self) -> DynamicVoter | None:
        return next((voter for voter in self.initial_voters or () if voter.node_id == self.node_id), None)

    def _kind(self, path: Path) -> str:
        if path != self.metadata_directory:
            return "data directory"
        if self.initial_voters is None:
            return "metadata directory"
        return "dynamic metadata directory" if self._own_voter() is None else "dynamic metadata voter directory"

    def _format_directory(
        self, path: Path, bootstrap: BootstrapMetadata, used: set[Uuid | None], kraft_version: int
    ) -> None:
        make_directory(path)
        voter = self._own_voter()
        if path == self.metadata_directory and voter is not None:
            directory_id = voter.directory_id
        else:
            directory_id = self.new_uuid()
            while directory_id in used:
                directory_id = self.new_uuid()
        used.add(directory_id)
        write_bootstrap(path, bootstrap, now_ms=self.now_ms())
        if path == self.metadata_directory and self.initial_voters is not None:
            partition = path / CLUSTER_METADATA_DIRECTORY
            make_directory(partition)
            snapshot = Snapshot(
                last_contained_log_timestamp=self.now_ms(),
                kraft_version=kraft_version,
                voters=voters_record(self.initial_voters, listener_name=self.controller_listener_name),
            )
            data = encode_snapshot(snapshot, epoch=BOOTSTRAP_SNAPSHOT_ID.epoch, now_ms=self.now_ms())
            write_snapshot(partition, BOOTSTRAP_SNAPSHOT_ID, data)
        properties = MetaProperties(cluster_id=self.cluster_id, node_id=self.node_id, directory_id=directory_id)
        write_meta_properties(path, properties, written_at_s=self.now_ms() / 1000)


def _java_text(value: object) -> str:
    if isinstance(value, bytes) and not isinstance(value, Uuid):
        return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _java_name(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _describe(bootstrap: BootstrapMetadata) -> str:
    parts: list[str] = []
    for record in bootstrap.records:
        names = [name for name in record.__dataclass_fields__ if name != "unknown_tagged_fields"]
        fields = ", ".join(f"{_java_name(name)}={_java_text(getattr(record, name))}" for name in names)
        parts.append(f"ApiMessageAndVersion({type(record).__name__}({fields}) at version 0)")
    level = bootstrap.metadata_version.feature_level
    return f"BootstrapMetadata(records=[{', '.join(parts)}], metadataVersionLevel={level}, source={bootstrap.source})"
