"""The controller: what the metadata log says, and the operations that write to it. Sans-IO, on top of raft."""
