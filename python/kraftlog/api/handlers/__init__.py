"""One module per API: ``def handle(node, context, request)``; this is the table of them.

A handler returns the response, a future of it when it has to wait, or None when the protocol wants no response
(Produce with acks=0). Modules are imported when their API is first asked for, so that starting a node does not pay
for what nobody calls.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["HANDLERS", "Handler", "LazyHandler"]

Handler = Callable[[Any, Any, Any], Any]


class LazyHandler:
    """Stands in the table for the module's ``handle`` until the first call."""

    __slots__ = ("_handle", "module_name")

    def __init__(self, stem: str) -> None:
        self.module_name = f"{__name__}.{stem}"
        self._handle: Handler | None = None

    def load(self) -> Handler:
        """Import the module, once, and give its ``handle``."""
        if self._handle is None:
            self._handle = import_module(self.module_name).handle
        return self._handle

    def __call__(self, node: Any, context: Any, request: Any) -> Any:
        """Handle one request."""
        return self.load()(node, context, request)


# Sorted by API key; ApiVersions advertises exactly these keys.
HANDLERS: dict[int, LazyHandler] = {
    0: LazyHandler("produce"),
    1: LazyHandler("fetch"),
    2: LazyHandler("list_offsets"),
    3: LazyHandler("metadata"),
    8: LazyHandler("offset_commit"),
    9: LazyHandler("offset_fetch"),
    10: LazyHandler("find_coordinator"),
    11: LazyHandler("join_group"),
    12: LazyHandler("heartbeat"),
    13: LazyHandler("leave_group"),
    14: LazyHandler("sync_group"),
    15: LazyHandler("describe_groups"),
    16: LazyHandler("list_groups"),
    18: LazyHandler("api_versions"),
    19: LazyHandler("create_topics"),
    20: LazyHandler("delete_topics"),
    21: LazyHandler("delete_records"),
    22: LazyHandler("init_producer_id"),
    23: LazyHandler("offset_for_leader_epoch"),
    29: LazyHandler("describe_acls"),
    32: LazyHandler("describe_configs"),
    33: LazyHandler("alter_configs"),
    35: LazyHandler("describe_log_dirs"),
    37: LazyHandler("create_partitions"),
    42: LazyHandler("delete_groups"),
    43: LazyHandler("elect_leaders"),
    44: LazyHandler("incremental_alter_configs"),
    46: LazyHandler("list_partition_reassignments"),
    47: LazyHandler("offset_delete"),
    48: LazyHandler("describe_client_quotas"),
    50: LazyHandler("describe_user_scram_credentials"),
    52: LazyHandler("vote"),
    53: LazyHandler("begin_quorum_epoch"),
    54: LazyHandler("end_quorum_epoch"),
    55: LazyHandler("describe_quorum"),
    57: LazyHandler("update_features"),
    58: LazyHandler("envelope"),
    59: LazyHandler("fetch_snapshot"),
    60: LazyHandler("describe_cluster"),
    62: LazyHandler("broker_registration"),
    63: LazyHandler("broker_heartbeat"),
    64: LazyHandler("unregister_broker"),
    67: LazyHandler("allocate_producer_ids"),
    68: LazyHandler("consumer_group_heartbeat"),
    70: LazyHandler("controller_registration"),
    74: LazyHandler("list_config_resources"),
    75: LazyHandler("describe_topic_partitions"),
    80: LazyHandler("add_raft_voter"),
    81: LazyHandler("remove_raft_voter"),
    82: LazyHandler("update_raft_voter"),
}
