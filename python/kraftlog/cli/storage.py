"""``kraftlog storage``: format log directories and look at them, as ``kafka-storage`` does."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftlog.cli.kafka_tool import run_tool
from kraftlog.cli.scram_argument import parse_scram_argument
from kraftlog.errors import LogError
from kraftlog.features import (
    FEATURES,
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MINIMUM_VERSION,
    MetadataVersion,
    default_levels,
    metadata_version,
    metadata_version_from_string,
)
from kraftlog.storage.dynamic_voter import DynamicVoter, from_kip_spelling, parse_dynamic_voters
from kraftlog.storage.formatter import FormatError, Formatter
from kraftlog.storage.meta_properties import MetaProperties, random_uuid, read_meta_properties
from kraftlog.storage.properties import parse_properties
from kraftlog.types import NodeId, Uuid

__all__ = ["feature_dependencies", "main", "parse_feature_levels", "version_mapping"]


class _Config:
    """The keys of a node's properties that matter here, with Kafka's defaults."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def items(self, key: str) -> list[str]:
        return [part.strip() for part in self._properties.get(key, "").split(",") if part.strip()]

    @property
    def roles(self) -> list[str]:
        return self.items("process.roles")

    @property
    def node_id(self) -> NodeId:
        try:
            return NodeId(int(self._properties["node.id"]))
        except KeyError:
            msg = 'Missing required configuration "node.id" which has no default value.'
            raise FormatError(msg) from None
        except ValueError:
            msg = f"Invalid value {self._properties['node.id']} for configuration node.id: Not a number of type INT"
            raise FormatError(msg) from None

    @property
    def metadata_directory(self) -> Path:
        named = self._properties.get("metadata.log.dir", "").strip()
        return Path(named) if named else self.log_directories[0]

    @property
    def log_directories(self) -> list[Path]:
        named = self.items("log.dirs") or self.items("log.dir") or ["/tmp/kafka-logs"]  # noqa: S108 - Kafka's default
        return [Path(name) for name in named]

    @property
    def directories(self) -> list[Path]:
        return sorted({*self.log_directories, self.metadata_directory})

    @property
    def quorum_voters(self) -> list[str]:
        return self.items("controller.quorum.voters")

    @property
    def controller_listener_name(self) -> str:
        names = self.items("controller.listener.names")
        if not names:
            msg = "controller.listener.names must contain at least one value when running KRaft"
            raise FormatError(msg)
        return names[0]

    def standalone_voter(self, directory_id: Uuid) -> DynamicVoter:
        """This node as the only voter: its first controller listener, the advertised one if there is."""
        name = self.controller_listener_name
        for key in ("advertised.listeners", "listeners"):
            for entry in self.items(key):
                listener, _, address = entry.partition("://")
                if listener.upper() == name.upper():
                    host, _, port = address.rpartition(":")
                    host = host.removeprefix("[").removesuffix("]") or "localhost"
                    return DynamicVoter(node_id=self.node_id, host=host, port=int(port), directory_id=directory_id)
        msg = "No controller listeners found."
        raise FormatError(msg)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kraftlog storage", description="The Kafka storage tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="Get information about the Kafka log directories on this node.")
    info.add_argument("--config", "-c", required=True, help="The Kafka configuration file to use.")
    fmt = commands.add_parser("format", help="Format the Kafka log directories on this node.")
    fmt.add_argument("--config", "-c", required=True, help="The Kafka configuration file to use.")
    fmt.add_argument("--cluster-id", "-t", required=True, help="The cluster ID to use.")
    fmt.add_argument(
        "--add-scram", "-S", action="append", default=[], help="A SCRAM_CREDENTIAL to add to the metadata log."
    )
    fmt.add_argument("--ignore-formatted", "-g", action="store_true", help="Skip already formatted directories.")
    fmt.add_argument(
        "--release-version",
        "-r",
        help=f"The release version to use for the initial feature settings. The minimum is {MINIMUM_VERSION.name};"
        f" the default is {LATEST_PRODUCTION.name}",
    )
    fmt.add_argument(
        "--feature", "-f", action="append", default=[], help="The setting to use for a feature, as feature=level."
    )
    quorum = fmt.add_mutually_exclusive_group()
    quorum.add_argument(
        "--standalone", "-s", action="store_true", help="Initialize a controller as a single-node dynamic quorum."
    )
    quorum.add_argument(
        "--no-initial-controllers", "-N", action="store_true", help="Initialize without specifying a dynamic quorum."
    )
    quorum.add_argument(
        "--initial-controllers", "-I", help="A comma-separated list of id@hostname:port:directory: the first voters."
    )
    quorum.add_argument(
        "--controller-quorum-voters",
        dest="initial_controllers",
        type=from_kip_spelling,
        help="The same, as KIP-853 spells it: id-directory@hostname:port.",
    )
    mapping = commands.add_parser("version-mapping", help="Features that go with a metadata version.")
    mapping.add_argument("--release-version", "-r", default=LATEST_PRODUCTION.name, help="The release to look up.")
    dependencies = commands.add_parser("feature-dependencies", help="What a feature version depends on.")
    dependencies.add_argument(
        "--feature", "-f", action="append", required=True, help="A feature and its level, as feature=level."
    )
    commands.add_parser("random-uuid", help="Print a random UUID.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kraftlog storage`` with these arguments; return the exit code (0, or 1 with a reason on stderr)."""
    return run_tool(_arguments(), arguments, _run)


def _run(parsed: argparse.Namespace) -> int:
    match parsed.command:
        case "info":
            return _info(_load(parsed.config))
        case "format":
            _format(_load(parsed.config), parsed)
        case "version-mapping":
            version_mapping(parsed.release_version)
        case "feature-dependencies":
            feature_dependencies(parsed.feature)
        case _:
            print(random_uuid())
    return 0


def _load(path: str) -> _Config:
    return _Config(parse_properties(Path(path).read_text("latin-1")))


def _info(config: _Config) -> int:
    problems: list[str] = []
    found: list[Path] = []
    metadata: MetaProperties | None = None
    for directory in config.directories:
        if not directory.is_dir():
            problem = "is not a directory" if directory.exists() else "does not exist"
            problems.append(f"{directory} {problem}")
            continue
        found.append(directory)
        try:
            properties = read_meta_properties(directory)
        except LogError as error:
            problems.append(f"Error loading {directory}/meta.properties: {error}")
            continue
        if properties is None:
            problems.append(f"{directory} is not formatted.")
        elif metadata is None:
            metadata = properties
        elif (properties.cluster_id, properties.node_id) != (metadata.cluster_id, metadata.node_id):
            was = f"was {properties}, but other directories featured {metadata}"
            problems.append(f"Metadata for {directory}/meta.properties {was}")
    _print_list("Found log director", found, "y", "ies")
    if metadata is not None:
        print(f"Found metadata: {metadata}\n")
    _print_list("Found problem", problems, "", "s")
    return 1 if problems else 0


def _print_list(title: str, entries: Sequence[object], one: str, many: str) -> None:
    if entries:
        print(f"{title}{one if len(entries) == 1 else many}:")
        for entry in entries:
            print(f"  {entry}")
        print()


def _format(config: _Config, parsed: argparse.Namespace) -> None:
    if not config.roles:
        msg = (
            "The kafka configuration file appears to be for a legacy cluster. Formatting is only supported for"
            " clusters in KRaft mode."
        )
        raise FormatError(msg)
    is_controller = "controller" in config.roles
    flagged = parsed.standalone or parsed.initial_controllers is not None or parsed.no_initial_controllers
    if config.quorum_voters and (parsed.standalone or parsed.initial_controllers is not None):
        msg = (
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or"
            " --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify"
            " controller.quorum.bootstrap.servers instead."
        )
        raise FormatError(msg)
    if is_controller and not config.quorum_voters and not flagged:
        msg = (
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following:"
            " --standalone, --initial-controllers, or --no-initial-controllers."
        )
        raise FormatError(msg)
    voters: tuple[DynamicVoter, ...] | None = None
    if parsed.standalone:
        if not is_controller:
            msg = "You can only use --standalone on a controller."
            raise FormatError(msg)
        voters = (config.standalone_voter(random_uuid()),)
    elif parsed.initial_controllers is not None:
        voters = parse_dynamic_voters(parsed.initial_controllers)
    Formatter(
        directories=config.directories,
        metadata_directory=config.metadata_directory,
        cluster_id=parsed.cluster_id,
        node_id=config.node_id,
        release_version=_release_version(parsed.release_version),
        feature_levels=parse_feature_levels(parsed.feature),
        initial_voters=voters,
        has_dynamic_quorum=not config.quorum_voters and flagged,
        controller_listener_name=config.controller_listener_name if voters is not None else "CONTROLLER",
        ignore_formatted=parsed.ignore_formatted,
        extra_records=tuple(parse_scram_argument(text) for text in parsed.add_scram),
    ).run()


def _release_version(text: str | None) -> MetadataVersion | None:
    return None if text is None else metadata_version_from_string(text)


def parse_feature_levels(entries: Sequence[str]) -> dict[str, int]:
    """Read ``feature=level`` entries.

    Raises:
        FormatError: An entry is not of that form.
    """
    levels: dict[str, int] = {}
    for entry in entries:
        name, equals, level = entry.partition("=")
        if not equals:
            msg = f"Can't parse feature=level string {entry}: equals sign not found."
            raise FormatError(msg)
        if not (level.strip().isascii() and level.strip().isdigit()):
            msg = f"Can't parse feature=level string {entry}: unable to parse {level} as a short."
            raise FormatError(msg)
        levels[name.strip()] = int(level)
    return levels


def version_mapping(text: str) -> None:
    """Print the feature levels of a release.

    Raises:
        ValueError: There is no such release.
    """
    version = metadata_version_from_string(text, is_unstable_known=True)
    print(f"{METADATA_VERSION}={version.feature_level} ({text})")
    levels = default_levels(version)
    for name in FEATURES:
        print(f"{name}={levels[name]}")


def feature_dependencies(
    entries: Sequence[str], no_level: str = "Feature level {level} is not supported for feature {name}"
) -> None:
    """Print what each ``feature=level`` depends on; ``no_level`` words the refusal of a level that is not there.

    Raises:
        FormatError: An entry cannot be read, or there is no such feature or level.
    """
    for name, level in parse_feature_levels(entries).items():
        if name == METADATA_VERSION:
            try:
                version = metadata_version(level)
            except ValueError:
                msg = f"Unknown metadata.version {level}"
                raise FormatError(msg) from None
            print(f"{name}={level} ({version.name}) has no dependencies.")
            continue
        feature = FEATURES.get(name)
        if feature is None:
            msg = f"Unknown feature: {name}"
            raise FormatError(msg)
        if level > feature.latest:
            raise FormatError(no_level.format(name=name, level=level))
        needed = feature.dependencies.get(level, {})
        if not needed:
            print(f"{name}={level} has no dependencies.")
            continue
        print(f"{name}={level} requires:")
        for other, other_level in needed.items():
            suffix = f" ({metadata_version(other_level).name})" if other == METADATA_VERSION else ""
            print(f"    {other}={other_level}{suffix}")
