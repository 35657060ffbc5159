"""StreamsGroupDescribe, API key 89, version 0 (KIP-1071): there are no streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext

__all__ = ["handle"]

_Group = StreamsGroupDescribeResponse.DescribedGroup


@sliced
def handle(_context: RequestContext, request: StreamsGroupDescribeRequest) -> Slices[StreamsGroupDescribeResponse]:
    """Answer UNSUPPORTED_VERSION for each group."""
    code = ErrorCode.UNSUPPORTED_VERSION
    found = yield from in_slices(_Group(group_id=name, error_code=code) for name in request.group_ids)
    return StreamsGroupDescribeResponse(groups=found)
