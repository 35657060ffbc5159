------------------------------- MODULE Kraft --------------------------------
(***************************************************************************)
(* The protocol of kraftlog.raft as built: elections with Pre-Vote,        *)
(* replication by fetch with diverging epochs and truncation, the high     *)
(* watermark, voter sets that change one voter at a time and are in force  *)
(* as soon as they are in a log, leaders outside their voter set, crashes  *)
(* that lose what was not flushed, snapshots.                              *)
(*                                                                         *)
(* Messages. What was said is never unsaid: `reqs', `grants' and `fetches' *)
(* only grow, so every message may be lost, doubled, delayed and           *)
(* reordered. An answer to a fetch is no message of its own: it is some    *)
(* state that the leader of its epoch has had since, which `epochs' keeps  *)
(* after that leader is gone. That allows more answers than there are.     *)
(*                                                                         *)
(* Logs are sequences of blocks: the records of one epoch up to `end'      *)
(* (exclusive), a VotersRecord being a block of its own. A data record is  *)
(* known by its offset and epoch; that is enough while an epoch has one    *)
(* leader, which ElectionSafety says.                                      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Nil,            \* no replica
    IdOf(_)         \* the node id of a replica; a replaced disk makes a new replica of the same id

VARIABLES
    boot,           \* voter set of the 0-0 checkpoint, or the static one; never changes
    static,         \* kraft.version is 0 in the beginning: no log tells voters before it is raised; never changes
    epoch,          \* epoch, durable before anything is said in it
    role,
    leader,         \* who leads the epoch as far as known, itself when leader or resigned
    vote,           \* who has the vote of the epoch, durable
    heard,          \* follower: the leader answered since it is followed
    counted,        \* prospective, candidate: who granted
    log,            \* blocks
    flushed,        \* the log is durable up to here
    hw,             \* high watermark, 0 when unknown
    snap,           \* end of the newest checkpoint
    acked,          \* leader: how far each replica is, as its fetches tell
    reqs,           \* Vote requests: [from, epoch, pre, last, end]
    grants,         \* granted votes: [from, to, epoch, pre]
    fetches,        \* Fetch requests: [from, epoch, at, last]
    epochs,         \* for each epoch with a leader: [leader, start, log, hw]
    committed,      \* the longest log that any leader showed as committed
    quorum          \* the voter set that it counted when it did

vars == <<boot, static, epoch, role, leader, vote, heard, counted, log, flushed, hw, snap, acked,
          reqs, grants, fetches, epochs, committed, quorum>>

Replicas == DOMAIN epoch

Unattached == "unattached"  Prospective == "prospective"  Candidate == "candidate"
Leader == "leader"  Follower == "follower"  Resigned == "resigned"

-----------------------------------------------------------------------------
(* Logs *)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

End(L) == IF L = <<>> THEN 0 ELSE L[Len(L)].end
LastEpoch(L) == IF L = <<>> THEN 0 ELSE L[Len(L)].epoch

\* How many blocks end at or below an offset.
Below(L, offset) == Cardinality({k \in 1..Len(L) : L[k].end <= offset})

\* The records below an offset, and those from it on.
Cut(L, offset) ==
    IF End(L) <= offset THEN L
    ELSE LET k == Below(L, offset) IN
         IF offset = (IF k = 0 THEN 0 ELSE L[k].end) THEN SubSeq(L, 1, k)
         ELSE Append(SubSeq(L, 1, k), [L[k + 1] EXCEPT !.end = offset])
From(L, offset) == SubSeq(L, Below(L, offset) + 1, Len(L))

\* Data of one epoch is one block, however it was written.
Join(L, M) ==
    IF L # <<>> /\ M # <<>> /\ L[Len(L)].epoch = M[1].epoch /\ L[Len(L)].voters = {} /\ M[1].voters = {}
    THEN SubSeq(L, 1, Len(L) - 1) \o M
    ELSE L \o M
AddData(L, e, count) == IF count = 0 THEN L ELSE Join(L, <<[epoch |-> e, end |-> End(L) + count, voters |-> {}]>>)
AddVoters(L, e, V) == Append(L, [epoch |-> e, end |-> End(L) + 1, voters |-> V])

IsPrefix(L, M) == Cut(M, End(L)) = L

\* The largest epoch up to `e' and where it ends (LogState.end_offset_for_epoch).
EpochEnd(L, e) ==
    LET k == Cardinality({i \in 1..Len(L) : L[i].epoch <= e}) IN
    IF k = 0 THEN [epoch |-> e, end |-> 0] ELSE [epoch |-> L[k].epoch, end |-> L[k].end]

\* May a log that ends at `offset' with a record of epoch `last' be continued from L?
Continues(L, offset, last) ==
    \/ offset = 0
    \/ LET d == EpochEnd(L, last) IN d.epoch = last /\ d.end >= offset

\* Voter sets count as soon as they are in the log.
VotersAt(L) == LET ks == {k \in 1..Len(L) : L[k].voters # {}} IN
               IF ks = {} THEN 0 ELSE CHOOSE k \in ks : \A j \in ks : j <= k
VotersOf(L, B) == LET k == VotersAt(L) IN IF k = 0 THEN B ELSE L[k].voters
VotersEnd(L) == LET k == VotersAt(L) IN IF k = 0 THEN 0 ELSE L[k].end
Voters(n) == VotersOf(log[n], boot[n])
IsVoter(n) == n \in Voters(n)

IsMajority(S, V) == 2 * Cardinality(S \cap V) > Cardinality(V)

-----------------------------------------------------------------------------
(* The high watermark of a leader *)

\* What counts is more than half of the voters, beyond the first record of the own epoch.
Reached(V, a, start, old) ==
    LET good == {o \in {a[v] : v \in V \cap Replicas} : o > start /\ o > old /\ IsMajority({v \in V \cap Replicas : a[v] >= o}, V)} IN
    IF good = {} THEN old ELSE CHOOSE o \in good : \A p \in good : p <= o

\* Leader n has log L and knows `a' of the others: everything that follows from that.
Lead(n, L, a) ==
    LET V == VotersOf(L, boot[n])
        new == Reached(V, a, epochs[epoch[n]].start, hw[n]) IN
    /\ log' = [log EXCEPT ![n] = L]
    /\ acked' = [acked EXCEPT ![n] = a]
    /\ hw' = [hw EXCEPT ![n] = new]
    /\ epochs' = [epochs EXCEPT ![epoch[n]].log = L, ![epoch[n]].hw = new]
    /\ IF new > End(committed)
       THEN committed' = Cut(L, new) /\ quorum' = V
       ELSE UNCHANGED <<committed, quorum>>

-----------------------------------------------------------------------------
(* Changes of role *)

Enter(n, r, e, l, v) ==
    /\ role' = [role EXCEPT ![n] = r]
    /\ epoch' = [epoch EXCEPT ![n] = e]
    /\ leader' = [leader EXCEPT ![n] = l]
    /\ vote' = [vote EXCEPT ![n] = v]
    /\ heard' = [heard EXCEPT ![n] = FALSE]
    /\ counted' = [counted EXCEPT ![n] = IF r \in {Prospective, Candidate} THEN {n} ELSE {}]

SameLogs == UNCHANGED <<log, flushed, hw, snap, acked, epochs, committed, quorum>>
SameRoles == UNCHANGED <<role, epoch, leader, vote, counted>>
SameSaid == UNCHANGED <<reqs, grants, fetches>>

\* A timer is over: ask for pre-votes, in the same epoch.
BecomeProspective(n) ==
    /\ IsVoter(n)
    /\ \/ role[n] \in {Follower, Unattached, Candidate}
       \/ role[n] = Resigned /\ Voters(n) = {n}
    /\ Enter(n, Prospective, epoch[n], IF role[n] \in {Candidate, Resigned} THEN Nil ELSE leader[n], vote[n])
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* The vote goes into quorum-state with the epoch. Peers without Pre-Vote are asked for votes at once.
BecomeCandidate(n, old_peer) ==
    /\ role[n] = Prospective
    /\ old_peer \/ IsMajority(counted[n], Voters(n))
    /\ Enter(n, Candidate, epoch[n] + 1, Nil, n)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* The first record of an epoch is its LeaderChange; kraft.version and a voter set that no log has yet follow it.
FirstRecords(tells_voters) == IF tells_voters THEN 2 ELSE 1

BecomeLeader(n, tells_voters) ==
    /\ role[n] = Candidate
    /\ IsMajority(counted[n], Voters(n))
    /\ VotersEnd(log[n]) = 0 => tells_voters = ~static
    /\ LET data == AddData(log[n], epoch[n], FirstRecords(tells_voters))
           new == IF tells_voters THEN AddVoters(data, epoch[n], Voters(n)) ELSE data IN
       /\ log' = [log EXCEPT ![n] = new]
       /\ epochs' = (epoch[n] :> [leader |-> n, start |-> End(log[n]), log |-> new, hw |-> 0]) @@ epochs
    /\ Enter(n, Leader, epoch[n], n, Nil)
    /\ hw' = [hw EXCEPT ![n] = 0]
    /\ acked' = [acked EXCEPT ![n] = [m \in Replicas |-> 0]]
    /\ SameSaid /\ UNCHANGED <<boot, static, flushed, snap, committed, quorum>>

Resign(n) ==
    /\ role[n] = Leader
    /\ Enter(n, Resigned, epoch[n], n, Nil)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* It must not follow itself: the next epoch, without a vote.
LeaveResigned(n) ==
    /\ role[n] = Resigned
    /\ Enter(n, Unattached, epoch[n] + 1, Nil, Nil)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* Any message may tell of a higher epoch that somebody is in.
LearnEpoch(n, e) ==
    /\ e > epoch[n]
    /\ \E m \in Replicas : epoch[m] >= e
    /\ Enter(n, Unattached, e, Nil, Nil)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* Any message may tell who leads an epoch; without its address it cannot be followed.
LearnLeader(n, e, l, r) ==
    /\ r \in {Follower, Unattached}
    /\ l # n
    /\ e \in DOMAIN epochs /\ epochs[e].leader = l
    /\ \/ e > epoch[n]
       \/ e = epoch[n] /\ role[n] \in {Unattached, Prospective, Candidate} /\ leader[n] \in {Nil, l}
       \/ e = epoch[n] /\ role[n] = Follower /\ leader[n] = l /\ r = Follower
    /\ Enter(n, r, e, l, IF e = epoch[n] THEN vote[n] ELSE Nil)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* No majority would vote for it: the epoch stays, and the leader if one was known.
LosePreVote(n) ==
    /\ role[n] = Prospective
    /\ Enter(n, Unattached, epoch[n], leader[n], vote[n])
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

-----------------------------------------------------------------------------
(* Votes *)

\* What is said of the own log is durable first: it is already, or the disk is waited for.
Durably(n, waits) ==
    /\ waits \/ flushed[n] = End(log[n])
    /\ flushed' = [flushed EXCEPT ![n] = End(log[n])]
    /\ UNCHANGED <<log, hw, snap, acked, epochs, committed, quorum>>

\* The request says what the log holds.
AskForVotes(n, waits) ==
    /\ role[n] \in {Prospective, Candidate}
    /\ Durably(n, waits)
    /\ reqs' = reqs \cup {[from |-> n, epoch |-> epoch[n], pre |-> role[n] = Prospective,
                           last |-> LastEpoch(log[n]), end |-> End(log[n])]}
    /\ SameRoles /\ UNCHANGED <<boot, static, heard, grants, fetches>>

UpToDate(n, r) ==
    r.last > LastEpoch(log[n]) \/ (r.last = LastEpoch(log[n]) /\ r.end >= End(log[n]))

MayPreVote(n, r) ==
    /\ role[n] # Leader
    /\ role[n] = Follower => ~heard[n]
    /\ UpToDate(n, r)

MayVote(n, r) ==
    /\ IdOf(r.from) # IdOf(n)
    /\ role[n] \in {Unattached, Prospective}
    /\ IF vote[n] # Nil THEN vote[n] = r.from ELSE leader[n] = Nil /\ UpToDate(n, r)

\* A pre-vote changes nothing here; who votes has its vote on disk before it answers.
GrantPreVote(n, r) ==
    /\ r \in reqs /\ r.pre /\ r.epoch = epoch[n]
    /\ MayPreVote(n, r)
    /\ grants' = grants \cup {[from |-> n, to |-> r.from, epoch |-> r.epoch, pre |-> TRUE]}
    /\ SameRoles /\ SameLogs /\ UNCHANGED <<boot, static, heard, reqs, fetches>>

GrantVote(n, r) ==
    /\ r \in reqs /\ ~r.pre /\ r.epoch = epoch[n]
    /\ MayVote(n, r)
    /\ grants' = grants \cup {[from |-> n, to |-> r.from, epoch |-> r.epoch, pre |-> FALSE]}
    /\ IF vote[n] = Nil THEN Enter(n, role[n], epoch[n], Nil, r.from) ELSE UNCHANGED heard /\ SameRoles
    /\ SameLogs /\ UNCHANGED <<boot, static, reqs, fetches>>

CountVote(n, m) ==
    /\ role[n] \in {Prospective, Candidate}
    /\ m \in Voters(n) \ counted[n]
    /\ [from |-> m, to |-> n, epoch |-> epoch[n], pre |-> role[n] = Prospective] \in grants
    /\ counted' = [counted EXCEPT ![n] = @ \cup {m}]
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static, role, epoch, leader, vote, heard>>

-----------------------------------------------------------------------------
(* What a leader does *)

\* A leader whose removal is committed appends nothing any more.
MayAppend(n) == role[n] = Leader /\ ~(~IsVoter(n) /\ VotersEnd(log[n]) <= hw[n])

AppendRecords(n, count) ==
    /\ MayAppend(n) /\ count > 0
    /\ Lead(n, AddData(log[n], epoch[n], count), acked[n])
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, heard, flushed, snap>>

\* One change at a time, none before something of this epoch is committed.
MayChangeVoters(n) == MayAppend(n) /\ hw[n] > 0 /\ VotersEnd(log[n]) <= hw[n]

IsStep(V, W) ==
    \/ V = W
    \/ \E m \in W \ V : W = V \cup {m} /\ \A v \in V : IdOf(v) # IdOf(m)
    \/ \E m \in V \ W : V = W \cup {m} /\ W # {}

ChangeVoters(n, data, V) ==
    /\ MayChangeVoters(n)
    /\ IsStep(Voters(n), V)
    /\ (static /\ VotersEnd(log[n]) = 0) => data = 1 /\ V = Voters(n) \* that raises kraft.version
    /\ Lead(n, AddVoters(AddData(log[n], epoch[n], data), epoch[n], V), acked[n])
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, heard, flushed, snap>>

\* A valid fetch says how far its sender's log is durable, and that what is before is the same.
TakeFetch(n, f) ==
    /\ role[n] = Leader
    /\ f \in fetches /\ f.from # n /\ f.epoch = epoch[n]
    /\ Continues(log[n], f.at, f.last) /\ f.at <= End(log[n])
    /\ Lead(n, log[n], [acked[n] EXCEPT ![f.from] = f.at])
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, heard, flushed, snap>>

\* The disk answered. A leader counts its own log as far as it is durable.
Flush(n, end) ==
    /\ flushed[n] <= end /\ end <= End(log[n])
    /\ flushed' = [flushed EXCEPT ![n] = end]
    /\ IF role[n] = Leader
       THEN Lead(n, log[n], [acked[n] EXCEPT ![n] = end])
       ELSE UNCHANGED <<log, hw, acked, epochs, committed, quorum>>
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, heard, snap>>

-----------------------------------------------------------------------------
(* What a follower does *)

\* Whoever has no leader asks around; the leader of the epoch takes that for a fetch too.
SendFetch(n, waits) ==
    /\ role[n] \in {Follower, Unattached}
    /\ Durably(n, waits)
    /\ fetches' = fetches \cup {[from |-> n, epoch |-> epoch[n], at |-> End(log[n]), last |-> LastEpoch(log[n])]}
    /\ SameRoles /\ UNCHANGED <<boot, static, heard, reqs, grants>>

Followed(n) == epochs[epoch[n]]
Hears(n) == heard' = [heard EXCEPT ![n] = TRUE]

\* The leader answered with its records up to `end', and a high watermark that makes the own one h.
Fetched(n, end, h) ==
    /\ role[n] = Follower
    /\ LET L == Followed(n).log IN
       /\ Continues(L, End(log[n]), LastEpoch(log[n]))
       /\ End(log[n]) <= end /\ end <= End(L)
       /\ log' = [log EXCEPT ![n] = IF end = End(@) THEN @ ELSE Join(@, From(Cut(L, end), End(@)))]
    /\ h = hw[n] \/ (h > hw[n] /\ h <= Min(Followed(n).hw, end))
    /\ hw' = [hw EXCEPT ![n] = h]
    /\ Hears(n)
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, flushed, snap, acked, epochs, committed, quorum>>

\* The leader answered that it has no such record: cut at the smaller of both ends of its epoch. Without that epoch the
\* leader's end may lie within a batch of another one: cut at the own end of that, and ask again.
Truncate(n, end) ==
    /\ role[n] = Follower
    /\ LET L == Followed(n).log
           d == EpochEnd(L, LastEpoch(log[n]))
           own == EpochEnd(log[n], d.epoch) IN
       /\ ~Continues(L, End(log[n]), LastEpoch(log[n]))
       /\ end = IF own.epoch = d.epoch THEN Min(own.end, d.end) ELSE own.end
    /\ log' = [log EXCEPT ![n] = Cut(@, end)]
    /\ flushed' = [flushed EXCEPT ![n] = Min(@, end)]
    /\ Hears(n)
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, hw, snap, acked, epochs, committed, quorum>>

\* The leader no longer has what would come next: its snapshot takes the place of the log.
LoadSnapshot(n, end) ==
    /\ role[n] = Follower
    /\ End(log[n]) < end \/ ~Continues(Followed(n).log, End(log[n]), LastEpoch(log[n]))
    /\ hw[n] <= end /\ end <= End(committed) /\ end <= End(Followed(n).log)
    /\ log' = [log EXCEPT ![n] = Cut(committed, end)]
    /\ flushed' = [flushed EXCEPT ![n] = end]
    /\ snap' = [snap EXCEPT ![n] = end]
    /\ hw' = [hw EXCEPT ![n] = end]
    /\ Hears(n)
    /\ SameRoles /\ SameSaid /\ UNCHANGED <<boot, static, acked, epochs, committed, quorum>>

\* The leader answered with something that changes nothing, as the first pieces of a snapshot.
HearLeader(n) ==
    /\ role[n] = Follower /\ Hears(n)
    /\ SameRoles /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* An observer follows on without its leader, but for those who ask it for a pre-vote.
MissLeader(n) ==
    /\ role[n] = Follower /\ ~IsVoter(n) /\ heard[n]
    /\ heard' = [heard EXCEPT ![n] = FALSE]
    /\ SameRoles /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

\* Of what was applied; who leads, or led in vain, has applied more than it may show.
TakeSnapshot(n, end) ==
    /\ snap[n] < end /\ end <= End(log[n])
    /\ end <= End(committed) /\ IsPrefix(Cut(log[n], end), committed)
    /\ snap' = [snap EXCEPT ![n] = end]
    /\ SameRoles /\ SameSaid
    /\ UNCHANGED <<boot, static, heard, log, flushed, hw, acked, epochs, committed, quorum>>

-----------------------------------------------------------------------------
(* Crashes. What was not flushed may be lost, also in part; quorum-state is as it was when something was last said. *)

RestartedRole(n, V) ==
    IF leader[n] = n THEN Resigned
    ELSE IF vote[n] = n /\ leader[n] = Nil /\ n \in V THEN Candidate
    ELSE IF leader[n] # Nil /\ leader[n] \in V THEN Follower
    ELSE Unattached

StoredVote(n) == vote[n]

Restart(n, end) ==
    LET L == IF end <= End(log[n]) THEN Cut(log[n], end) ELSE Cut(committed, end) IN
    /\ \/ flushed[n] <= end /\ end <= End(log[n]) /\ snap[n] <= end
       \/ flushed[n] < snap[n] /\ end = snap[n]  \* what is committed need not be durable here, a checkpoint of it is
    /\ log' = [log EXCEPT ![n] = L]
    /\ flushed' = [flushed EXCEPT ![n] = end]
    /\ hw' = [hw EXCEPT ![n] = snap[n]]
    /\ Enter(n, RestartedRole(n, VotersOf(L, boot[n])), epoch[n], leader[n], StoredVote(n))
    /\ SameSaid /\ UNCHANGED <<boot, static, snap, acked, epochs, committed, quorum>>

-----------------------------------------------------------------------------
(* Invariants; the names are those of the conformance area INV *)

\* INV-01. Both leaders would be in `epochs', where the later one took the place of the first.
ElectionSafety == \A n \in Replicas : role[n] = Leader => epochs[epoch[n]].leader = n

\* INV-02
VotesAreUnique == \A g, h \in grants : (~g.pre /\ ~h.pre /\ g.from = h.from /\ g.epoch = h.epoch) => g.to = h.to

\* INV-05, INV-10
HighWatermarkInLog == \A n \in Replicas : hw[n] <= End(log[n])

\* INV-06: what is committed is durable on a majority of those that were counted.
CommittedIsDurable ==
    quorum # {} => IsMajority({n \in quorum \cap Replicas :
        flushed[n] >= End(committed) /\ IsPrefix(committed, log[n])}, quorum)

\* INV-07: the leader of the newest epoch has everything that any leader committed.
LeaderCompleteness ==
    \A n \in Replicas : (role[n] = Leader /\ \A e \in DOMAIN epochs : e <= epoch[n]) => IsPrefix(committed, log[n])

\* INV-08, INV-12: what a replica knows as committed is the same on all.
StateMachineSafety == \A n \in Replicas : hw[n] <= End(committed) /\ IsPrefix(Cut(log[n], hw[n]), committed)

\* INV-09: where two logs have a record of the same epoch at the same offset, all before it is the same.
Common(L, M) ==
    LET same == {Min(L[i].end, M[j].end) : <<i, j>> \in {p \in (1..Len(L)) \X (1..Len(M)) :
                    /\ L[p[1]].epoch = M[p[2]].epoch
                    /\ Max(IF p[1] = 1 THEN 0 ELSE L[p[1] - 1].end, IF p[2] = 1 THEN 0 ELSE M[p[2] - 1].end)
                       < Min(L[p[1]].end, M[p[2]].end)}} IN
    IF same = {} THEN 0 ELSE CHOOSE o \in same : \A p \in same : p <= o
LogMatching == \A n, m \in Replicas : LET o == Common(log[n], log[m]) IN Cut(log[n], o) = Cut(log[m], o)

\* INV-14
EpochsRise == \A n \in Replicas : /\ \A k \in 2..Len(log[n]) : log[n][k - 1].epoch <= log[n][k].epoch
                                  /\ LastEpoch(log[n]) <= epoch[n]

\* INV-20, INV-21: on a leader, at most the last voter set is not committed, and neighbours differ by one voter.
VoterSets(n) == {k \in 1..Len(log[n]) : log[n][k].voters # {}}
OneChangeAtATime ==
    \A n \in Replicas :
        /\ role[n] = Leader /\ hw[n] > 0 => Cardinality({k \in VoterSets(n) : log[n][k].end > hw[n]}) <= 1
        /\ \A k \in VoterSets(n) :
               LET before == VotersOf(SubSeq(log[n], 1, k - 1), boot[n]) IN
               before # {} => IsStep(before, log[n][k].voters)

\* INV-29
RolesAreRight ==
    \A n \in Replicas :
        /\ role[n] = Follower => leader[n] \notin {Nil, n}
        /\ role[n] \in {Prospective, Candidate} => IsVoter(n)
        /\ leader[n] = n => role[n] \in {Leader, Resigned}

Safe == /\ ElectionSafety /\ VotesAreUnique /\ HighWatermarkInLog /\ CommittedIsDurable /\ LeaderCompleteness
        /\ StateMachineSafety /\ LogMatching /\ EpochsRise /\ OneChangeAtATime /\ RolesAreRight

-----------------------------------------------------------------------------
(* Where everything begins, and what may happen next *)

Begin(B, is_static) ==
    /\ boot = B
    /\ static = is_static
    /\ epoch = [n \in DOMAIN B |-> 0]
    /\ role = [n \in DOMAIN B |-> Unattached]
    /\ leader = [n \in DOMAIN B |-> Nil]
    /\ vote = [n \in DOMAIN B |-> Nil]
    /\ heard = [n \in DOMAIN B |-> FALSE]
    /\ counted = [n \in DOMAIN B |-> {}]
    /\ log = [n \in DOMAIN B |-> <<>>]
    /\ flushed = [n \in DOMAIN B |-> 0]
    /\ hw = [n \in DOMAIN B |-> 0]
    /\ snap = [n \in DOMAIN B |-> 0]
    /\ acked = [n \in DOMAIN B |-> [m \in DOMAIN B |-> 0]]
    /\ reqs = {} /\ grants = {} /\ fetches = {}
    /\ epochs = <<>>
    /\ committed = <<>>
    /\ quorum = {}
=============================================================================
