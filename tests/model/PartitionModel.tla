--------------------------- MODULE PartitionModel ---------------------------
(***************************************************************************)
(* What may happen next in a small scope: the actions of Partition, with   *)
(* the arguments that make a difference. Brokers learn the newest metadata *)
(* only: one that learns an older version could have learned it earlier.   *)
(* Of each follower the newest fetch alone may still arrive, however late. *)
(***************************************************************************)
EXTENDS Partition

CONSTANTS Node,         \* brokers, all with a replica
          MaxEpoch, MaxChange, MaxEnd, MaxLife,
          Fences,       \* brokers are fenced and unfenced
          Moves,        \* leaders are moved while they are well
          Shrinks       \* leaders propose that members leave

OneFetch(before, f) == {g \in before : g.from # f.from} \cup {f}
Newest(before, m) == <<m>>

Init == \E l \in Node :
    Begin(Node, [leader |-> l, epoch |-> 1, change |-> 1, isr |-> Node, elr |-> {}, lastKnown |-> {}], TRUE)

Control(b) ==
    \/ Fences /\ (Fence(b) \/ Unfence(b))
    \/ ~Fences /\ state[b] = "up" /\ Unfence(b)
    \/ Moves /\ Elect(b)
    \/ Unclean /\ meta.leader = Nil /\ Elect(b)
    \/ AlterPartition(b)

LeadOthers(b) ==
    \/ End(log[b]) < MaxEnd /\ AppendRecords(b, 1)
    \/ FlushOnAck /\ IsLeader(b) /\ Flush(b, End(log[b]))
    \/ \E f \in fetches, is_proposed \in BOOLEAN : TakeFetch(b, f, is_proposed)
    \/ Shrinks /\ IsLeader(b) /\ \E c \in known[b].isr \ {b} : ProposeShrink(b, known[b].isr \ {c})
    \/ TakeAnswer(b)
    \/ AskAgain(b)

Follow(b) ==
    \/ SendFetch(b, TRUE)
    \/ IsFollowing(b) /\ \E end \in End(log[b])..End(Followed(b).log) : Fetched(b, end, Min(Followed(b).hw, end))
    \/ IsFollowing(b) /\ Truncate(b, CutAt(b, Followed(b).log))

Fail(b) ==
    \/ life[b] < MaxLife /\ LET end == IF FlushOnAck THEN flushed[b] ELSE 0 IN Crash(b, end, Min(hw[b], end))
    \/ Register(b)

Next == \E b \in Node : Control(b) \/ Learn(b, Len(said)) \/ LeadOthers(b) \/ Follow(b) \/ Fail(b)

Small == meta.epoch <= MaxEpoch /\ meta.change <= MaxChange

Symmetry == Permutations(Node)

\* What can still make a difference: epochs that somebody is in, fetches and requests that can still be taken.
IsIdle(b) ==
    LET r == asked[b] IN
    r # Nil /\ IF r.answer = "none" THEN ~IsKnown(r) \/ ~IsCurrent(r) ELSE ~waiting[b]

Lasting ==
    LET lives == {known[b].epoch : b \in {c \in Node : known[c] # Nil}} \cup {meta.epoch} IN
    <<meta, active, life, state, known, log, flushed, hw, ends, joins, waiting,
      [b \in Node |-> IF IsIdle(b) THEN Nil ELSE asked[b]],
      {f \in fetches : f.epoch \in lives},
      [e \in {d \in DOMAIN epochs : d \in lives \/ \A o \in DOMAIN epochs : o <= d} |-> epochs[e]],
      committed, unclean>>
=============================================================================
