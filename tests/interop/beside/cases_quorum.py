"""DescribeQuorum, changes of the voter set and ApiVersions (areas 08, 11, 12, 13 and 15)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from interop.beside import asks
from interop.beside.case import OTHER_DIRECTORY, Case, add, begin, fetch, remove, steps, update, vote
from interop.beside.driven import LISTENER, ME, Driven
from interop.beside.scripted_peer import everything
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from raw_client import RawClient

AT_1 = "leader=1 epoch=E at"
TIMED_OUT = "top REQUEST_TIMED_OUT text"
# What a controller of 4.3.1 says of itself; the raft APIs, in the order of their keys.
RAFT_APIS = "1:4-18 52:0-2 53:0-1 54:0-1 55:0-2 59:0-1 80:0-1 81:0-0 82:0-0"
FEATURES = (
    "eligible.leader.replicas.version:0-1 group.version:0-1 kraft.version:0-1 metadata.version:7-30 "
    "share.version:0-1 streams.version:0-1 transaction.version:0-2"
)


# ApiVersions


def api_versions(version: int) -> Callable[[Driven], str]:
    """The raft APIs with their versions, then the features."""

    def ask(driven: Driven) -> str:
        request = (
            ApiVersionsRequest(client_software_name="test", client_software_version="1")
            if version >= 3
            else ApiVersionsRequest()
        )
        response = driven.ask(request, version)
        keys = {part.split(":")[0] for part in RAFT_APIS.split()}
        apis = [api_key for api_key in response.api_keys if str(api_key.api_key) in keys]
        features = sorted(
            f"{supported_feature.name}:{supported_feature.min_version}-{supported_feature.max_version}"
            for supported_feature in response.supported_features
        )
        return (
            f"{ErrorCode.name_of(response.error_code)} "
            + " ".join(f"{api.api_key}:{api.min_version}-{api.max_version}" for api in apis)
            + (f" | {' '.join(features)}" if features else "")
        )

    return ask


def too_new(driven: Driven) -> str:
    """ApiVersions in a version that does not exist: the answer is that of version 0."""
    with RawClient(driven.server.bootstrap) as client:
        client.sock.sendall(bytes.fromhex("0000000d 0012 0063 0000002a 0001 78 00 00".replace(" ", "")))
        correlation_id, response = client.receive(ApiVersionsRequest.API_KEY, 0)
    ranges = [(api_key.api_key, api_key.min_version, api_key.max_version) for api_key in response.api_keys]
    return f"{correlation_id} {ErrorCode.name_of(response.error_code)} {ranges}"


def finalized(driven: Driven) -> str:
    """The level of kraft.version, and whether a feature of level 0 is named."""
    response = driven.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    levels = {
        finalized_feature.name: finalized_feature.max_version_level for finalized_feature in response.finalized_features
    }
    return f"kraft.version={levels.get('kraft.version')} zeros={0 in levels.values()}"


VERSIONS = [
    Case("ENDP-23 RPC-01", "unattached", api_versions(0), f"NONE {RAFT_APIS}"),
    *(
        Case("ENDP-26 KVER-02", "unattached", api_versions(number), f"NONE {RAFT_APIS} | metadata.version:7-30")
        for number in (3,)
    ),
    Case("ENDP-25 ENDP-26 KVER-02", "unattached", api_versions(4), f"NONE {RAFT_APIS} | {FEATURES}"),
    Case("ENDP-24", "unattached", too_new, "42 UNSUPPORTED_VERSION [(18, 0, 4)]"),
]


# DescribeQuorum


def described(driven: Driven) -> str:
    """All of DescribeQuorum v2, with what moves left out."""
    response = driven.ask(asks.describe_request())
    partition = response.topics[0].partitions[0]
    keys = {ME: driven.directory_id} | {peer.node_id: peer.directory_id for peer in driven.peers.values()}
    ports = {ME: driven.server.port} | {peer.node_id: peer.port for peer in driven.peers.values()}
    voters = {current_voter.replica_id: current_voter for current_voter in partition.current_voters}
    times = voters[ME].last_fetch_timestamp > 0 and voters[ME].last_caught_up_timestamp > 0
    nodes = {node.node_id: [(each.name, each.host, each.port) for each in node.listeners] for node in response.nodes}
    return (
        f"leader={partition.leader_id} epoch={asks.relative(partition.leader_epoch, driven.epoch)} "
        f"high_watermark={'known' if partition.high_watermark >= 0 else -1} voters={sorted(voters)} "
        f"keys={all(voters[key].replica_directory_id == keys[key] for key in keys)} own_times={times} "
        f"nodes={nodes == {key: [(LISTENER, '127.0.0.1', port)] for key, port in ports.items()}} "
        f"unseen={[voters[key].log_end_offset for key in (2, 3)]}"
        f"/{[(voters[key].last_fetch_timestamp, voters[key].last_caught_up_timestamp) for key in (2, 3)]}"
    )


def observed(version: int) -> Callable[[Driven], str]:
    """An observer that fetched, as DescribeQuorum tells it."""

    def ask(driven: Driven) -> str:
        fetch(sender=9, directory_id=OTHER_DIRECTORY, offset=0, last_epoch=0)(driven)
        response = driven.ask(asks.describe_request(), version)
        found = {observer.replica_id: observer for observer in response.topics[0].partitions[0].observers}
        one = found[9]
        return (
            f"end={one.log_end_offset} directory={one.replica_directory_id == OTHER_DIRECTORY} "
            f"fetched={one.last_fetch_timestamp > 0} nodes={len(response.nodes)}"
        )

    return ask


def went_back(driven: Driven) -> str:
    """A voter that fetched the end and then the beginning."""
    fetch(sender=3)(driven)
    fetch(sender=3, offset=0, last_epoch=0)(driven)
    partition = driven.ask(asks.describe_request()).topics[0].partitions[0]
    return str(
        next(
            current_voter.log_end_offset for current_voter in partition.current_voters if current_voter.replica_id == 3
        )
    )


def of_other(topic: str, index: int, version: int = 2) -> Callable[[Driven], str]:
    def ask(driven: Driven) -> str:
        partition = driven.ask(asks.describe_request(topic, index), version).topics[0].partitions[0]
        return ErrorCode.name_of(partition.error_code)

    return ask


def ipv6(driven: Driven) -> str:
    """An IPv6 literal that a leader gave, as others are told it."""
    answer = begin(endpoints=[(LISTENER, "::1", 65000)])(driven)
    return f"{answer.node_endpoints[0].host} {answer.node_endpoints[0].port}"


def controllers(endpoint_type: int) -> Callable[[Driven], str]:
    """DescribeCluster on a controller's listener."""

    def ask(driven: Driven) -> str:
        for _ in range(50):
            response = driven.ask(DescribeClusterRequest(endpoint_type=endpoint_type))
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
            driven.commit()  # the metadata is not there, or not in force yet
            time.sleep(0.05)
        return f"{ErrorCode.name_of(response.error_code)} type={response.endpoint_type}"

    return ask


