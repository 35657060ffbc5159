"""The guard of each API, and its place in front of the handler.

A guard asks the authorizer, takes out of the request what is refused, has the rest handled, and puts the refusals into
the response. Handlers thus know nothing of ACLs, and a node without an authorizer pays nothing for them. What each API
needs is what Kafka's ``KafkaApis``, ``ControllerApis`` and ``AclApis`` ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftlog.api.guards import cluster, configs, data, groups, shares, topics, transactions
from kraftlog.api.guards.access import Access
from kraftlog.api.guards.answers import Guard
from kraftlog.api.handler_table import APIS
from kraftlog.security.operation import ResourceKind

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.handler_table import Handler
    from kraftlog.api.services import ClusterService
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.security.grants import Grants

__all__ = ["GUARDS", "guarded"]

_OWN_GUARDS: dict[str, Guard] = {
    "produce": data.produce,
    "fetch": data.fetch,
    "list_offsets": data.list_offsets,
    "metadata": topics.metadata,
    "offset_commit": groups.offset_commit,
    "offset_fetch": groups.offset_fetch,
    "find_coordinator": groups.find_coordinator,
    "join_group": groups.member,
    "heartbeat": groups.member,
    "leave_group": groups.member,
    "sync_group": groups.member,
    "describe_groups": groups.describe_groups,
    "list_groups": groups.list_groups,
    "api_versions": cluster.open_to_all,
    "sasl_handshake": cluster.open_to_all,
    "sasl_authenticate": cluster.open_to_all,
    "create_topics": topics.create_topics,
    "delete_topics": topics.delete_topics,
    "delete_records": data.delete_records,
    "init_producer_id": transactions.init_producer_id,
    "offset_for_leader_epoch": data.offset_for_leader_epoch,
    "add_partitions_to_txn": transactions.add_partitions_to_txn,
    "add_offsets_to_txn": transactions.add_offsets_to_txn,
    "end_txn": transactions.end_txn,
    "write_txn_markers": transactions.write_txn_markers,
    "txn_offset_commit": transactions.txn_offset_commit,
    "create_acls": cluster.create_acls,
    "delete_acls": cluster.delete_acls,
    "describe_configs": configs.describe_configs,
    "alter_configs": configs.alter_configs,
    "alter_partition_reassignments": cluster.alter_partition_reassignments,
    "list_partition_reassignments": cluster.list_partition_reassignments,
    "alter_client_quotas": cluster.alter_client_quotas,
    "describe_client_quotas": cluster.describe_client_quotas,
    "alter_user_scram_credentials": cluster.alter_user_scram_credentials,
    "describe_user_scram_credentials": cluster.describe_user_scram_credentials,
    "alter_replica_log_dirs": cluster.alter_replica_log_dirs,
    "create_partitions": topics.create_partitions,
    "delete_groups": groups.delete_groups,
    "elect_leaders": cluster.elect_leaders,
    "incremental_alter_configs": configs.incremental_alter_configs,
    "offset_delete": groups.offset_delete,
    "describe_cluster": topics.describe_cluster,
    "describe_producers": data.describe_producers,
    "describe_transactions": transactions.describe_transactions,
    "list_transactions": transactions.list_transactions,
    "consumer_group_heartbeat": groups.group_heartbeat,
    "consumer_group_describe": groups.consumer_group_describe,
    "describe_topic_partitions": topics.describe_topic_partitions,
    "share_group_heartbeat": groups.group_heartbeat,
    "share_group_describe": groups.share_group_describe,
    "share_fetch": shares.share_fetch,
    "share_acknowledge": shares.share_acknowledge,
    "initialize_share_group_state": shares.initialize_state,
    "read_share_group_state": shares.read_state,
    "write_share_group_state": shares.write_state,
    "delete_share_group_state": shares.delete_state,
    "read_share_group_state_summary": shares.read_state_summary,
    "streams_group_heartbeat": groups.member,
    "streams_group_describe": groups.streams_group_describe,
    "describe_share_group_offsets": shares.describe_offsets,
    "alter_share_group_offsets": shares.alter_offsets,
    "delete_share_group_offsets": shares.delete_offsets,
}


def _guard_of(key: int) -> Guard:
    """The guard of an API: its own one, or that of its operation on the cluster."""
    api = APIS[key]
    own = _OWN_GUARDS.get(api.module)
    if own is not None:
        return own
    if api.operation is None or api.resource is not ResourceKind.CLUSTER:
        msg = f"{api.module} has no guard"
        raise ValueError(msg)
    return cluster.operation_on_cluster(api.operation)


GUARDS: dict[int, Guard] = {key: _guard_of(key) for key in APIS}
"""The guard of each API of the table; an API without one is an error when this module is imported."""


def guarded(
    key: int, handler: Handler, authorizer: Authorizer, known: ClusterService, grants: Grants | None = None
) -> Handler:
    """The handler of an API behind its guard. ``grants`` learns what that allows to clients of I/O threads."""
    guard = GUARDS[key]

    def handle(context: RequestContext, request: Any) -> Any:
        own_grants = grants if context.peer.is_on_data_path else None
        access = Access(authorizer, context.principal, context.client_host, known.image, own_grants)
        context = context._replace(access=access)
        return guard(access, context, request, lambda left: handler(context, left))

    return handle
