"""The one Python place that knows files: log directories, meta.properties, quorum-state, checkpoints."""
