"""Whole nodes in virtual time: the product's own code on simulated machines, disks and networks, from one seed."""
