"""Principals, operations, and the decisions of the authorizer: no sockets, files or clocks."""
