"""The shell of the controller: the metadata quorum, its image and the way to the active controller."""
