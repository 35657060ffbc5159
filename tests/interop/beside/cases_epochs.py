"""BeginQuorumEpoch and EndQuorumEpoch, and what all requests of replicas are checked for (areas 06 and 13)."""

from __future__ import annotations

from interop.beside import asks
from interop.beside.case import OTHER_DIRECTORY, Case, begin, end, fetch, snapshot, vote
from interop.beside.driven import LISTENER, ME, Driven
from kraftlog.types import Uuid

STRANGER = 9
FOLLOWS = "leader=2 epoch=E"
AT_2 = "leader=2 epoch=E at=2"


def begin_sent(driven: Driven) -> str:
    """What a new leader tells the voters."""
    words = set()
    for peer in driven.peers.values():
        asked = driven.begins_seen[peer.node_id]
        one, request = asked.partition, asked.request
        meant = (request.voter_id, one.voter_directory_id) == (peer.node_id, peer.directory_id)
        own = (one.leader_id, one.leader_epoch) == (ME, driven.epoch)
        where = [(listener.name, listener.port) for listener in request.leader_endpoints]
        words.add(f"v{asked.version} meant={meant} own={own} endpoints={where == [(LISTENER, driven.server.port)]}")
    return "; ".join(sorted(words))


def end_sent(driven: Driven) -> str:
    """Whom a leader names that resigns: peer 3 has fetched all, peer 2 nothing."""
    driven.be("resigned")
    asked = driven.ends_seen[0]
    one, request = asked.partition, asked.request
    preferred = [(each.candidate_id, each.candidate_directory_id) for each in one.preferred_candidates]
    names = [key for key, _ in preferred]
    meant = preferred == [(key, driven.peers[key].directory_id) for key in names]
    return (
        f"v{asked.version} own={(one.leader_id, one.leader_epoch) == (ME, driven.epoch)} preferred={names} "
        f"keys={meant} endpoints={len(request.leader_endpoints)}"
    )


def end_repeated(driven: Driven) -> str:
    """A voter that does not acknowledge is told again."""
    first, *others = driven.ends_seen
    return f"again={bool(others) and others[0].request == first.request}"


def _fetches_begun(driven: Driven, *, more: bool) -> str:
    """Whether a BeginQuorumEpoch made a follower begin anew: with another endpoint it dials that one."""
    target = driven.peers[3]
    target.forget()
    endpoints = [(LISTENER, "127.0.0.1", driven.peers[2].port)]
    if more:
        endpoints = [(LISTENER, "127.0.0.1", target.port), ("OTHER", "127.0.0.1", 1)]
    answer = driven.ask(asks.begin_request(driven, endpoints=endpoints))
    moved = answer.node_endpoints[0].port == target.port
    return f"{asks.in_words(answer, driven.epoch)} moved={moved}"


def wrong_cluster(ids: str, *asked: object) -> list[Case]:
    return [
        Case(ids, "fetching", build(cluster_id=cluster_id), "top INCONSISTENT_CLUSTER_ID")  # type: ignore[operator]
        for build in asked
        for cluster_id in ("another", "")
    ]


