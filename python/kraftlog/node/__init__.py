"""Composition: one process of a cluster, its settings and its registration."""