QUORUM = [
    Case("RPC-33", "fetching", of_other(asks.TOPIC, 0), "NOT_LEADER_OR_FOLLOWER"),
    Case("RPC-33", "unattached", of_other(asks.TOPIC, 0), "NOT_LEADER_OR_FOLLOWER"),
    *(
        Case("RPC-33 RPC-38", "fetching", of_other(asks.TOPIC, 0, number), "NOT_LEADER_OR_FOLLOWER")
        for number in (0, 1)
    ),
    Case("RPC-07", "leader", of_other("orders", 0), "UNKNOWN_TOPIC_OR_PARTITION"),
    Case("RPC-07", "leader", of_other(asks.TOPIC, 1), "UNKNOWN_TOPIC_OR_PARTITION"),
    Case(
        "RPC-34 RPC-35 ENDP-06 ENDP-30",
        "leader",
        described,
        "leader=1 epoch=E high_watermark=-1 voters=[1, 2, 3] keys=True own_times=True nodes=True "
        "unseen=[-1, -1]/[(-1, -1), (-1, -1)]",
    ),
    Case("OBS-07 OBS-15", "leader", observed(2), "end=0 directory=True fetched=True nodes=3"),
    Case("OBS-15 ENDP-30", "leader", observed(1), "end=0 directory=False fetched=True nodes=0"),
    Case("OBS-15", "leader", observed(0), "end=0 directory=False fetched=False nodes=0"),
    Case("RPC-37", "leader", went_back, "0"),
    Case("ENDP-07", "unattached", ipv6, "::1 65000", then="leader=2 epoch=E"),
    Case("ENDP-31", "leading", controllers(2), "NONE type=2"),
    Case("ENDP-31", "leading", controllers(1), "MISMATCHED_ENDPOINT_TYPE type=1"),
]


# The voter set


def seen(driven: Driven) -> None:
    """The newcomer fetches until there is nothing more."""
    for _ in range(20):
        end_offset = driven.log_end_offset()
        answer = fetch(sender=4, directory_id=driven.newcomer.directory_id, offset=end_offset)(driven)
        if not bytes(answer.responses[0].partitions[0].records):
            return


