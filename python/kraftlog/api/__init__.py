"""From a decoded frame to its handler and back: the dispatcher and one handler per API key."""
