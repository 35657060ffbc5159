"""DescribeUserScramCredentials, API key 50, version 0 (KIP-554): credentials as the metadata log has them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, LOOKUPS_PER_SLICE, Slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService

__all__ = ["handle"]

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Info = DescribeUserScramCredentialsResponse.CredentialInfo


@sliced
def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, *, cluster: ClusterService
) -> Slices[DescribeUserScramCredentialsResponse]:
    """Tell mechanism and iterations of users' credentials, never the credentials."""
    infos: dict[str, list[_Info]] = {}
    for (mechanism, user), record in sorted(cluster.image.security.scram.items()):
        infos.setdefault(user, []).append(_Info(mechanism=mechanism, iterations=record.iterations))
    counts: Counter[str] = Counter()
    for number, asked in enumerate(request.users or (), 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        counts[asked.name] += 1
    results = []
    for number, (name, count) in enumerate((counts or Counter(infos)).items(), 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        if request.users and count > 1:
            code, message = (
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            )
        elif name not in infos:
            code, message = (
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
        else:
            results.append(_Result(user=name, credential_infos=infos[name]))
            continue
        results.append(_Result(user=name, error_code=code, error_message=message))
    return DescribeUserScramCredentialsResponse(results=results)
