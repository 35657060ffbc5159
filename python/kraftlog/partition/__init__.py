"""A replica of a topic partition as a sans-IO state machine: epochs, in-sync set, high watermark, fencing."""
