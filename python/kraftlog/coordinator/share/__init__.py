"""Share groups (KIP-932): the state of share partitions, on their leader and in the share coordinator."""
