"""kraftlog: an embeddable, Kafka-wire-compatible replicated log."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kraftlog.version import VERSION

if TYPE_CHECKING:
    from kraftlog.broker import AsyncBroker, Broker
    from kraftlog.client import AsyncConsumer, AsyncProducer, Consumer, Producer
    from kraftlog.cluster import Cluster
    from kraftlog.live import read
    from kraftlog.quorum import AsyncQuorum, Quorum, QuorumHost, SessionMachine, StateMachine
    from kraftlog.reading import Log, LogDir, open_log, scan

__version__ = VERSION

__all__ = [
    "AsyncBroker",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQuorum",
    "Broker",
    "Cluster",
    "Consumer",
    "Log",
    "LogDir",
    "Producer",
    "Quorum",
    "QuorumHost",
    "SessionMachine",
    "StateMachine",
    "__version__",
    "open_log",
    "read",
    "scan",
]

# Imported when first used, so that `import kraftlog` costs next to nothing.
_MODULE_OF = {
    "AsyncBroker": "kraftlog.broker",
    "AsyncConsumer": "kraftlog.client",
    "AsyncProducer": "kraftlog.client",
    "AsyncQuorum": "kraftlog.quorum",
    "Broker": "kraftlog.broker",
    "Cluster": "kraftlog.cluster",
    "Consumer": "kraftlog.client",
    "Log": "kraftlog.reading",
    "LogDir": "kraftlog.reading",
    "Producer": "kraftlog.client",
    "Quorum": "kraftlog.quorum",
    "QuorumHost": "kraftlog.quorum",
    "SessionMachine": "kraftlog.quorum",
    "StateMachine": "kraftlog.quorum",
    "open_log": "kraftlog.reading",
    "read": "kraftlog.live",
    "scan": "kraftlog.reading",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
