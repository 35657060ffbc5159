"""Client quotas: which limit applies to a client, what the client used, and how long it has to wait. Sans-IO."""
