"""Principals and operations: values only, so that every room can name them."""
