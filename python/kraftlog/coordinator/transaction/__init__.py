"""Transaction coordination as a state machine: transactional ids and the transactions they run, no I/O."""
