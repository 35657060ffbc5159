-------------------------- MODULE PartitionMutants --------------------------
(***************************************************************************)
(* Rules of replication left out, one per behaviour: `broken' names it.    *)
(* The definitions take the places of those of Partition, and TLC has to   *)
(* notice each. All are searched in one run, which leaves out what follows *)
(* for a rule that was noticed.                                            *)
(***************************************************************************)
EXTENDS PartitionModel

CONSTANTS Rules,        \* a sequence: the rules to leave out, each once
          Order         \* who leads in which epoch, in schedules too long for a search of all; <<>>: anybody

VARIABLE broken

Broken(rule) == broken = rule

\* A replica that is about to join is not waited for.
Maximal(k, joining) == IF Broken("maximal") THEN k.isr ELSE k.isr \cup joining

\* The controller does not look at the partition epoch of AlterPartition.
Current(r) == Broken("change") \/ r.change = meta.change

\* The controller does not look at the broker epochs of the members.
EligibleMember(c, of) == c \in active /\ (Broken("life") \/ of \in {0, life[c]})

\* A replica that ended uncleanly stays eligible.
LostTail(b) == IF state[b] = "crashed" /\ ~Broken("eligible") THEN {b} ELSE {}

\* A follower cuts at its high watermark instead of where the epochs differ (before KIP-101).
CutHere(b, L) ==
    LET d == EpochEnd(L, LastEpoch(log[b]))
        own == EpochEnd(log[b], d.epoch) IN
    IF Broken("truncation") THEN Min(hw[b], End(log[b]))
    ELSE IF own.epoch = d.epoch THEN Min(own.end, d.end) ELSE own.end

\* A fetch of another leader epoch counts (before KIP-320).
OfEpoch(b, f) == Broken("epoch") \/ f.epoch = known[b].epoch

\* A replica joins although it does not reach the beginning of the leader's epoch (KAFKA-7128).
InSync(b, end) == end >= hw[b] /\ (Broken("start") \/ end >= Start(b))

\* The high watermark moves with fewer members than min.insync.replicas (before KIP-966).
Commits(k) == Broken("minimum") \/ Cardinality(k.isr) >= MinIsr

\* Metadata of the same partition epoch ends a change that is in flight.
New(k, m) == k = Nil \/ m.epoch > k.epoch \/ (m.epoch = k.epoch /\ (m.change > k.change \/ (Broken("same") /\ m.change = k.change)))

\* A leader that missed the epochs of others keeps what it knew before them.
Renew(k, m) == k.leader = m.leader /\ (Broken("renewed") \/ m.epoch <= k.epoch + 1)

\* Who was elected uncleanly does not have the in-sync set to itself.
Alone(e, is_eligible) == (e.is_unclean /\ ~Broken("alone")) \/ is_eligible

\* Those who were eligible before an unclean election stay so.
LeftOver(e, elr) == IF ~Elr \/ (e.is_unclean /\ ~Broken("emptied")) THEN {} ELSE elr \ {e.leader}

InOrder == meta.leader \in {Nil, Order[Min(meta.epoch, Len(Order))]}

BrokenInit == Init /\ \E i \in 1..Len(Rules) : broken = Rules[i]
BrokenNext == Next /\ UNCHANGED broken

ASSUME \A i \in 1..Len(Rules) : TLCSet(i, FALSE)

Number(rule) == CHOOSE i \in 1..Len(Rules) : Rules[i] = rule

Violated ==
    CHOOSE name \in {"OneLeaderPerEpoch", "LogMatching", "EpochsRise", "HighWatermarkInLog", "MembersAreWaitedFor",
                     "PartitionIsRight", "MembersHaveTheCommitted", "LeaderCompleteness", "SameBelowHighWatermark",
                     "LatestNeverGoesBack"} :
        CASE name = "OneLeaderPerEpoch" -> ~OneLeaderPerEpoch
          [] name = "LogMatching" -> ~LogMatching
          [] name = "EpochsRise" -> ~EpochsRise
          [] name = "HighWatermarkInLog" -> ~HighWatermarkInLog
          [] name = "MembersAreWaitedFor" -> ~MembersAreWaitedFor
          [] name = "PartitionIsRight" -> ~PartitionIsRight
          [] name = "MembersHaveTheCommitted" -> ~MembersHaveTheCommitted
          [] name = "LeaderCompleteness" -> ~LeaderCompleteness
          [] name = "SameBelowHighWatermark" -> ~SameBelowHighWatermark
          [] name = "LatestNeverGoesBack" -> ~LatestNeverGoesBack

\* A constraint: what follows a state that is not safe is left out, and all else of a rule that was noticed.
Unnoticed ==
    /\ Small /\ (Order # <<>> => InOrder)
    /\ ~TLCGet(Number(broken))
    /\ Safe \/ (TLCSet(Number(broken), TRUE) /\ PrintT(<<"noticed", broken, Violated, TLCGet("level")>>) /\ FALSE)

LastingAndBroken == <<Lasting, broken>>
=============================================================================
