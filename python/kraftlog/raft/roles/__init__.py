"""The roles a replica can have, one class a file; transitions between them are made in ``core`` only."""
