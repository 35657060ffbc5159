"""``kraftlog features``: show feature levels, raise and lower them, in the words of kafka-features."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from kraftlog.cli.admin_client import AdminClient, add_connection_arguments, client_from
from kraftlog.cli.kafka_tool import run_tool
from kraftlog.cli.storage import feature_dependencies, parse_feature_levels, version_mapping
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.features import (
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MINIMUM_VERSION,
    default_levels,
    metadata_version,
    metadata_version_from_string,
)
from kraftlog.transport.rpc_client import SOFTWARE_NAME
from kraftlog.version import VERSION
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

__all__ = ["main"]

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TIMEOUT_MS = 60_000
_WIDTHS = {
    "Feature": 40,
    "SupportedMinVersion": 15,
    "SupportedMaxVersion": 15,
    "FinalizedVersionLevel": 15,
    "Epoch": 0,
}


class _RefusedError(KraftlogError):
    """What was asked cannot be done; the text is all there is to say."""


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kraftlog features", description="Feature levels of a cluster.")
    add_connection_arguments(parser, required=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    describe = verbs.add_parser("describe", help="the levels that are in force and those a server supports")
    describe.add_argument("--node-id", type=int, help="which server to ask; any of them when absent")
    upgrade = verbs.add_parser("upgrade", help="raise levels")
    downgrade = verbs.add_parser("downgrade", help="lower levels")
    for verb in (upgrade, downgrade):
        verb.add_argument("--metadata", help="deprecated: the metadata.version, such as 3.7-IV0")
        verb.add_argument("--release-version", help="set every feature to its level of this release, such as 4.0")
        verb.add_argument("--feature", action="append", help="feature=level; may be given several times")
    disable = verbs.add_parser("disable", help="lower levels to 0")
    disable.add_argument("--feature", action="append", help="a feature; may be given several times")
    for verb in (downgrade, disable):
        verb.add_argument("--unsafe", action="store_true", help="even if metadata may be lost by it")
    for verb in (upgrade, downgrade, disable):
        verb.add_argument("--dry-run", action="store_true", help="check, but change nothing")
    mapping = verbs.add_parser("version-mapping", help="the feature levels that go with a release")
    mapping.add_argument(
        "--release-version",
        default=LATEST_PRODUCTION.name,
        help=f"from {MINIMUM_VERSION.name}; the default is {LATEST_PRODUCTION.name}",
    )
    dependencies = verbs.add_parser("feature-dependencies", help="what a feature level depends on")
    dependencies.add_argument("--feature", action="append", required=True, help="feature=level")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kraftlog features`` with these arguments; return the exit code (0, or 1 with a reason on stderr)."""
    return run_tool(_arguments(), arguments, _run)


def _run(args: argparse.Namespace) -> None:
    match args.verb:
        case "version-mapping":
            version_mapping(args.release_version)
        case "feature-dependencies":
            feature_dependencies(args.feature, no_level="No feature:{name} with feature level {level}")
        case "describe":
            if args.node_id is not None and args.node_id < 0:
                raise _RefusedError(f"Invalid node id {args.node_id}: must be non-negative.")
            asyncio.run(_describe(client_from(args, node_id=args.node_id)))
        case _:
            asyncio.run(_update(args))


async def _describe(client: AdminClient) -> None:
    async with client:
        asked = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        found: ApiVersionsResponse = await client.request(asked)
    levels = {
        finalized_feature.name: finalized_feature.max_version_level for finalized_feature in found.finalized_features
    }
    epoch = found.finalized_features_epoch
    for supported_feature in sorted(found.supported_features, key=lambda feature: feature.name):
        fields = {
            "Feature": supported_feature.name,
            "SupportedMinVersion": _level_text(supported_feature.name, supported_feature.min_version),
            "SupportedMaxVersion": _level_text(supported_feature.name, supported_feature.max_version),
            "FinalizedVersionLevel": _level_text(supported_feature.name, levels.get(supported_feature.name, 0)),
            "Epoch": "-" if epoch < 0 else str(epoch),
        }
        print("  ".join(f"{name}: {value:<{_WIDTHS[name]}}" for name, value in fields.items()))


def _level_text(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    try:
        return metadata_version(level).name
    except ValueError:
        return f"UNKNOWN {level}"


def _wanted_levels(args: argparse.Namespace) -> dict[str, int]:
    """What ``upgrade``, ``downgrade`` and ``disable`` are to set.

    Raises:
        ValueError: An argument cannot be read.
        _RefusedError: The arguments contradict each other, or name nothing.
    """
    levels: dict[str, int] = {}
    features: list[str] = args.feature or []
    if args.verb == "disable":
        for name in features:
            if name in levels:
                raise _RefusedError(f"Feature {name} was specified more than once.")
            levels[name] = 0
    elif args.release_version is not None:
        if args.metadata is not None or features:
            raise _RefusedError("Can not specify `release-version` with other feature flags.")
        version = metadata_version_from_string(args.release_version, is_unstable_known=True)
        levels = {
            name: level for name, level in default_levels(version).items() if level > 0 or args.verb == "downgrade"
        }
    else:
        if args.metadata is not None:
            print(" `metadata` flag is deprecated and may be removed in a future release.")
            levels[METADATA_VERSION] = metadata_version_from_string(args.metadata, is_unstable_known=True).feature_level
        for feature in features:
            for name, level in parse_feature_levels([feature]).items():
                if args.verb == "upgrade" and level < 1:
                    raise _RefusedError(
                        "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the provided"
                        f" maxVersionLevel:{level} is < 1."
                    )
                if name in levels:
                    raise _RefusedError(f"Feature {name} was specified more than once.")
                levels[name] = level
    if not levels:
        raise _RefusedError(f"You must specify at least one feature to {args.verb}")
    return levels


async def _update(args: argparse.Namespace) -> None:
    client, levels = client_from(args), _wanted_levels(args)
    kind = _UPGRADE if args.verb == "upgrade" else _UNSAFE_DOWNGRADE if args.unsafe else _SAFE_DOWNGRADE
    request = UpdateFeaturesRequest(
        timeout_ms=_TIMEOUT_MS,
        feature_updates=tuple(
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ),
        validate_only=args.dry_run,
    )
    async with client:
        response: UpdateFeaturesResponse = await client.request(request)
    refused = {result.feature: result for result in response.results if result.error_code}
    for name in sorted(levels):
        code, message = response.error_code, response.error_message
        if not code and name in refused:
            code, message = refused[name].error_code, refused[name].error_message
        what = "" if args.verb == "disable" else f" to {levels[name]}"
        if code:
            verb = "Can not" if args.dry_run else "Could not"
            print(f"{verb} {args.verb} {name}{what}. {message or ErrorCode.name_of(code)}")
        else:
            done = "disabled." if args.verb == "disable" else f"{args.verb}d to {levels[name]}."
            print(f"{name} {'can be' if args.dry_run else 'was'} {done}")
    failed = len(levels) if response.error_code else len(refused)
    if failed:
        raise _RefusedError(f"{failed} out of {len(levels)} operation(s) failed.")
