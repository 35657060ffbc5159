"""Vote and pre-vote as each role answers them (areas 02 and 03 of docs/behaviours)."""

from __future__ import annotations

from interop.beside.case import OTHER_DIRECTORY, Case, steps, vote
from interop.beside.driven import ME, Driven


def pre_votes_asked(driven: Driven) -> str:
    """What a prospective replica asks the voters."""
    words = set()
    driven.be("prospective")
    for asked in driven.pre_votes_seen:
        one = asked.partition
        own = (one.replica_id, one.replica_directory_id) == (ME, driven.directory_id)
        peer = driven.peers[asked.request.voter_id]
        meant = one.voter_directory_id == peer.directory_id
        where = (one.last_offset_epoch, one.last_offset) == driven.log
        same_epoch = one.replica_epoch == driven.epoch
        words.add(f"v{asked.version} pre_vote={one.pre_vote} own={own} meant={meant} log={where} E={same_epoch}")
    return "; ".join(sorted(words))


OBSERVER = 9
WRONG_VOTER = (ME, OTHER_DIRECTORY)

PRE_VOTES = [
    Case("PREV-15", "leader", vote(pre_vote=True), "NONE refused leader=1 epoch=E at=1"),
    Case("PREV-16", "fetching", vote(pre_vote=True), "NONE refused leader=2 epoch=E at=2"),
    Case("PREV-17", "follower", vote(pre_vote=True, sender=3), "NONE granted leader=2 epoch=E at=2"),
    Case("PREV-18", "candidate", vote(pre_vote=True), "NONE granted leader=-1 epoch=E"),
    Case(
        "PREV-20",
        "unattached",
        steps(vote(pre_vote=True), vote(pre_vote=True, sender=3)),
        "NONE granted leader=-1 epoch=E",
    ),
    Case(
        "PREV-20", "voted", steps(vote(pre_vote=True), vote(pre_vote=True, sender=3)), "NONE granted leader=-1 epoch=E"
    ),
    Case(
        "PREV-20",
        "prospective",
        steps(vote(pre_vote=True), vote(pre_vote=True, sender=3)),
        "NONE granted leader=2 epoch=E at=2",
    ),
    Case("PREV-21", "follower", vote(pre_vote=True, log="behind"), "NONE refused leader=2 epoch=E at=2"),
    Case("PREV-21", "unattached", vote(pre_vote=True, log="behind"), "NONE refused leader=-1 epoch=E"),
    Case("PREV-21", "candidate", vote(pre_vote=True, log="behind"), "NONE refused leader=-1 epoch=E"),
    Case("PREV-21", "prospective", vote(pre_vote=True, log="behind"), "NONE refused leader=2 epoch=E at=2"),
    Case(
        "PREV-23",
        "fetching",
        vote(pre_vote=True, epoch=1),
        "NONE granted leader=-1 epoch=E+1",
        then="leader=-1 epoch=E+1",
    ),
    Case(
        "PREV-23",
        "leader",
        vote(pre_vote=True, epoch=1, log="behind"),
        "NONE refused leader=-1 epoch=E+1",
        then="leader=-1 epoch=E+1",
    ),
    Case(
        "PREV-24",
        "unattached",
        vote(pre_vote=True, epoch=-1, log=(0, 0)),
        "FENCED_LEADER_EPOCH refused leader=-1 epoch=E",
    ),
    Case(
        "PREV-24",
        "fetching",
        vote(pre_vote=True, epoch=-1, log=(0, 0)),
        "FENCED_LEADER_EPOCH refused leader=2 epoch=E at=2",
    ),
    Case(
        "PREV-25",
        "unattached",
        lambda d: vote(pre_vote=True, log=(d.epoch + 1, 100))(d),
        "INVALID_REQUEST refused leader=-1 epoch=E",
    ),
    Case(
        "PREV-25", "unattached", lambda d: vote(pre_vote=True, log=(d.epoch, 100))(d), "NONE granted leader=-1 epoch=E"
    ),
    Case(
        "PREV-26", "unattached", vote(pre_vote=True, epoch=1, log=(0, -1)), "INVALID_REQUEST refused leader=-1 epoch=E"
    ),
    Case(
        "PREV-26",
        "fetching",
        vote(pre_vote=True, epoch=1, log=(-1, 5)),
        "INVALID_REQUEST refused leader=2 epoch=E at=2",
    ),
    Case("PREV-27", "unattached", vote(pre_vote=True, sender=OBSERVER), "NONE granted leader=-1 epoch=E"),
    Case("PREV-27", "leader", vote(pre_vote=True, sender=OBSERVER), "NONE refused leader=1 epoch=E at=1"),
    Case(
        "PREV-28 CERR-35",
        "unattached",
        vote(pre_vote=True, voter=WRONG_VOTER),
        "INVALID_VOTER_KEY refused leader=-1 epoch=E",
    ),
    Case(
        "PREV-28",
        "unattached",
        vote(pre_vote=True, voter=(2, OTHER_DIRECTORY)),
        "INVALID_VOTER_KEY refused leader=-1 epoch=E",
    ),
    Case(
        "PREV-01",
        None,
        pre_votes_asked,
        "v2 pre_vote=True own=True meant=True log=True E=True",
        then="leader=2 epoch=E+1",
    ),
]