def answers(response: Callable[[], ApiVersionsResponse], *, first: Callable[[], ApiVersionsResponse]) -> Any:
    """What the newcomer says when it is asked for its versions a second time, by the leader itself."""

    def prepare(driven: Driven) -> None:
        count = iter(range(1000))
        driven.newcomer.drop_connections()
        time.sleep(0.2)  # until that was noticed
        driven.newcomer.api_versions = lambda: first() if next(count) == 0 else response()

    return prepare


def featureless() -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=everything().api_keys)


def too_high() -> ApiVersionsResponse:
    feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=2, max_version=3)
    return ApiVersionsResponse(api_keys=everything().api_keys, supported_features=[feature])


def failing() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=everything().api_keys)


def while_pending(request: Callable[[Driven], Any], *, commits: bool = True) -> Callable[[Driven], Any]:
    """Ask while a change waits to be committed; afterwards it is."""

    def ask(driven: Driven) -> Any:
        first = driven.ask(asks.add_request(driven, waits=False))
        assert first.error_code == 0, first
        response = request(driven)
        if commits:
            driven.commit()
        return response

    return ask


def later(ask: Callable[[Driven], Any], then: Callable[[Driven], Any]) -> Callable[[Driven], str]:
    """Ask over a connection of its own, do something, and give the answer that came in the end."""

    def run(driven: Driven) -> str:
        said: list[Any] = []
        begun_epoch = driven.epoch
        with RawClient(driven.server.bootstrap) as client:
            request = ask(driven)
            waiting = threading.Thread(target=lambda: said.append(client.call(request)))
            waiting.start()
            before = driven.log_end_offset() or 0
            while (driven.log_end_offset() or 0) == before and waiting.is_alive():
                before = min(before, driven.log_end_offset() or 0)
            then(driven)
            while then is Driven.commit and waiting.is_alive():
                driven.commit()  # what moved the log's end before may have been something else
            waiting.join(20)
        return asks.in_words(said[0], begun_epoch)

    return run


def known(driven: Driven) -> str:
    partition = driven.ask(asks.describe_request()).topics[0].partitions[0]
    return str(sorted(current_voter.replica_id for current_voter in partition.current_voters))


def moved(driven: Driven) -> Any:
    """A higher epoch appears."""
    return vote(epoch=1, log=(0, 0))(driven)


def level(level: int, upgrade_type: int) -> Callable[[Driven], str]:
    """UpdateFeatures of kraft.version."""

    def ask(driven: Driven) -> str:
        change = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="kraft.version", max_version_level=level, upgrade_type=upgrade_type
        )
        request = UpdateFeaturesRequest(feature_updates=[change])
        while True:
            # A refusal too is told once everything before it is committed.
            said: list[Any] = []
            with RawClient(driven.server.bootstrap) as client:
                waiting = threading.Thread(target=lambda said=said, client=client: said.append(client.call(request)))
                waiting.start()
                while waiting.is_alive():
                    driven.commit()
            response = said[0]
            if response.error_code != ErrorCode.NOT_CONTROLLER:
                break  # before, it leads and is only about to be the active controller
        return ErrorCode.name_of(response.error_code)

    return ask


