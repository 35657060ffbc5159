"""ApiVersions (key 18), versions 0-4: what this listener serves and which features the cluster has.

v0: keys and ranges. v1: throttle time. v2: as v1. v3 (KIP-511): flexible body (the header stays v0), client software
name and version in, features out. v4 (KIP-1022): supported features with minimum 0 are listed, too. A version above
is answered with error 35 in v0 form by the dispatcher.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.features import KRAFT_VERSION
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kraftlog.node.node import Node
    from kraftlog.transport.context import RequestContext

__all__ = ["SUPPORTED_FEATURES", "handle"]

# Name -> (lowest, highest level) of Kafka 4.3.1.
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle(node: Node, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer with the table of this listener."""
    if context.api_version >= 3:
        if not _SOFTWARE_NAME.match(request.client_software_name) or not _SOFTWARE_NAME.match(
            request.client_software_version
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = request.client_software_name
        context.connection.client_software_version = request.client_software_version
    api_versions = context.connection.dispatcher.advertised
    image = node.metadata.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in api_versions.items()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in {**image.features, KRAFT_VERSION: node.metadata.kraft_version}.items()
            if level > 0
        ],
    )
