"""ApiVersions (key 18), versions 0-4: what this listener serves and which features the cluster has.

v0: keys and ranges. v1: throttle time. v2: as v1. v3 (KIP-511): flexible body (the header stays v0), client software
name and version in, features out. v4 (KIP-1022): supported features with minimum 0 are listed, too. A version above
is answered with error 35 in v0 form by the dispatcher.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.features import KRAFT_VERSION, supported_ranges
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.dispatcher import Dispatcher
    from kraftlog.api.services import ClusterService

__all__ = ["handle"]

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle(
    context: RequestContext, request: ApiVersionsRequest, *, cluster: ClusterService, exchange: Dispatcher
) -> ApiVersionsResponse:
    """Answer with the table of this listener."""
    software = (request.client_software_name, request.client_software_version)
    if context.api_version >= 3 and not all(_SOFTWARE_NAME.match(text) for text in software):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = cluster.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in exchange.advertised.items()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported_ranges().items()
            if low > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in {**image.features, KRAFT_VERSION: cluster.kraft_version}.items()
            if level > 0
        ],
    )