VOTES = [
    Case("VOTE-01 VOTE-03", "unattached", steps(vote(), vote(log="behind")), "NONE granted leader=-1 epoch=E"),
    Case("VOTE-02", "unattached", vote(log="behind"), "NONE refused leader=-1 epoch=E"),
    Case("VOTE-02", "unattached", steps(vote(log="behind"), vote(sender=3)), "NONE granted leader=-1 epoch=E"),
    Case("VOTE-04", "voted", vote(sender_directory=OTHER_DIRECTORY), "NONE refused leader=-1 epoch=E"),
    Case("VOTE-06", "voted", vote(sender=3), "NONE refused leader=-1 epoch=E"),
    Case("VOTE-07", "prospective", vote(sender=3), "NONE refused leader=2 epoch=E at=2"),
    Case("VOTE-08", "fetching", vote(sender=3), "NONE refused leader=2 epoch=E at=2"),
    Case("VOTE-08", "follower", vote(sender=3), "NONE refused leader=2 epoch=E at=2"),
    Case("VOTE-09", "candidate", vote(), "NONE refused leader=-1 epoch=E"),
    Case(
        "VOTE-09",
        "candidate",
        lambda d: vote(sender=ME, sender_directory=d.directory_id)(d),
        "NONE refused leader=-1 epoch=E",
    ),
    Case("VOTE-10", "leader", vote(epoch=0, log=(0, 0)), "NONE refused leader=1 epoch=E at=1"),
    Case("VOTE-11", "candidate", vote(epoch=1), "NONE granted leader=-1 epoch=E+1", then="leader=-1 epoch=E+1"),
    Case("VOTE-14", "prospective", vote(epoch=1), "NONE granted leader=-1 epoch=E+1", then="leader=-1 epoch=E+1"),
    Case("VOTE-16", "leader", vote(sender=OBSERVER, log=(0, 0)), "NONE refused leader=1 epoch=E at=1"),
    Case(
        "VOTE-16",
        "leader",
        vote(sender=OBSERVER, epoch=-1, log=(0, 0)),
        "FENCED_LEADER_EPOCH refused leader=1 epoch=E at=1",
    ),
    Case(
        "VOTE-17",
        "fetching",
        lambda d: vote(epoch=1, log=(d.epoch + 1, 100))(d),
        "INVALID_REQUEST refused leader=2 epoch=E at=2",
    ),
    Case("VOTE-17", "unattached", lambda d: vote(log=(d.epoch, 100))(d), "INVALID_REQUEST refused leader=-1 epoch=E"),
    Case(
        "VOTE-18",
        "fetching",
        vote(epoch=1, voter=WRONG_VOTER),
        "INVALID_VOTER_KEY refused leader=-1 epoch=E+1",
        then="leader=-1 epoch=E+1",
    ),
    Case(
        "VOTE-19",
        "unattached",
        steps(vote(version=0, voter=WRONG_VOTER), vote(sender_directory=OTHER_DIRECTORY)),
        "NONE granted leader=-1 epoch=E",
    ),
    Case(
        "VOTE-35 ENDP-12",
        "fetching",
        vote(version=0, epoch=-1, log=(0, 0)),
        "FENCED_LEADER_EPOCH refused leader=2 epoch=E",
    ),
    Case("VOTE-35 ENDP-11", "fetching", vote(version=1), "NONE refused leader=2 epoch=E at=2"),
    Case("ENDP-13", "unattached", vote(log="behind"), "NONE refused leader=-1 epoch=E"),
]
