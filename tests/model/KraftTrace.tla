----------------------------- MODULE KraftTrace -----------------------------
(***************************************************************************)
(* Traces of the simulator as behaviours of Kraft. Each step names its     *)
(* action and arguments, so nothing is searched: the action is possible    *)
(* and leads to what was seen, or the trace is refused by a deadlock.      *)
(***************************************************************************)
EXTENDS Kraft, KraftTraces \* Traces, each <<boot, static, steps>>; a step is <<replica, action, arguments, seen>>; Ids

VARIABLES trace, at

Id(n) == Ids[n]

Init == \E k \in 1..Len(Traces) : trace = k /\ at = 1 /\ Begin(Traces[k][1], Traces[k][2])

Say(n, x, pre) == [from |-> x[1], epoch |-> x[2], pre |-> pre, last |-> x[3], end |-> x[4]]

Take(n, action, x) ==
    CASE action = "TakeFetch" -> TakeFetch(n, [from |-> x[1], epoch |-> x[2], at |-> x[3], last |-> x[4]])
      [] action = "SendFetch" -> SendFetch(n, FALSE)
      [] action = "AppendRecords" -> AppendRecords(n, x[1])
      [] action = "Flush" -> Flush(n, x[1])
      [] action = "Fetched" -> Fetched(n, IF x[1] < 0 THEN End(log[n]) ELSE x[1], IF x[2] < 0 THEN hw[n] ELSE x[2])
      [] action = "HearLeader" -> HearLeader(n)
      [] action = "MissLeader" -> MissLeader(n)
      [] action = "LearnLeader" -> LearnLeader(n, x[1], x[2], x[3])
      [] action = "LearnEpoch" -> LearnEpoch(n, x[1])
      [] action = "BecomeProspective" -> BecomeProspective(n)
      [] action = "BecomeCandidate" -> BecomeCandidate(n, x[1])
      [] action = "BecomeLeader" -> BecomeLeader(n, x[1])
      [] action = "AskForVotes" -> AskForVotes(n, FALSE)
      [] action = "GrantPreVote" -> GrantPreVote(n, Say(n, x, TRUE))
      [] action = "GrantVote" -> GrantVote(n, Say(n, x, FALSE))
      [] action = "CountVote" -> CountVote(n, x[1])
      [] action = "LosePreVote" -> LosePreVote(n)
      [] action = "Resign" -> Resign(n)
      [] action = "LeaveResigned" -> LeaveResigned(n)
      [] action = "ChangeVoters" -> ChangeVoters(n, x[1], x[2])
      [] action = "Truncate" -> Truncate(n, x[1])
      [] action = "LoadSnapshot" -> LoadSnapshot(n, x[1])
      [] action = "TakeSnapshot" -> TakeSnapshot(n, x[1])
      [] action = "Restart" -> Restart(n, x[1])

Seen(n) == <<epoch[n], role[n], leader[n], vote[n], End(log[n]), LastEpoch(log[n]), flushed[n], hw[n], Voters(n)>>

Next ==
    LET steps == Traces[trace][3] IN
    IF at > Len(steps) THEN UNCHANGED <<vars, trace, at>>
    ELSE \E s \in {steps[at]} :
         /\ Take(s[1], s[2], s[3])
         /\ s[4] = <<>> \/ Seen(s[1])' = s[4]
         /\ at' = at + 1
         /\ UNCHANGED trace

Safely == /\ ElectionSafety /\ HighWatermarkInLog /\ CommittedIsDurable /\ LeaderCompleteness
          /\ StateMachineSafety /\ EpochsRise /\ OneChangeAtATime /\ RolesAreRight

Place == <<trace, at>>
=============================================================================
