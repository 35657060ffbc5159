"""What a controller that is not the active one answers, to its own clients and inside of envelopes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.api.controller_answers import ControllerAnswers
from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.handler_table import FORWARDED_KEYS
from kraftlog.controller.operations import OPERATIONS
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext, PendingResponse
from kraftlog.types import Uuid
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlog.wire.messages.embedded import DefaultPrincipalData
from kraftlog.wire.messages.envelope import EnvelopeRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftlog.wire.registry import API_BY_KEY

PEER = PeerContext("CONTROLLER", True, ANONYMOUS, "127.0.0.1", "127.0.0.1:1")
NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
# Requests whose answers have errors at each topic or resource alone need one.
FIELDS: dict[type, dict[str, Any]] = {
    AlterPartitionRequest: {"topics": [AlterPartitionRequest.TopicData(topic_id=Uuid(b"t" * 16), partitions=[])]},
    AlterPartitionReassignmentsRequest: {
        "topics": [AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[])]
    },
    AlterConfigsRequest: {"resources": [AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")]},
    BrokerRegistrationRequest: {"log_dirs": []},
    AlterUserScramCredentialsRequest: {
        "upsertions": [AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="u", mechanism=1)]
    },
    CreateAclsRequest: {
        "creations": [CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", operation=3, permission_type=3)]
    },
    CreatePartitionsRequest: {
        "topics": [CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)]
    },
    CreateTopicsRequest: {"topics": [CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1)]},
    DeleteAclsRequest: {
        "filters": [DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
    },
    DeleteTopicsRequest: {"topics": [DeleteTopicsRequest.DeleteTopicState(name="t")]},
    ElectLeadersRequest: {"topic_partitions": [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]},
    AlterClientQuotasRequest: {
        "entries": [
            AlterClientQuotasRequest.EntryData(
                entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u")]
            )
        ]
    },
    IncrementalAlterConfigsRequest: {
        "resources": [IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")]
    },
}


class Inactive:
    """The controller and the raft replica of a node that does not lead (any more)."""

    is_leader = False

    def submit_request(
        self, _request: Any, *, timeout_s: float | None = None, charge: Any = None
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(NOT_CONTROLLER, "This is not the correct controller."))
        return future

    def note_connection(self, _request: Any, _loss: Any) -> None:
        """No session of a broker is kept here."""

    def handle_request(self, request: Any, **_: Any) -> asyncio.Future[Any]:
        """As the raft layer answers a voter change."""
        assert isinstance(request, AddRaftVoterRequest)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(AddRaftVoterResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return future


def ask(request: Any, *, is_leader: bool = False) -> Any:
    """What a controller listener answers; ``is_leader`` of the node when the envelope comes."""

    async def run() -> Any:
        node = Inactive()
        node.is_leader = is_leader
        image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda _name: None))
        services = SimpleNamespace(
            cluster=SimpleNamespace(node_id=1, image=image, cluster_id="c"),
            raft=node,
            controller=ControllerAnswers(node),
            settings=SimpleNamespace(delete_topic_enable=True),
            tasks=SimpleNamespace(spawn=asyncio.get_running_loop().create_task),
            authorizer=Authorizer(),
        )
        dispatcher = Dispatcher(services, "controller")
        version = API_BY_KEY[request.API_KEY].max_version
        frame = b"".join(map(bytes, encode_request(request.API_KEY, version, 7, "client", request)))[4:]
        answer: Any = dispatcher.handle(PEER, frame)
        while isinstance(answer, PendingResponse):
            await asyncio.wait([answer.future])
            answer = answer.finish(answer.future)
        assert isinstance(answer, list), answer
        return decode_response(request.API_KEY, version, b"".join(map(bytes, answer))[4:])[1]

    return asyncio.run(run())


def codes(answer: Any) -> set[int]:
    """Every error code, wherever the answer has them."""
    if getattr(answer, "error_code", 0):
        return {answer.error_code}
    names = ("topics", "responses", "results", "filter_results", "replica_election_results", "entries")
    lists = [getattr(answer, name, ()) for name in names]
    found = {code for inner in lists for entry in inner for code in codes(entry)}
    return found | {part.error_code for part in getattr(answer, "partition_result", ())}


@pytest.mark.parametrize("kind", sorted(OPERATIONS, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_controller_that_is_not_the_active_one_says_so_in_every_answer(kind: Any) -> None:
    """CERR-21, CPRT-13, CPRT-100; fails before the fix, where the connection was closed for six of the requests."""
    assert codes(ask(kind(**FIELDS.get(kind, {})))) == {NOT_CONTROLLER}


def enveloped(request: Any) -> EnvelopeRequest:
    version = API_BY_KEY[request.API_KEY].max_version
    frame = b"".join(map(bytes, encode_request(request.API_KEY, version, 3, "admin", request)))[4:]
    principal = DefaultPrincipalData(type="User", name="ANONYMOUS", token_authenticated=False)
    return EnvelopeRequest(
        request_data=frame, request_principal=b"\0\0" + principal.encode(0), client_host_address=b"\x7f\0\0\1"
    )


@pytest.mark.parametrize(
    "kind", [kind for kind in OPERATIONS if kind.API_KEY in FORWARDED_KEYS], ids=lambda kind: kind.__name__
)
def test_what_was_forwarded_to_a_controller_that_lost_its_role_goes_to_the_next_one(kind: Any) -> None:
    """CERR-21, CPRT-100: the envelope has the error, so that the broker asks again; its client hears nothing of it."""
    answer = ask(enveloped(kind(**FIELDS.get(kind, {}))), is_leader=True)
    assert (answer.error_code, answer.response_data) == (NOT_CONTROLLER, None)


def test_voter_change_that_was_forwarded_to_a_leader_that_lost_its_role_goes_to_the_next_one() -> None:
    """CERR-23, CERR-27: for requests to the raft layer NOT_LEADER_OR_FOLLOWER means the same."""
    voter = AddRaftVoterRequest(voter_id=3, timeout_ms=1000)
    assert ask(voter).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(enveloped(voter), is_leader=True).error_code == NOT_CONTROLLER
    described = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
            )
        ]
    )
    (partition,) = ask(described).topics[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
