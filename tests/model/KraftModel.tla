----------------------------- MODULE KraftModel -----------------------------
(***************************************************************************)
(* What may happen next in a small scope: the actions of Kraft, with the   *)
(* arguments that make a difference. What is left out leads nowhere else:  *)
(* a fetch that tells less than a later one did, a crash that loses        *)
(* nothing, an epoch that is learned before anybody stands for election.   *)
(***************************************************************************)
EXTENDS Kraft

CONSTANTS Node,         \* replicas
          First,        \* voters at the beginning
          MaxEpoch, MaxEnd,
          PreVote,      \* FALSE: all peers are older than Pre-Vote, who stands for election does so at once
          Appends,      \* leaders append more than they have to
          Changes,      \* voter sets change
          Snapshots,
          Crashes

Self(n) == n
OneRecord(tells_voters) == 1

Init == Begin([n \in Node |-> IF n \in First THEN First ELSE {}], FALSE)

\* BecomeProspective and BecomeCandidate in one.
StandAtOnce(n) ==
    /\ role[n] \in {Follower, Unattached, Candidate} /\ IsVoter(n) /\ epoch[n] < MaxEpoch
    /\ Enter(n, Candidate, epoch[n] + 1, Nil, n)
    /\ SameLogs /\ SameSaid /\ UNCHANGED <<boot, static>>

Elect(n) ==
    \/ IF PreVote
       THEN \/ epoch[n] < MaxEpoch /\ BecomeProspective(n)
            \/ LosePreVote(n)
            \/ BecomeCandidate(n, FALSE)
       ELSE StandAtOnce(n)
    \/ BecomeLeader(n, VotersEnd(log[n]) = 0)
    \/ (~Crashes \/ ~IsVoter(n)) /\ Resign(n) \* where there are crashes they have the same effect
    \/ epoch[n] < MaxEpoch /\ LeaveResigned(n)
    \/ \E r \in reqs : ~r.pre /\ LearnEpoch(n, r.epoch)
    \/ \E e \in DOMAIN epochs : (e > epoch[n] \/ leader[n] = Nil) /\ LearnLeader(n, e, epochs[e].leader, Follower)
    \/ AskForVotes(n, TRUE)
    \/ \E r \in reqs : r.from # n /\ (GrantPreVote(n, r) \/ GrantVote(n, r))
    \/ \E m \in Node : CountVote(n, m)

Replicate(n) ==
    \/ Appends /\ AppendRecords(n, 1)
    \/ Changes /\ \E m \in Node : (m \in Voters(n) /\ ChangeVoters(n, 0, Voters(n) \ {m}))
                               \/ (m \notin Voters(n) /\ ChangeVoters(n, 0, Voters(n) \cup {m}))
    \/ role[n] = Leader /\ flushed[n] < End(log[n]) /\ Flush(n, End(log[n]))
    \/ role[n] = Follower /\ SendFetch(n, TRUE)
    \/ \E f \in fetches : f.at > acked[n][f.from] /\ TakeFetch(n, f)
    \/ role[n] = Follower /\ \E end \in (End(log[n]) + 1)..End(Followed(n).log) : Fetched(n, end, hw[n])
    \/ role[n] = Follower /\ LET h == Min(End(log[n]), Followed(n).hw) IN h > hw[n] /\ Fetched(n, End(log[n]), h)
    \/ role[n] = Follower /\ \E end \in 0..End(log[n]) : Truncate(n, end)
    \/ PreVote /\ ~heard[n] /\ HearLeader(n)
    \/ PreVote /\ MissLeader(n)
    \/ Snapshots /\ \E end \in 1..End(committed) : LoadSnapshot(n, end) \/ TakeSnapshot(n, end)

Crash(n) ==
    /\ Crashes
    /\ role[n] \in {Leader, Candidate} \/ flushed[n] < End(log[n]) \/ vote[n] # Nil
    /\ Restart(n, Max(flushed[n], snap[n]))

Next == \E n \in Node : Elect(n) \/ Replicate(n) \/ Crash(n)

Small == \A n \in Node : End(log[n]) <= MaxEnd

Symmetry == Permutations(First) \cup Permutations(Node \ First)
=============================================================================
