"""Settings of a broker that change while it runs: checked before they are asked of the controller, then applied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kraftlog.config_table import cordoned_log_dirs, strip_listener_prefix
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.controller.dynamic_broker_configs import CORDONED_LOG_DIRS, check_dynamic_broker_configs
from kraftlog.errors import KafkaError
from kraftlog.node.config import NodeConfig
from kraftlog.node.settings import connection_limits
from kraftlog.storage.log_dir import LogDir
from kraftlog.transport.acceptor import Connections
from kraftlog.transport.listener import ConfigError
from kraftlog.types import Uuid
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
        log_dirs: The data directories, some of which may be cordoned.

    Attributes:
        on_cordoned: Called when other directories are cordoned than before.
    """

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        connections: Connections,
        log_dirs: Sequence[LogDir] = (),
    ) -> None:
        self._config = config
        self._image = image
        self._connections = connections
        self._log_dirs = [log_dir for log_dir in log_dirs if log_dir.path in config.log_dirs]
        self._applied: Mapping[str, str] = {}
        self._is_loaded = False
        self.on_cordoned: Callable[[], None] = lambda: None

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
        self._is_loaded = True

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata."""
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs):
            self._follow(image)

    def cordoned_directories(self) -> Sequence[Uuid] | None:
        """What heartbeats say of them; None before ``load``, or if the metadata has no place for it (KIP-1066)."""
        if not self._is_loaded or not self._image().metadata_version.is_cordoned_log_dirs_supported:
            return None
        return sorted(log_dir.directory_id for log_dir in self._log_dirs if log_dir.is_cordoned)

    def _overrides(self, image: MetadataImage) -> dict[str, str]:
        configs = image.configs
        return {
            **configs.get(ConfigResourceType.BROKER, ""),
            **configs.get(ConfigResourceType.BROKER, str(self._config.node_id)),
        }

    def _follow(self, image: MetadataImage) -> None:
        overrides = self._overrides(image)
        self._cordon(overrides.get(CORDONED_LOG_DIRS))
        followed = {name: text for name, text in overrides.items() if strip_listener_prefix(name) in _FOLLOWED}
        if followed == self._applied:
            return
        self._applied = followed
        try:
            self._connections.limits = connection_limits(NodeConfig({**self._config.properties, **followed}))
        except (ConfigError, KafkaError) as error:
            # The controller of another implementation may let it pass; the broker goes on as it was.
            logger.error("altered settings of this broker cannot be applied: %s", error)

    def _cordon(self, text: str | None) -> None:
        if text is None:
            text = ",".join(self._config.get_list(CORDONED_LOG_DIRS))
        try:
            cordoned = cordoned_log_dirs(text, [str(path) for path in self._config.log_dirs])
        except KafkaError as error:
            # A controller does not know the directories of brokers.
            logger.error("the cordoned directories stay as they are: %s", error)
            return
        before = [log_dir.is_cordoned for log_dir in self._log_dirs]
        for log_dir in self._log_dirs:
            log_dir.is_cordoned = str(log_dir.path.absolute()) in cordoned
        if before != [log_dir.is_cordoned for log_dir in self._log_dirs]:
            self.on_cordoned()
