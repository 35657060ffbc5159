"""ApiVersions (18), asked of a replica that is to become a voter: the kraft.version levels it runs (KIP-853).

Replicas answer it by the handler that answers clients, not by the core.
"""

from __future__ import annotations

from typing import Final

from kraftlog.features import KRAFT_VERSION
from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec.raft_codec import RaftCodec
from kraftlog.transport.rpc_client import SOFTWARE_NAME
from kraftlog.types import LogTopic
from kraftlog.version import VERSION
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["CODEC"]


def to_wire_request(_request: raft.ApiVersionsRequest, _version: int, _topic: LogTopic) -> ApiVersionsRequest:
    """Ask what a replica can do."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)


def to_core_response(response: ApiVersionsResponse, _listener_name: str, _topic: LogTopic) -> raft.ApiVersionsResponse:
    """The levels of kraft.version, when the replica tells them."""
    found = next(
        (
            supported_feature
            for supported_feature in response.supported_features
            if supported_feature.name == KRAFT_VERSION
        ),
        None,
    )
    return raft.ApiVersionsResponse(
        top_level_error_code=response.error_code,
        min_kraft_version=None if found is None else found.min_version,
        max_kraft_version=None if found is None else found.max_version,
    )


CODEC: Final = RaftCodec(
    api_key=ApiVersionsRequest.API_KEY,
    core_request=raft.ApiVersionsRequest,
    core_response=raft.ApiVersionsResponse,
    wire_request=ApiVersionsRequest,
    wire_response=ApiVersionsResponse,
    to_wire_request=to_wire_request,
    to_core_response=to_core_response,
    to_core_request=None,
    to_wire_response=None,
)
