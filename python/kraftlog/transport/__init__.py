"""Sockets, listeners and frames: everything between the network and the dispatcher."""
