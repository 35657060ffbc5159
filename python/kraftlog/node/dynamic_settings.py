"""Settings of a broker that change while it runs: checked before they are asked of the controller, then applied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kraftlog.config_table import strip_listener_prefix
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.controller.dynamic_broker_configs import check_dynamic_broker_configs
from kraftlog.errors import KafkaError
from kraftlog.node.config import NodeConfig
from kraftlog.node.settings import connection_limits
from kraftlog.transport.acceptor import Connections
from kraftlog.transport.listener import ConfigError
from kraftlog.vocabulary import ConfigResourceType

__all__ = ["DynamicSettings"]

logger = logging.getLogger(__name__)

_FOLLOWED = frozenset(
    {
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
    }
)


class DynamicSettings:
    """What was altered of a broker's settings, and the parts of the node that follow it.

    The defaults of topics and the settings of the cleaner follow the metadata by themselves.

    Args:
        config: What server.properties says.
        image: Gives the committed metadata.
        connections: Whose limits follow.
    """

    def __init__(self, config: NodeConfig, image: Callable[[], MetadataImage], connections: Connections) -> None:
        self._config = config
        self._image = image
        self._connections = connections
        self._applied: Mapping[str, str] = {}

    def check(self, changes: Mapping[str, str | None], *, per_broker: bool) -> None:
        """Check changes that are about to be asked of the controller.

        Args:
            changes: The new text of each changed key; None deletes it.
            per_broker: Whether they are for this broker (else the cluster-wide default).

        Raises:
            KafkaError: INVALID_REQUEST; a key that cannot change at run time, or a value out of bounds.
        """
        current = {**self._config.properties, **self._overrides(self._image())}
        check_dynamic_broker_configs(current, changes, per_broker=per_broker)

    def load(self, image: MetadataImage) -> None:
        """Apply what was altered before this start."""
        self._follow(image)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata."""
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs):
            self._follow(image)

    def _overrides(self, image: MetadataImage) -> dict[str, str]:
        configs = image.configs
        return {
            **configs.get(ConfigResourceType.BROKER, ""),
            **configs.get(ConfigResourceType.BROKER, str(self._config.node_id)),
        }

    def _follow(self, image: MetadataImage) -> None:
        overrides = self._overrides(image)
        followed = {name: text for name, text in overrides.items() if strip_listener_prefix(name) in _FOLLOWED}
        if followed == self._applied:
            return
        self._applied = followed
        try:
            self._connections.limits = connection_limits(NodeConfig({**self._config.properties, **followed}))
        except (ConfigError, KafkaError) as error:
            # The controller of another implementation may let it pass; the broker goes on as it was.
            logger.error("altered settings of this broker cannot be applied: %s", error)
