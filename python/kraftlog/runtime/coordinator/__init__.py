"""The shell of the group coordinator."""
