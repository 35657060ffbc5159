--------------------------- MODULE PartitionTrace ---------------------------
(***************************************************************************)
(* Runs of the implementation as behaviours of Partition. Each step names  *)
(* its action and arguments, so nothing is searched: the action is         *)
(* possible and leads to what was seen, or a deadlock refuses the trace.   *)
(***************************************************************************)
EXTENDS Partition, PartitionTraces \* Traces, each [brokers, meta, steps]

VARIABLES trace, place

AllFetches(before, f) == before \cup {f}
AllVersions(before, m) == Append(before, m)

Init == \E k \in 1..Len(Traces) : trace = k /\ place = 1 /\ Begin(Traces[k].brokers, Traces[k].meta, FALSE)

Take(b, action, x) ==
    CASE action = "TakeFetch" ->
             TakeFetch(b, [from |-> x[1], life |-> x[2], epoch |-> x[3], at |-> x[4], last |-> x[5]], x[6])
      [] action = "SendFetch" -> SendFetch(b, FALSE)
      [] action = "Fetched" -> Fetched(b, x[1], x[2])
      [] action = "AppendRecords" -> AppendRecords(b, x[1])
      [] action = "Flush" -> Flush(b, x[1])
      [] action = "LookAgain" -> LookAgain(b)
      [] action = "Truncate" -> Truncate(b, x[1])
      [] action = "Learn" -> Learn(b, x[1])
      [] action = "ProposeShrink" -> ProposeShrink(b, x[1])
      [] action = "AlterPartition" -> AlterPartition(b)
      [] action = "TakeAnswer" -> TakeAnswer(b)
      [] action = "AskAgain" -> AskAgain(b)
      [] action = "Fence" -> Fence(b)
      [] action = "Unfence" -> Unfence(b)
      [] action = "Elect" -> Elect(b)
      [] action = "Crash" -> Crash(b, x[1], x[2])
      [] action = "Stop" -> Stop(b)
      [] action = "Register" -> Register(b)

Of(k) == IF k = Nil THEN <<>> ELSE <<k.leader, k.epoch, k.change>>
Seen(b) == <<Of(known[b]), IF IsLeader(b) THEN known[b].isr ELSE {}, End(log[b]), LastEpoch(log[b]), hw[b]>>
SeenMeta == <<meta.leader, meta.epoch, meta.change, meta.isr, meta.elr, meta.lastKnown, active>>

Next ==
    LET steps == Traces[trace].steps IN
    /\ place <= Len(steps)
    /\ \E s \in {steps[place]} :
         /\ Take(s[1], s[2], s[3])
         /\ Seen(s[1])' = s[4]
         /\ s[5] = <<>> \/ SeenMeta' = s[5]
         /\ place' = place + 1
         /\ UNCHANGED trace

Position == <<trace, place>>

\* Constraints, so that one search tells of all traces: which safe states each of them reached.
IsSafe == Safe /\ PrintT(<<"reached", trace, place>>)
IsSafeStep == StepIsSafe
=============================================================================
