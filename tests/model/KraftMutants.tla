----------------------------- MODULE KraftMutants ---------------------------
(* Rules of the protocol left out, each to be put in the place of a definition of Kraft: TLC has to notice. *)
EXTENDS KraftModel

CONSTANTS a, b

\* Majorities that need not overlap.
HalfIsEnough(S, V) == 2 * Cardinality(S \cap V) >= Cardinality(V)

\* A leader changes the voter set before anything of its epoch is committed.
ChangeAnyTime(n) == MayAppend(n)

\* A vote is not on disk.
ForgetVote(n) == Nil

\* What is committed counts from the beginning of the log, not of the epoch.
CommitOldEpochs(V, known, start, old) ==
    LET good == {o \in {known[v] : v \in V} : o > old /\ IsMajority({v \in V : known[v] >= o}, V)} IN
    IF good = {} THEN old ELSE CHOOSE o \in good : \A p \in good : p <= o

\* Who stands for election, in a schedule too long for a search of all: a, b and a again.
Order == <<a, b, a>>
InOrder == Small /\ \A n \in Node : role[n] \in {Candidate, Leader} => n = Order[epoch[n]]
=============================================================================
