"""The shell of the consensus core: its messages on the wire, its peers, its log, its loop."""
