"""The one table of the APIs this package serves, and the binding of a handler to the services it names.

One line per API: key, module below ``kraftlog.api.handlers``, the operation an authorizer is asked about, and whether a
broker forwards the request to the active controller (KIP-590). The listeners that serve an API and its range of
versions are facts of the protocol, in ``kraftlog.wire.registry``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

from kraftlog.api.context import RequestContext
from kraftlog.api.slices import Slices
from kraftlog.security.operation import Operation, ResourceKind
from kraftlog.transport.exchange import CloseConnection, PendingResponse
from kraftlog.wire.struct import Message

__all__ = [
    "APIS",
    "FORWARDED_KEYS",
    "STOP_REPLICA_KEY",
    "UNREAD_KEYS",
    "Api",
    "FrameHandler",
    "Handler",
    "LazyHandler",
    "handler_parameters",
]

Response = Message | asyncio.Future[Any] | Slices[Any] | CloseConnection | None
Handler = Callable[[RequestContext, Any], Response]
"""Handles one request: a response, a future of it, the reason to close, or None when the protocol wants no response.

A request with many entries may also end with a generator, which is run in slices (``kraftlog.api.slices``).
A future may also end with None, with the reason to close, or with buffers that are sent as they are.
"""

FrameHandler = Callable[[int, Any], PendingResponse | None]
"""Answers a frame of that version, or None when the request has to be decoded and handled."""

_PACKAGE = "kraftlog.api.handlers"


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    Attributes:
        module: Its module below ``kraftlog.api.handlers``.
        operation, resource: What the client must be allowed to do; None means any client may ask.
        is_forwarded: Whether a broker that is not the active controller sends it on.
        is_checked_first: Whether the broker's own handler does so, for what passed its checks; else the frame goes on
            unread.
        takes_frames: Whether the module has ``handle_frame``, which answers plain requests without decoding them.
    """

    key: int
    module: str
    operation: Operation | None
    resource: ResourceKind = ResourceKind.CLUSTER
    is_forwarded: bool = False
    is_checked_first: bool = False
    takes_frames: bool = False


