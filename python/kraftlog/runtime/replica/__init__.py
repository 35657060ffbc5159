"""The shell of topic partitions: their logs, flushes, fetches, retention and compaction."""
