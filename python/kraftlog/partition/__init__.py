"""Decisions about partitions that know no file, socket or task: assignments and what to compact next."""
