"""The shells that run the sans-IO cores on an event loop, one room per core."""