PEER_2 = (2, OTHER_DIRECTORY)
OK = "top NONE"
VOTERS = [
    *(
        Case("RCFG-13 RPC-05 RPC-41 CERR-26", "leading", add(cluster_id=name), "top INCONSISTENT_CLUSTER_ID text")
        for name in ("another", "")
    ),
    Case("RCFG-13 RCFG-21", "led", add(cluster_id=None, voter=PEER_2), "top DUPLICATE_VOTER text"),
    Case("RCFG-21", "led", lambda d: add(voter=(2, d.peers[2].directory_id))(d), "top DUPLICATE_VOTER text"),
    Case("RCFG-15", "led", add(voter=(-1, OTHER_DIRECTORY)), "top INVALID_REQUEST text"),
    Case("RCFG-15", "led", add(voter=(4, Uuid.ZERO)), "top INVALID_REQUEST text"),
    Case("RCFG-16", "led", add(endpoints=[("OTHER", "127.0.0.1", 9)]), "top INVALID_REQUEST text"),
    Case("RCFG-34 RPC-05 CERR-26", "led", remove(cluster_id="another"), "top INCONSISTENT_CLUSTER_ID text"),
    Case("RCFG-35", "led", remove(voter=(-1, OTHER_DIRECTORY)), "top INVALID_REQUEST text"),
    Case("RCFG-35", "led", remove(voter=(2, Uuid.ZERO)), "top INVALID_REQUEST text"),
    Case("RCFG-36", "led", remove(), "top VOTER_NOT_FOUND text"),
    Case("RCFG-36", "led", remove(voter=PEER_2), "top VOTER_NOT_FOUND text"),
    Case("RCFG-45 RPC-05", "led", update(cluster_id="another"), f"top INCONSISTENT_CLUSTER_ID {AT_1}"),
    Case("RCFG-45 ENDP-06", "led", update(epoch=-1), f"top FENCED_LEADER_EPOCH {AT_1}"),
    Case("RCFG-45", "led", update(epoch=1), f"top UNKNOWN_LEADER_EPOCH {AT_1}"),
    Case("RCFG-46", "led", update(voter=(-1, OTHER_DIRECTORY)), f"top INVALID_REQUEST {AT_1}"),
    Case("RCFG-46", "led", update(voter=(2, Uuid.ZERO)), f"top INVALID_REQUEST {AT_1}"),
    Case("RCFG-46", "led", update(endpoints=[("OTHER", "127.0.0.1", 9)]), f"top INVALID_REQUEST {AT_1}"),
    *(
        Case("RCFG-46", "led", update(versions=versions), f"top INVALID_REQUEST {AT_1}")
        for versions in ((-1, 1), (0, -1), (1, 0))
    ),
    Case("RCFG-48", "led", update(versions=(2, 3)), f"top INVALID_REQUEST {AT_1}"),
    Case("RCFG-49", "led", update(voter=(9, OTHER_DIRECTORY)), f"top VOTER_NOT_FOUND {AT_1}"),
    Case("RCFG-49", "led", update(voter=PEER_2), f"top VOTER_NOT_FOUND {AT_1}"),
    # CERR-22
    Case("RCFG-14", "fetching", add(), "top NOT_LEADER_OR_FOLLOWER"),
    Case("RCFG-34", "fetching", remove(), "top NOT_LEADER_OR_FOLLOWER"),
    Case("RCFG-45", "fetching", update(), "top NOT_LEADER_OR_FOLLOWER leader=2 epoch=E at"),
    Case("RCFG-18", "leader", add(), TIMED_OUT),
    Case("RCFG-34", "leader", remove(voter=PEER_2), TIMED_OUT),
    Case("RCFG-47", "leader", update(), f"top REQUEST_TIMED_OUT {AT_1}"),
    Case("RCFG-25", "leading", add(), TIMED_OUT),
    Case("RCFG-24", "leading", steps(seen, answers(featureless, first=everything), add()), "top INVALID_REQUEST text"),
    Case("RCFG-24", "leading", steps(seen, answers(too_high, first=everything), add()), "top INVALID_REQUEST text"),
    Case("RCFG-23", "leading", steps(seen, answers(failing, first=everything), add()), TIMED_OUT),
    Case("RCFG-22", "leading", steps(seen, add(endpoints=[(LISTENER, "127.0.0.1", 9)])), TIMED_OUT),
    Case("RCFG-50", "leading", update(), f"top NONE {AT_1}"),
    Case("RCFG-20", "leading", steps(update(), add()), TIMED_OUT),
    Case(
        "RCFG-17 RCFG-29 RCFG-30",
        "leading",
        steps(answers(everything, first=everything), seen, while_pending(add())),
        TIMED_OUT,
    ),
    Case("RCFG-29", "led", known, "[1, 2, 3, 4]"),
    Case(
        "RCFG-38",
        "leading",
        later(asks.remove_request, Driven.commit),
        OK,
    ),
    Case("RCFG-28 RPC-41", "leading", steps(seen, later(asks.add_request, Driven.commit)), OK),
    Case("RCFG-39", "leading", remove(), TIMED_OUT),
    Case("RCFG-31", "leading", steps(seen, add()), TIMED_OUT),
    Case("RCFG-34", "leading", steps(later(asks.remove_request, Driven.commit)), OK),
    Case(
        "RCFG-33",
        "leading",
        steps(seen, later(asks.add_request, moved)),
        "top NOT_LEADER_OR_FOLLOWER text",
        then="leader=-1 epoch=E+1",
    ),
    Case("RCFG-34", "leading", steps(later(asks.remove_request, Driven.commit)), OK),
    *(Case("KVER-06 RPC-47", "led", level(0, number), "INVALID_UPDATE_VERSION") for number in (1, 2, 3)),
    Case("RPC-47", "led", level(1, 4), "INVALID_UPDATE_VERSION"),
    Case("KVER-03", "led", finalized, "kraft.version=1 zeros=False"),
]
