"""Python implementations of what the data path does in Rust: the reference that its tests compare it with."""
