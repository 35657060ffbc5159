"""Group coordination as a state machine: classic groups and committed offsets, no I/O."""

from __future__ import annotations

__all__: list[str] = []
