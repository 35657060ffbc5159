----------------------------- MODULE Partition ------------------------------
(***************************************************************************)
(* Replication of one topic partition as kraftlog builds it: leaders and   *)
(* followers (rust/kraftlog-path/src/core, partition), replica fetchers    *)
(* (kraftlog.partition) and the partition's part of the controller         *)
(* (kraftlog.controller). KIP-101, 279, 320, 497, 841, 903, 966.           *)
(*                                                                         *)
(* The metadata log is one sequence, `said': Kraft.tla is about that.      *)
(* Brokers learn its versions late, and may skip some.                     *)
(*                                                                         *)
(* Fetches are never unsaid: they may be late and come twice. An answer    *)
(* to a fetch is anything that the leader of the epoch has had since,      *)
(* which `epochs' keeps after that leader is gone. A leader has one        *)
(* AlterPartition request at a time; it may be decided after its sender    *)
(* has forgotten it, or died.                                              *)
(*                                                                         *)
(* A log is the sequence of the epochs of its records: offset and epoch    *)
(* name a record, while an epoch has one leader (OneLeaderPerEpoch).       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Nil,            \* no broker, nothing
    MinIsr,         \* min.insync.replicas, at most the number of replicas
    FlushOnAck,     \* log.flush.on.ack: what is acknowledged is durable
    Elr,            \* eligible.leader.replicas.version is 1
    Unclean,        \* unclean.leader.election.enable
    Sent(_, _),     \* the fetches that may still arrive, when there is one more
    Publish(_, _),  \* the versions of the metadata that may still be learned, when there is one more
    Waits           \* leaders may wait for replicas outside the in-sync set, as long as they are nearly in sync

VARIABLES
    said,           \* the metadata: versions of [leader, epoch, change, isr, elr, lastKnown]
    active,         \* brokers that are registered, not fenced and not about to stop
    life,           \* broker epoch: counts the registrations of a broker
    state,          \* "up", "stopped" (cleanly), "crashed"
    at,             \* which version a broker has learned last
    known,          \* what a broker knows of the partition; a leader also by answers to AlterPartition
    log,
    flushed,        \* the log is durable up to here
    hw,             \* high watermark
    ends,           \* leader: for each replica the end and broker epoch of its last fetch, -1 and 0 before any
    joins,          \* leader: who is about to join the in-sync set
    waiting,        \* leader: whether a change of the in-sync set is in flight
    asked,          \* AlterPartition: [by, life, epoch, change, isr, lives, answer], or Nil
    fetches,        \* [from, life, epoch, at, last]
    epochs,         \* for each epoch that has begun: [leader, start, log, hw]
    committed,      \* the longest log that any leader showed as committed
    unclean         \* whether an election was declared unclean

meta == said[Len(said)]
vars == <<said, active, life, state, at, known, log, flushed, hw, ends, joins, waiting, asked, fetches, epochs,
          committed, unclean>>

Brokers == DOMAIN log

-----------------------------------------------------------------------------
(* Logs *)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Greatest(S) == CHOOSE x \in S : \A y \in S : x >= y

End(L) == Len(L)
Cut(L, end) == SubSeq(L, 1, Min(end, Len(L)))
LastEpoch(L) == IF L = <<>> THEN 0 ELSE L[Len(L)]
IsPrefix(L, M) == Len(L) <= Len(M) /\ Cut(M, Len(L)) = L

\* The largest epoch up to `e' and where it ends (Log.end_offset_for_epoch).
EpochEnd(L, e) ==
    LET k == Cardinality({i \in 1..Len(L) : L[i] <= e}) IN
    IF k = 0 THEN [epoch |-> e, end |-> 0] ELSE [epoch |-> L[k], end |-> k]

\* May a log that ends at `end' with a record of epoch `last' be continued from L?
Continues(L, end, last) ==
    \/ end = 0
    \/ LET d == EpochEnd(L, last) IN d.epoch = last /\ d.end >= end

-----------------------------------------------------------------------------
(* The controller *)

\* Who may lead, and whether that is declared unclean (PartitionChange._elect).
Elected(m, isr, elr, candidates, prefer) ==
    LET valid == (IF isr # {} THEN isr ELSE elr) \cap candidates
        Clean(S) == {[leader |-> b, is_unclean |-> FALSE] : b \in S}
        Dirty(S) == {[leader |-> b, is_unclean |-> TRUE] : b \in S} IN
    IF prefer \in valid THEN Clean({prefer})
    ELSE IF m.leader \in valid THEN Clean({m.leader})
    ELSE IF valid # {} THEN Clean(valid)
    ELSE IF Elr /\ isr = {} /\ elr = {} /\ m.lastKnown # {} /\ m.lastKnown \subseteq candidates THEN Dirty(m.lastKnown)
    ELSE IF Unclean /\ candidates # {} THEN Dirty(candidates)
    ELSE Clean({Nil})

\* Replicas outside the in-sync set that have all that is committed (PartitionChange._eligible_leader_replicas).
Eligible(m, isr, lost) ==
    IF ~Elr THEN m.elr
    ELSE IF Cardinality(isr) >= MinIsr THEN {}
    ELSE (m.elr \cup m.isr) \ (isr \cup lost)

\* A leader from outside the in-sync set is its only member: nobody else is known to have what it has.
IsAlone(e, is_eligible) == e.is_unclean \/ is_eligible

\* After an unclean election nobody is eligible: those who were may have what the leader lacks, and lack what it appends.
LeftEligible(e, elr) == IF e.is_unclean \/ ~Elr THEN {} ELSE elr \ {e.leader}

\* The partition after a change, for each leader that it may get (PartitionChange.build).
Changed(m, isr, lost, candidates, prefer) ==
    LET elr == Eligible(m, isr, lost)
        After(e) ==
            LET is_new == e.leader # m.leader
                is_eligible == is_new /\ e.leader \in elr
                new_isr == IF is_new /\ IsAlone(e, is_eligible) THEN {e.leader} ELSE isr IN
            [leader |-> e.leader,
             epoch |-> IF is_new THEN m.epoch + 1 ELSE m.epoch,
             change |-> m.change,
             isr |-> IF new_isr = {} /\ ~Elr THEN m.isr ELSE new_isr,
             elr |-> LeftEligible(e, elr),
             lastKnown |-> IF ~is_new \/ ~Elr THEN m.lastKnown
                           ELSE IF e.leader # Nil THEN {}
                           ELSE IF m.lastKnown = {} THEN {m.leader} ELSE m.lastKnown] IN
    {[after |-> IF After(e) = m THEN m ELSE [After(e) EXCEPT !.change = m.change + 1],
      is_unclean |-> e.is_unclean /\ e.leader # m.leader] : e \in Elected(m, isr, elr, candidates, prefer)}

\* The controller writes one of those changes, if it is one.
Write(c) ==
    /\ said' = IF c.after = meta THEN said ELSE Publish(said, c.after)
    /\ unclean' = (unclean \/ c.is_unclean)

SameMeta == UNCHANGED <<said, unclean>>
SameBrokers == UNCHANGED <<active, life, state>>
SameReplicas == UNCHANGED <<at, known, log, flushed, hw, ends, joins, waiting, epochs, committed>>

\* A session has ended, a shutdown begins, or a process is found dead. The broker itself may know nothing of it.
Fence(b) ==
    /\ b \in active
    /\ active' = active \ {b}
    /\ IF b \in meta.isr
       THEN \E c \in Changed(meta, meta.isr \ {b}, {}, active \ {b}, Nil) : Write(c)
       ELSE SameMeta
    /\ SameReplicas /\ UNCHANGED <<life, state, asked, fetches>>

\* A heartbeat of a broker that has caught up. Partitions without a leader look for one.
Unfence(b) ==
    /\ state[b] = "up" /\ b \notin active
    /\ active' = active \cup {b}
    /\ IF meta.leader = Nil
       THEN \E c \in Changed(meta, meta.isr, {}, active \cup {b}, Nil) : Write(c)
       ELSE SameMeta
    /\ SameReplicas /\ UNCHANGED <<life, state, asked, fetches>>

\* A process begins: its earlier life leaves the in-sync set and, if it ended uncleanly, the eligible replicas.
Lost(b) == IF state[b] = "crashed" THEN {b} ELSE {}
Register(b) ==
    /\ state[b] # "up"
    /\ life' = [life EXCEPT ![b] = @ + 1]
    /\ state' = [state EXCEPT ![b] = "up"]
    /\ active' = active \ {b}
    /\ IF b \in meta.isr \/ (Elr /\ b \in meta.elr /\ Lost(b) # {})
       THEN \E c \in Changed(meta, meta.isr \ {b}, Lost(b), active \ {b}, Nil) : Write(c)
       ELSE SameMeta
    /\ at' = [at EXCEPT ![b] = Len(said')] \* metadata of before its registration is not acted upon
    /\ UNCHANGED <<known, log, flushed, hw, ends, joins, waiting, asked, fetches, epochs, committed>>

\* An election that somebody asks for, or one that the controller looks for now and then.
Elect(b) ==
    /\ meta.leader # b
    /\ \E c \in Changed(meta, meta.isr, {}, active, b) : c.after.leader = b /\ Write(c)
    /\ SameBrokers /\ SameReplicas /\ UNCHANGED <<asked, fetches>>

\* What the controller answers to a change of the in-sync set (IsrControl._refusal).
IsKnown(r) == r.life = life[r.by] /\ r.epoch = meta.epoch /\ r.by = meta.leader
IsCurrent(r) == r.change = meta.change
IsEligible(c, of) == c \in active /\ of \in {0, life[c]}
AreEligible(r) == \A c \in r.isr : IsEligible(c, r.lives[c])

AlterPartition(b) ==
    /\ asked[b] # Nil /\ asked[b].answer = "none"
    /\ LET r == asked[b] IN
       IF ~IsKnown(r) \/ ~IsCurrent(r)
       THEN SameMeta /\ asked' = [asked EXCEPT ![b] = Nil] \* the metadata is about to say what holds
       ELSE IF ~AreEligible(r)
       THEN SameMeta /\ asked' = [asked EXCEPT ![b].answer = "refused"]
       ELSE \E c \in Changed(meta, r.isr, {}, active, Nil) :
                /\ Write(c)
                /\ asked' = [asked EXCEPT ![b].answer = "done", ![b].change = c.after.change]
    /\ SameBrokers /\ SameReplicas /\ UNCHANGED fetches

-----------------------------------------------------------------------------
(* The leader *)

IsUp(b) == state[b] = "up" /\ known[b] # Nil
IsLeader(b) == IsUp(b) /\ known[b].leader = b
IsFollower(b) == IsUp(b) /\ known[b].leader \notin {b, Nil}
Start(b) == epochs[known[b].epoch].start

\* The members that count: those confirmed, and one that is about to join (PartitionCore::maximal_isr).
MaximalIsr(k, joining) == k.isr \cup joining

\* KIP-966: nothing is committed with fewer members, so that those which left lately have all that is.
MayCommit(k) == Cardinality(k.isr) >= MinIsr

WaitedFor(maximal) == IF Waits THEN SUBSET (Brokers \ maximal) ELSE {{}}

\* Leader b, which knows k, has log L, durable up to `fl', and knows E of the others: everything that follows from that.
Lead(b, k, L, fl, E, joining, start) ==
    \E S \in WaitedFor(MaximalIsr(k, joining)) :
        LET own == IF FlushOnAck THEN fl ELSE End(L)
            reached == Least({own} \cup {E[c].end : c \in (MaximalIsr(k, joining) \cup S) \ {b}})
            new == IF MayCommit(k) THEN Max(hw[b], reached) ELSE hw[b] IN
        /\ known' = [known EXCEPT ![b] = k]
        /\ log' = [log EXCEPT ![b] = L]
        /\ flushed' = [flushed EXCEPT ![b] = fl]
        /\ ends' = [ends EXCEPT ![b] = E]
        /\ joins' = [joins EXCEPT ![b] = joining]
        /\ hw' = [hw EXCEPT ![b] = new]
        /\ epochs' = (k.epoch :> [leader |-> b, start |-> start, log |-> L, hw |-> new]) @@ epochs
        /\ committed' = IF new > End(committed) THEN Cut(L, new) ELSE committed

Nothing == [c \in Brokers |-> [end |-> -1, life |-> 0]]

\* A leader that is elected again keeps what it knows of the others if nobody can have led in between.
Renews(k, m) == k.leader = m.leader /\ m.epoch <= k.epoch + 1

\* Metadata of the same partition epoch says nothing new: what is in flight stays in flight.
IsNew(k, m) == k = Nil \/ m.epoch > k.epoch \/ (m.epoch = k.epoch /\ m.change > k.change)

\* Metadata arrives (PartitionCore::handle_assignment).
Learn(b, v) ==
    /\ state[b] = "up"
    /\ v >= at[b]
    /\ at' = [at EXCEPT ![b] = v]
    /\ LET m == said[v]
           k == known[b] IN
       IF ~IsNew(k, m) THEN
            /\ IF IsLeader(b)
               THEN Lead(b, k, log[b], flushed[b], ends[b], joins[b], Start(b)) \* it looks at the high watermark again
               ELSE UNCHANGED <<known, log, flushed, hw, ends, joins, epochs, committed>>
            /\ UNCHANGED waiting
       ELSE /\ waiting' = [waiting EXCEPT ![b] = FALSE]
            /\ IF m.leader = b
               THEN LET was == k # Nil /\ k.leader = b IN
                    Lead(b, m, log[b], flushed[b],
                         IF was /\ Renews(k, m) THEN ends[b] ELSE Nothing, {},
                         IF was /\ k.epoch = m.epoch THEN Start(b) ELSE End(log[b]))
               ELSE /\ known' = [known EXCEPT ![b] = m]
                    /\ ends' = [ends EXCEPT ![b] = Nothing]
                    /\ joins' = [joins EXCEPT ![b] = {}]
                    /\ UNCHANGED <<log, flushed, hw, epochs, committed>>
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<asked, fetches>>

\* A client's records. Those with acks=all need enough members, those with acks=1 do not.
AppendRecords(b, count) ==
    /\ IsLeader(b)
    /\ Lead(b, known[b], log[b] \o [i \in 1..count |-> known[b].epoch], flushed[b], ends[b], joins[b], Start(b))
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, waiting, asked, fetches>>

\* Time has passed, or brokers have come or gone: the leader waits for others now.
LookAgain(b) ==
    /\ Waits /\ IsLeader(b)
    /\ Lead(b, known[b], log[b], flushed[b], ends[b], joins[b], Start(b))
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, waiting, asked, fetches>>

\* The disk answered.
Flush(b, end) ==
    /\ state[b] = "up" /\ flushed[b] < end /\ end <= End(log[b])
    /\ IF IsLeader(b)
       THEN Lead(b, known[b], log[b], end, ends[b], joins[b], Start(b))
       ELSE flushed' = [flushed EXCEPT ![b] = end] /\ UNCHANGED <<known, log, hw, ends, joins, epochs, committed>>
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, waiting, asked, fetches>>

Ask(b, isr, E) ==
    asked' = [asked EXCEPT ![b] =
        [by |-> b, life |-> life[b], epoch |-> known[b].epoch, change |-> known[b].change, isr |-> isr,
         lives |-> [c \in isr |-> IF c = b THEN life[b] ELSE E[c].life], answer |-> "none"]]

\* Whether a follower may be proposed as a member (PartitionCore::propose_expand).
IsInSync(b, end) == end >= hw[b] /\ end >= Start(b)

\* Whether a fetch belongs to the epoch that b leads (KIP-320).
IsOfEpoch(b, f) == f.epoch = known[b].epoch

\* A follower's fetch tells how far it is. It may be proposed as a member (PartitionCore::on_follower_fetch).
TakeFetch(b, f, is_proposed) ==
    /\ IsLeader(b)
    /\ f \in fetches /\ f.from # b /\ IsOfEpoch(b, f)
    /\ Continues(log[b], f.at, f.last) /\ f.at <= End(log[b])
    /\ LET E == [ends[b] EXCEPT ![f.from] = [end |-> f.at, life |-> f.life]] IN
       /\ IF is_proposed
          THEN /\ ~waiting[b] /\ f.from \notin known[b].isr /\ IsInSync(b, f.at)
               /\ Ask(b, known[b].isr \cup {f.from}, E)
          ELSE UNCHANGED asked
       /\ Lead(b, known[b], log[b], flushed[b], E, IF is_proposed THEN {f.from} ELSE joins[b], Start(b))
       /\ waiting' = [waiting EXCEPT ![b] = @ \/ is_proposed]
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, fetches>>

\* Members fell behind.
ProposeShrink(b, isr) ==
    /\ IsLeader(b) /\ ~waiting[b]
    /\ isr \subseteq known[b].isr /\ isr # known[b].isr /\ b \in isr
    /\ Ask(b, isr, ends[b])
    /\ waiting' = [waiting EXCEPT ![b] = TRUE]
    /\ SameMeta /\ SameBrokers
    /\ UNCHANGED <<at, known, log, flushed, hw, ends, joins, fetches, epochs, committed>>

\* The controller's answer arrives, if somebody still waits for it.
TakeAnswer(b) ==
    /\ IsLeader(b) /\ waiting[b]
    /\ asked[b] # Nil /\ asked[b].answer # "none"
    /\ LET r == asked[b]
           k == IF r.answer = "done" THEN [known[b] EXCEPT !.isr = r.isr, !.change = r.change] ELSE known[b] IN
       /\ r.epoch = known[b].epoch
       /\ Lead(b, k, log[b], flushed[b], ends[b], {}, Start(b))
    /\ waiting' = [waiting EXCEPT ![b] = FALSE]
    /\ asked' = [asked EXCEPT ![b] = Nil]
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, fetches>>

\* A refusal got lost: the same change is asked for again.
AskAgain(b) ==
    /\ IsLeader(b) /\ waiting[b]
    /\ asked[b] # Nil /\ asked[b].answer = "refused"
    /\ asked' = [asked EXCEPT ![b].answer = "none"]
    /\ SameMeta /\ SameBrokers /\ SameReplicas /\ UNCHANGED fetches

-----------------------------------------------------------------------------
(* A follower *)

\* The next fetch acknowledges what is before it: that is durable, or the disk is waited for.
SendFetch(b, waits) ==
    /\ IsFollower(b)
    /\ FlushOnAck => waits \/ flushed[b] = End(log[b])
    /\ flushed' = [flushed EXCEPT ![b] = IF FlushOnAck THEN End(log[b]) ELSE @]
    /\ fetches' = Sent(fetches, [from |-> b, life |-> life[b], epoch |-> known[b].epoch, at |-> End(log[b]),
                                 last |-> LastEpoch(log[b])])
    /\ SameMeta /\ SameBrokers /\ UNCHANGED <<at, known, log, hw, ends, joins, waiting, asked, epochs, committed>>

Followed(b) == epochs[known[b].epoch]
IsFollowing(b) == IsFollower(b) /\ known[b].epoch \in DOMAIN epochs

\* The leader answered with its records up to `end'. The high watermark follows the leader's, also back.
Fetched(b, end, h) ==
    /\ IsFollowing(b)
    /\ LET L == Followed(b).log IN
       /\ Continues(L, End(log[b]), LastEpoch(log[b]))
       /\ End(log[b]) <= end /\ end <= End(L)
       /\ log' = [log EXCEPT ![b] = @ \o SubSeq(L, End(@) + 1, end)]
    /\ 0 <= h /\ h <= Min(Followed(b).hw, end)
    /\ hw' = [hw EXCEPT ![b] = h]
    /\ SameMeta /\ SameBrokers
    /\ UNCHANGED <<at, known, flushed, ends, joins, waiting, asked, fetches, epochs, committed>>

\* The leader answered that it has no such record (kraftlog.partition.replica_fetcher.truncation_offset).
CutAt(b, L) ==
    LET d == EpochEnd(L, LastEpoch(log[b]))
        own == EpochEnd(log[b], d.epoch) IN
    IF own.epoch = d.epoch THEN Min(own.end, d.end) ELSE own.end

Truncate(b, end) ==
    /\ IsFollowing(b)
    /\ ~Continues(Followed(b).log, End(log[b]), LastEpoch(log[b]))
    /\ end = CutAt(b, Followed(b).log)
    /\ log' = [log EXCEPT ![b] = Cut(@, end)]
    /\ flushed' = [flushed EXCEPT ![b] = Min(@, end)]
    /\ hw' = [hw EXCEPT ![b] = Min(@, end)]
    /\ SameMeta /\ SameBrokers
    /\ UNCHANGED <<at, known, ends, joins, waiting, asked, fetches, epochs, committed>>

-----------------------------------------------------------------------------
(* Processes end *)

Ends(b, how, end, h) ==
    /\ state[b] = "up"
    /\ state' = [state EXCEPT ![b] = how]
    /\ known' = [known EXCEPT ![b] = Nil]
    /\ log' = [log EXCEPT ![b] = Cut(@, end)]
    /\ flushed' = [flushed EXCEPT ![b] = IF FlushOnAck THEN end ELSE @]
    /\ hw' = [hw EXCEPT ![b] = h]
    /\ ends' = [ends EXCEPT ![b] = Nothing]
    /\ joins' = [joins EXCEPT ![b] = {}]
    /\ waiting' = [waiting EXCEPT ![b] = FALSE]
    /\ SameMeta /\ UNCHANGED <<active, life, at, asked, fetches, epochs, committed>>

\* What was not flushed may be lost, also in part. The checkpoint of the high watermark may be an old one.
Crash(b, end, h) ==
    /\ (IF FlushOnAck THEN flushed[b] ELSE 0) <= end /\ end <= End(log[b])
    /\ 0 <= h /\ h <= Min(hw[b], end)
    /\ Ends(b, "crashed", end, h)

Stop(b) == Ends(b, "stopped", End(log[b]), hw[b])

-----------------------------------------------------------------------------
(* Invariants; the names in brackets are those of docs/behaviours/29-replication-invariants.md *)

\* RINV-21. Both leaders would be in `epochs', where the later one took the place of the first.
OneLeaderPerEpoch == \A b \in Brokers : IsLeader(b) => epochs[known[b].epoch].leader = b

\* RINV-15: where two logs have a record of the same epoch at the same offset, all before it is the same.
LogMatching ==
    \A b, c \in Brokers : LET same == {i \in 1..Min(Len(log[b]), Len(log[c])) : log[b][i] = log[c][i]} IN
        same # {} => Cut(log[b], Greatest(same)) = Cut(log[c], Greatest(same))

\* RINV-16
EpochsRise == \A b \in Brokers : \A i \in 2..Len(log[b]) : log[b][i - 1] <= log[b][i]

\* RINV-07
HighWatermarkInLog == \A b \in Brokers : 0 <= hw[b] /\ hw[b] <= End(log[b])

\* RINV-24: whoever may be elected is waited for.
MembersAreWaitedFor ==
    \A b \in Brokers : IsLeader(b) /\ known[b].epoch = meta.epoch => meta.isr \subseteq known[b].isr \cup joins[b]

\* RINV-26, 27
PartitionIsRight ==
    /\ meta.isr \cap meta.elr = {}
    /\ Cardinality(meta.isr) >= MinIsr => meta.elr = {}
    /\ meta.leader \in meta.isr \cup {Nil} /\ meta.leader \in active \cup {Nil}
    /\ Elr => meta.isr \subseteq active

\* RINV-01, 24, 28: nothing that was committed is lost on any replica that may be elected cleanly. One that lost its
\* unsynced tail may not before it registers, and is neither in the in-sync set nor eligible then.
MembersHaveTheCommitted ==
    ~unclean => \A b \in meta.isr \cup meta.elr : state[b] # "crashed" \/ FlushOnAck => IsPrefix(committed, log[b])

\* RINV-23
LeaderCompleteness ==
    ~unclean => \A b \in Brokers : IsLeader(b) /\ (\A e \in DOMAIN epochs : e <= known[b].epoch) => IsPrefix(committed, log[b])

\* RINV-11, 14: below the high watermark all replicas have the same.
SameBelowHighWatermark == ~unclean => \A b \in Brokers : IsPrefix(Cut(log[b], hw[b]), committed)

\* RINV-12: once it has come to its epoch, the latest leader's high watermark is as high as any that was shown.
LatestNeverGoesBack ==
    ~unclean => \A b \in Brokers : (IsLeader(b) /\ \A e \in DOMAIN epochs : e <= known[b].epoch) =>
        (hw[b] >= Start(b) => hw[b] >= End(committed))

Safe == /\ OneLeaderPerEpoch /\ LogMatching /\ EpochsRise /\ HighWatermarkInLog /\ MembersAreWaitedFor /\ PartitionIsRight
        /\ MembersHaveTheCommitted /\ LeaderCompleteness /\ SameBelowHighWatermark /\ LatestNeverGoesBack

\* RINV-07, RINV-22: what holds of each step.
StepIsSafe ==
    /\ \A b \in Brokers : IsLeader(b) /\ state'[b] = "up" /\ known'[b] # Nil /\ known'[b].leader = b => hw'[b] >= hw[b]
    /\ LET m == said'[Len(said')] IN
       m # meta => m.epoch >= meta.epoch /\ m.change = meta.change + 1

StepsAreSafe == [][StepIsSafe]_vars

-----------------------------------------------------------------------------
(* Where everything begins *)

\* All brokers are up and have empty logs. With `knows' they have learned version m, and its leader leads.
Begin(B, m, knows) ==
    /\ said = <<m>>
    /\ active = B
    /\ life = [b \in B |-> 1]
    /\ state = [b \in B |-> "up"]
    /\ at = [b \in B |-> 1]
    /\ known = [b \in B |-> IF knows THEN m ELSE Nil]
    /\ log = [b \in B |-> <<>>]
    /\ flushed = [b \in B |-> 0]
    /\ hw = [b \in B |-> 0]
    /\ ends = [b \in B |-> [c \in B |-> [end |-> -1, life |-> 0]]]
    /\ joins = [b \in B |-> {}]
    /\ waiting = [b \in B |-> FALSE]
    /\ asked = [b \in B |-> Nil]
    /\ fetches = {}
    /\ epochs = IF knows THEN (m.epoch :> [leader |-> m.leader, start |-> 0, log |-> <<>>, hw |-> 0]) ELSE <<>>
    /\ committed = <<>>
    /\ unclean = FALSE
=============================================================================