_OP, _ON = Operation, ResourceKind
# Kafka 4.x removed it; a listener between brokers serves it, for controllers of Kafka 3.x.
STOP_REPLICA_KEY = 5
APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "produce", _OP.WRITE, _ON.TOPIC),
        Api(1, "fetch", _OP.READ, _ON.TOPIC),
        Api(2, "list_offsets", _OP.DESCRIBE, _ON.TOPIC),
        Api(3, "metadata", _OP.DESCRIBE, _ON.TOPIC),
        Api(STOP_REPLICA_KEY, "stop_replica", _OP.CLUSTER_ACTION),
        Api(8, "offset_commit", _OP.READ, _ON.GROUP, takes_frames=True),
        Api(9, "offset_fetch", _OP.DESCRIBE, _ON.GROUP),
        Api(10, "find_coordinator", _OP.DESCRIBE, _ON.GROUP),
        Api(11, "join_group", _OP.READ, _ON.GROUP),
        Api(12, "heartbeat", _OP.READ, _ON.GROUP),
        Api(13, "leave_group", _OP.READ, _ON.GROUP),
        Api(14, "sync_group", _OP.READ, _ON.GROUP),
        Api(15, "describe_groups", _OP.DESCRIBE, _ON.GROUP),
        Api(16, "list_groups", _OP.DESCRIBE, _ON.GROUP),
        Api(17, "sasl_handshake", None),
        Api(18, "api_versions", None),
        Api(19, "create_topics", _OP.CREATE, _ON.TOPIC, is_forwarded=True),
        Api(20, "delete_topics", _OP.DELETE, _ON.TOPIC, is_forwarded=True),
        Api(21, "delete_records", _OP.DELETE, _ON.TOPIC),
        Api(22, "init_producer_id", _OP.IDEMPOTENT_WRITE),
        Api(23, "offset_for_leader_epoch", _OP.DESCRIBE, _ON.TOPIC),
        Api(24, "add_partitions_to_txn", _OP.WRITE, _ON.TRANSACTIONAL_ID),
        Api(25, "add_offsets_to_txn", _OP.WRITE, _ON.TRANSACTIONAL_ID),
        Api(26, "end_txn", _OP.WRITE, _ON.TRANSACTIONAL_ID),
        Api(27, "write_txn_markers", _OP.CLUSTER_ACTION),
        Api(28, "txn_offset_commit", _OP.WRITE, _ON.TRANSACTIONAL_ID),
        Api(29, "describe_acls", _OP.DESCRIBE),
        Api(30, "create_acls", _OP.ALTER, is_forwarded=True),
        Api(31, "delete_acls", _OP.ALTER, is_forwarded=True),
        Api(32, "describe_configs", _OP.DESCRIBE_CONFIGS),
        Api(33, "alter_configs", _OP.ALTER_CONFIGS, is_forwarded=True, is_checked_first=True),
        Api(34, "alter_replica_log_dirs", _OP.ALTER),
        Api(35, "describe_log_dirs", _OP.DESCRIBE),
        Api(36, "sasl_authenticate", None),
        Api(37, "create_partitions", _OP.ALTER, _ON.TOPIC, is_forwarded=True),
        Api(42, "delete_groups", _OP.DELETE, _ON.GROUP),
        Api(43, "elect_leaders", _OP.ALTER, is_forwarded=True),
        Api(44, "incremental_alter_configs", _OP.ALTER_CONFIGS, is_forwarded=True, is_checked_first=True),
        Api(45, "alter_partition_reassignments", _OP.ALTER, is_forwarded=True),
        Api(46, "list_partition_reassignments", _OP.DESCRIBE, is_forwarded=True),
        Api(47, "offset_delete", _OP.DELETE, _ON.GROUP),
        Api(48, "describe_client_quotas", _OP.DESCRIBE_CONFIGS),
        Api(49, "alter_client_quotas", _OP.ALTER_CONFIGS, is_forwarded=True),
        Api(50, "describe_user_scram_credentials", _OP.DESCRIBE),
        Api(51, "alter_user_scram_credentials", _OP.ALTER, is_forwarded=True),
        Api(52, "vote", _OP.CLUSTER_ACTION),
        Api(53, "begin_quorum_epoch", _OP.CLUSTER_ACTION),
        Api(54, "end_quorum_epoch", _OP.CLUSTER_ACTION),
        Api(55, "describe_quorum", _OP.DESCRIBE, is_forwarded=True),
        Api(56, "alter_partition", _OP.CLUSTER_ACTION),
        Api(57, "update_features", _OP.ALTER, is_forwarded=True),
        Api(58, "envelope", _OP.CLUSTER_ACTION),
        Api(59, "fetch_snapshot", _OP.CLUSTER_ACTION),
        Api(60, "describe_cluster", _OP.DESCRIBE),
        Api(61, "describe_producers", _OP.READ, _ON.TOPIC),
        Api(62, "broker_registration", _OP.CLUSTER_ACTION),
        Api(63, "broker_heartbeat", _OP.CLUSTER_ACTION),
        Api(64, "unregister_broker", _OP.ALTER, is_forwarded=True),
        Api(65, "describe_transactions", _OP.DESCRIBE, _ON.TRANSACTIONAL_ID),
        Api(66, "list_transactions", _OP.DESCRIBE, _ON.TRANSACTIONAL_ID),
        Api(67, "allocate_producer_ids", _OP.CLUSTER_ACTION),
        Api(68, "consumer_group_heartbeat", _OP.READ, _ON.GROUP),
        Api(69, "consumer_group_describe", _OP.DESCRIBE, _ON.GROUP),
        Api(70, "controller_registration", _OP.CLUSTER_ACTION),
        Api(73, "assign_replicas_to_dirs", _OP.CLUSTER_ACTION),
        Api(74, "list_config_resources", _OP.DESCRIBE_CONFIGS),
        Api(75, "describe_topic_partitions", _OP.DESCRIBE, _ON.TOPIC),
        Api(76, "share_group_heartbeat", _OP.READ, _ON.GROUP),
        Api(77, "share_group_describe", _OP.DESCRIBE, _ON.GROUP),
        Api(78, "share_fetch", _OP.READ, _ON.GROUP),
        Api(79, "share_acknowledge", _OP.READ, _ON.GROUP),
        Api(80, "add_raft_voter", _OP.ALTER, is_forwarded=True),
        Api(81, "remove_raft_voter", _OP.ALTER, is_forwarded=True),
        Api(82, "update_raft_voter", _OP.CLUSTER_ACTION),
        Api(83, "initialize_share_group_state", _OP.CLUSTER_ACTION),
        Api(84, "read_share_group_state", _OP.CLUSTER_ACTION),
        Api(85, "write_share_group_state", _OP.CLUSTER_ACTION),
        Api(86, "delete_share_group_state", _OP.CLUSTER_ACTION),
        Api(87, "read_share_group_state_summary", _OP.CLUSTER_ACTION),
        Api(88, "streams_group_heartbeat", _OP.READ, _ON.GROUP),
        Api(89, "streams_group_describe", _OP.DESCRIBE, _ON.GROUP),
        Api(90, "describe_share_group_offsets", _OP.DESCRIBE, _ON.GROUP),
        Api(91, "alter_share_group_offsets", _OP.READ, _ON.GROUP),
        Api(92, "delete_share_group_offsets", _OP.DELETE, _ON.GROUP),
    )
}

FORWARDED_KEYS = frozenset(api.key for api in APIS.values() if api.is_forwarded)
UNREAD_KEYS = frozenset(api.key for api in APIS.values() if api.is_forwarded and not api.is_checked_first)


def handler_parameters(handle: FunctionType) -> tuple[str, ...]:
    """The services that a handler names: its keyword-only parameters."""
    code: CodeType = unwrap(handle).__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


class LazyHandler:
    """Imports the handler's module at the first request, so that starting a node does not pay for unused APIs.

    Args:
        api: Whose handler.
        listener: "broker" or "controller"; a module may have ``handle_on_controller`` beside ``handle``.
        service: Gives a service by name; AttributeError when there is none of that name.
    """

    __slots__ = ("_api", "_call", "_listener", "_service")

    def __init__(self, api: Api, listener: str, service: Callable[[str], object]) -> None:
        self._api = api
        self._listener = listener
        self._service = service
        self._call: Handler = self._load_and_call

    def __call__(self, context: RequestContext, request: Any) -> Response:
        """Handle one request."""
        return self._call(context, request)

    def load(self) -> FunctionType:
        """Import the module and give its function for the listener."""
        module = import_module(f"{_PACKAGE}.{self._api.module}")
        handle: FunctionType = module.handle
        if self._listener == "controller":
            handle = getattr(module, "handle_on_controller", handle)
        return handle

    def load_for_frames(self) -> FrameHandler:
        """Import the module and give its ``handle_frame`` with the services it names."""
        return self._bound(import_module(f"{_PACKAGE}.{self._api.module}").handle_frame)

    def _bound(self, handle: FunctionType) -> Callable[..., Any]:
        services = {name: self._service(name) for name in handler_parameters(handle)}
        return partial(handle, **services) if services else handle

    def _load_and_call(self, context: RequestContext, request: Any) -> Response:
        self._call = self._bound(self.load())
        response: Response = self._call(context, request)
        return response
