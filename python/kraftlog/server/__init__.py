"""The shells: listeners, connections, dispatch, handlers, and the drivers of the sans-IO cores."""
