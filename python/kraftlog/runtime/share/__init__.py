"""The shell of share groups: sessions, share partitions, and the way to the share coordinator."""
