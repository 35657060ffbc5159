"""Bugs that can be put back into the product, one at a time: whether tests and simulations notice each of them."""
