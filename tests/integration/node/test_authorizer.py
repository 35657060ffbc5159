"""A node with StandardAuthorizer: its ACLs, its data path, what a restart keeps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import kraftlog
from kraftlog.node.authorization import Authorization
from kraftlog.node.config import NodeConfig
from kraftlog.node.standalone import standalone_properties
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import ANONYMOUS, Principal
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.describe_acls import DescribeAclsRequest
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord
from raw_client import RawClient

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS: dict[str, Any] = {"authorizer_class_name": STANDARD, "super_users": str(ANONYMOUS)}
ANY = {
    "resource_type_filter": ResourceKind.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def principals(client: RawClient) -> set[str]:
    response = client.call(DescribeAclsRequest(**ANY))
    assert response.error_code == 0
    return {acl.principal for resource in response.resources for acl in resource.acls}


def test_acls_are_listed_at_once_kept_over_a_restart_and_deleted(tmp_path):
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=ResourceKind.TOPIC,
            resource_name="t",
            principal=f"User:{name}",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        for name in ("alice", "bob")
    ]
    with kraftlog.Broker(tmp_path, **SETTINGS) as broker, RawClient(broker.bootstrap_servers) as client:
        assert principals(client) == set()
        response = client.call(CreateAclsRequest(creations=creations))
        assert [result.error_code for result in response.results] == [0, 0]
        assert principals(client) == {"User:alice", "User:bob"}
    with kraftlog.Broker(tmp_path, **SETTINGS) as broker, RawClient(broker.bootstrap_servers) as client:
        assert principals(client) == {"User:alice", "User:bob"}
        deletion = DeleteAclsRequest.DeleteAclsFilter(**{**ANY, "principal_filter": "User:bob"})
        (result,) = client.call(DeleteAclsRequest(filters=[deletion])).filter_results
        assert [acl.principal for acl in result.matching_acls] == ["User:bob"]
        assert principals(client) == {"User:alice"}


def config(tmp_path) -> NodeConfig:
    changes = {key.replace("_", "."): value for key, value in SETTINGS.items()}
    changes["allow.everyone.if.no.acl.found"] = "true"
    return NodeConfig(standalone_properties(tmp_path, port=0, is_durable=False, changes=changes))


def test_until_what_is_committed_is_known_only_super_users_are_allowed(tmp_path):
    async def story():
        deny = AccessControlEntryRecord(
            id=Uuid(bytes(15) + b"\1"),
            resource_type=ResourceKind.TOPIC,
            resource_name="t",
            pattern_type=PatternType.LITERAL,
            principal="User:*",
            host="*",
            operation=Operation.ALL,
            permission_type=Permission.DENY,
        )
        applied = asyncio.Event()
        waited = asyncio.get_running_loop().create_future()

        async def wait_for_offset(offset):
            waited.set_result(offset)
            await applied.wait()

        acls: dict[Uuid, AccessControlEntryRecord] = {}
        image = SimpleNamespace(security=SimpleNamespace(acls=acls))
        replica = SimpleNamespace(high_watermark=-1)
        metadata: Any = SimpleNamespace(image=image, replica=replica, wait_for_offset=wait_for_offset)
        authorization = Authorization(config(tmp_path))
        authorizer = authorization.authorizer
        assert authorizer is not None

        def is_allowed(principal, name):
            return authorizer.is_allowed(principal, "h", Operation.READ, ResourceKind.TOPIC, name)

        authorization.begin_load(metadata)
        await asyncio.sleep(0)
        alice = Principal("User", "alice")
        assert is_allowed(ANONYMOUS, "t")
        assert not is_allowed(alice, "other")
        replica.high_watermark = 7
        assert await waited == 6
        assert not is_allowed(alice, "other")
        acls[deny.id] = deny
        applied.set()
        await authorization.wait_for_load()
        assert is_allowed(alice, "other")
        assert not is_allowed(alice, "t")
        authorization.stop()

    asyncio.run(story())


def test_node_that_stops_before_it_has_a_leader_waits_no_longer(tmp_path):
    async def story():
        authorization = Authorization(config(tmp_path))
        metadata: Any = SimpleNamespace(replica=SimpleNamespace(high_watermark=-1))
        authorization.begin_load(metadata)
        await asyncio.sleep(0)
        authorization.stop()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())
