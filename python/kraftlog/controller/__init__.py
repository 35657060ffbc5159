"""The controller: what the metadata log says, and the operations that write to it. Sans-IO, on top of raft."""

from __future__ import annotations

from kraftlog.controller.core import ControllerConfig, ControllerCore
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.result import ControllerResult

__all__ = ["ControllerConfig", "ControllerCore", "ControllerResult", "MetadataDelta", "MetadataImage"]
