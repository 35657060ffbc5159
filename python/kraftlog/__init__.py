"""kraftlog: an embeddable, Kafka-wire-compatible replicated log."""
