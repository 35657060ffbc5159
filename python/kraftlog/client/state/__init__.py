"""What a consumer knows and decides, without sockets, clocks and tasks: positions, metadata, requests and answers."""