CHECKS = [
    *wrong_cluster("RPC-05", vote, begin, end),
    Case("RPC-05", "unattached", vote(cluster_id=None), "NONE granted leader=-1 epoch=E"),
    Case("RPC-05", "unattached", begin(cluster_id=None), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-05", "fetching", end(cluster_id=None), f"NONE {AT_2}"),
    *(
        Case("RPC-06", "unattached", build(**wrong), "top INVALID_REQUEST")
        for build in (vote, begin, end)
        for wrong in ({"topic": "orders"}, {"index": 1})
    ),
    Case("RPC-08", "fetching", vote(epoch=-1, log=(0, 0)), f"FENCED_LEADER_EPOCH refused {AT_2}"),
    Case("RPC-08", "fetching", begin(epoch=-1), f"FENCED_LEADER_EPOCH {AT_2}"),
    Case("RPC-08", "leader", end(epoch=-1), "FENCED_LEADER_EPOCH leader=1 epoch=E at=1"),
    Case("RPC-09", "unattached", vote(sender=-1), "INVALID_REQUEST refused leader=-1 epoch=E"),
    Case("RPC-09", "unattached", begin(leader=-1), "INVALID_REQUEST leader=-1 epoch=E"),
    Case("RPC-09", "fetching", end(leader=-1), f"INVALID_REQUEST {AT_2}"),
]

EPOCHS = [
    Case("RPC-12", "unattached", begin(), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-12", "leader", begin(epoch=1), "NONE leader=2 epoch=E+1 at=2", then="leader=2 epoch=E+1"),
    Case("RPC-12 RPC-40", "unattached", begin(version=0), f"NONE {FOLLOWS}", then=FOLLOWS),
    Case("RPC-12", "unattached", begin(endpoints=[]), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-13 CERR-35", "unattached", begin(voter=(ME, OTHER_DIRECTORY)), f"INVALID_VOTER_KEY {AT_2}", then=FOLLOWS),
    Case("RPC-14", "unattached", begin(voter=(-1, OTHER_DIRECTORY)), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-14", "unattached", begin(voter=(ME, Uuid.ZERO)), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-15", "fetching", lambda d: _fetches_begun(d, more=False), f"NONE {AT_2} moved=False"),
    Case("RPC-16", "fetching", lambda d: _fetches_begun(d, more=True), f"NONE {AT_2} moved=True"),
    Case("RPC-17", "leader", begin(leader=ME), "NONE leader=1 epoch=E at=1"),
    Case(
        "RPC-17",
        "leader",
        begin(leader=2),
        "INVALID_REQUEST leader=1 epoch=E at=1",
        only_ours="a second leader in its epoch ends Kafka's process; ours refuses and stays",
    ),
    Case(
        "RPC-10 RCFG-69",
        "unattached",
        lambda d: d.ask(asks.begin_request(d, leader=STRANGER, endpoints=[(LISTENER, "127.0.0.1", d.peers[3].port)])),
        "NONE leader=9 epoch=E at=9",
        then="leader=9 epoch=E",
    ),
    Case("RPC-10", "unattached", vote(sender=STRANGER), "NONE granted leader=-1 epoch=E"),
    *(
        Case(
            "RPC-10 RPC-19",
            "unattached",
            ask,
            "UNKNOWN_SERVER_ERROR leader=-1 epoch=E",
            only_ours="a leader that has no known address ends Kafka's process; ours refuses and stays",
        )
        for ask in (
            begin(leader=STRANGER),
            begin(leader=STRANGER, epoch=1),
            end(leader=STRANGER),
            end(leader=STRANGER, epoch=1),
        )
    ),
    Case("RPC-20 RPC-40", "fetching", end(version=0), f"NONE {FOLLOWS}"),
    Case("RPC-20", "unattached", end(), f"NONE {AT_2}", then=FOLLOWS),
    Case("RPC-20", "fetching", end(epoch=1), "NONE leader=2 epoch=E+1 at=2", then="leader=2 epoch=E+1"),
    Case(
        "CQ-14",
        "unattached",
        end(leader=STRANGER, endpoints=[(LISTENER, "127.0.0.1", 9)]),
        "NONE leader=9 epoch=E at=9",
        then="leader=9 epoch=E",
    ),
    Case("CQ-10 ENDP-14", "leader", begin_sent, "v1 meant=True own=True endpoints=True"),
    Case("CQ-12 CQ-13 CQ-14", None, end_sent, "v1 own=True preferred=[3, 2] keys=True endpoints=0", then="any"),
]

# While it is resigned: none of these moves it.
RESIGNED = [
    Case("PREV-19", None, vote(pre_vote=True), "NONE granted leader=1 epoch=E at=1", then="any"),
    Case("PREV-21", None, vote(pre_vote=True, log="behind"), "NONE refused leader=1 epoch=E at=1", then="any"),
    Case("VOTE-10", None, vote(log=(0, 0)), "NONE refused leader=1 epoch=E at=1", then="any"),
    Case("FTCH-11", None, fetch(), "NOT_LEADER_OR_FOLLOWER leader=1 epoch=E at=1", then="any"),
    Case(
        "SNAP-31",
        None,
        snapshot(snapshot=(100, 1)),
        "NOT_LEADER_OR_FOLLOWER leader=1 epoch=E at=1",
        then="any",
        kafka="top UNKNOWN_SERVER_ERROR",
    ),
    Case("CQ-12", None, end_repeated, "again=True"),
    Case("VOTE-11", None, vote(epoch=1), "NONE granted leader=-1 epoch=E+1", then="leader=-1 epoch=E+1"),
]
