"""A node: data directories, metadata quorum, partitions, listeners and the work that recurs."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftlog import host
from kraftlog.api.controller_answers import ControllerAnswers
from kraftlog.api.dispatcher import Dispatcher
from kraftlog.api.forwarder import Forwarder
from kraftlog.api.handler_table import STOP_REPLICA_KEY
from kraftlog.api.leader_hint import leader_addresses
from kraftlog.api.request_quota import ClientQuotas
from kraftlog.api.services import BrokerServices, ControllerServices
from kraftlog.api.topic_views import TopicViews
from kraftlog.coordinator.group.group_shard import GroupShard
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.errors import NodeClosedError
from kraftlog.metrics import Metrics, to_prometheus_text
from kraftlog.metrics.listener import MetricsListener
from kraftlog.node.authorization import Authorization
from kraftlog.node.broker_links import BrokerLinks
from kraftlog.node.config import METRICS_LISTENER, ConfigError
from kraftlog.node.controller_registration import ControllerRegistration
from kraftlog.node.data_directories import open_log_dirs
from kraftlog.node.dynamic_settings import DynamicSettings
from kraftlog.node.group_gauges import GroupGauges
from kraftlog.node.producer_ids import ProducerIds
from kraftlog.node.quorum_settings import channel_settings, check_metadata_log, metadata_settings
from kraftlog.node.registration import BrokerRegistration
from kraftlog.node.settings import (
    FETCH_SESSION_EVICTION_MS,
    api_settings,
    broker_registration_settings,
    connection_limits,
    data_path_limits,
    group_coordinator_settings,
    node_identity,
    quota_windows,
    replica_settings,
    topic_creation_settings,
)
from kraftlog.node.share_groups import share_groups
from kraftlog.node.start_error import StartError, named_failures
from kraftlog.node.transactions import TransactionServices, transaction_services
from kraftlog.runtime.coordinator.group_coordinator import group_coordinator
from kraftlog.runtime.coordinator.shard_registry import ShardRegistry
from kraftlog.runtime.coordinator.shard_runner import ShardRunner
from kraftlog.runtime.metadata.controller_channel import ControllerChannel
from kraftlog.runtime.metadata.metadata_quorum import MetadataQuorum
from kraftlog.runtime.metadata.topic_creation import TopicCreation
from kraftlog.runtime.replica.compactor import LogCleaner
from kraftlog.runtime.replica.fetch_session import FetchSessionCache
from kraftlog.runtime.replica.log_workers import ThreadedLogWorkers
from kraftlog.runtime.replica.partition import Partition
from kraftlog.runtime.replica.registry import Partitions
from kraftlog.runtime.replica.replica_manager import ReplicaManager
from kraftlog.runtime.share.share_admin import ShareAdmin
from kraftlog.runtime.share.share_service import ShareService
from kraftlog.runtime.steady_clock import SteadyClock
from kraftlog.runtime.tasks import NodeTasks
from kraftlog.storage.log_dir import LogDir
from kraftlog.storage.meta_properties import ensure_directory_id
from kraftlog.transport.acceptor import Acceptor, Connections
from kraftlog.transport.listener import EndPoint
from kraftlog.transport.native_sockets import NativeSockets
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.node.config import NodeConfig
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.transport.exchange import Exchange
    from kraftlog.transport.sasl_exchange import SaslListener
    from kraftlog.transport.scheduler import Scheduler

__all__ = ["Node", "StartError"]

logger = logging.getLogger(__name__)


class Node:
    """One process of a cluster: broker, controller or both.

    All methods but ``now_ms`` are called on the loop that ``start`` ran on.

    Args:
        config: Checked settings.

    Attributes:
        now_ms: Wall clock, milliseconds since 1970.
        metadata: The metadata quorum; its image is what is committed.
        controllers: The way to the active controller.
        replicas: Opens, serves and closes the topic partitions of this node.
        partitions: The topic partitions whose logs are open.
        producer_ids: Blocks of producer ids the controller gave this broker.
        groups: The group coordinator.
        transactions: The transaction coordinator.
        broker_links: Connections of the coordinator to other brokers.
        shares: Sessions and partitions of share groups, and the share coordinator.
        share_admin: What the group coordinator asks of share coordinators.
        log_cleaner: What compacts the logs of this node.
        log_dirs: The data directories, locked while the node runs.
        fetch_sessions: Of this node's clients.
        quotas: The client quotas, as they are committed.
        metrics: What can be measured of this node; ``metrics.snapshot`` may be called on any thread.
    """

    loop: asyncio.AbstractEventLoop
    now_ms: Callable[[], int]
    metadata: MetadataQuorum
    controllers: ControllerChannel
    replicas: ReplicaManager
    producer_ids: ProducerIds
    topic_creation: TopicCreation
    dynamic_settings: DynamicSettings
    groups: ShardRegistry[GroupShard]
    transactions: ShardRegistry[TransactionShard]
    _transaction_services: TransactionServices
    broker_links: BrokerLinks
    shares: ShareService
    share_admin: ShareAdmin
    log_cleaner: LogCleaner
    fetch_sessions: FetchSessionCache
    _coordinators_clock: SteadyClock

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.log_dirs: list[LogDir] = []
        self.metrics = Metrics()
        self.metrics_listener = MetricsListener(lambda: to_prometheus_text(self.metrics.snapshot()))
        self._group_gauges = GroupGauges(self.metrics)
        self.tasks = NodeTasks()
        self._authorization = Authorization(config)
        self.quotas = ClientQuotas(quota_windows(config), host.monotonic_ns)
        self.cluster_id = ""
        self._acceptors: list[Acceptor] = []
        self._connections: Connections | None = None
        self._registration: BrokerRegistration | None = None
        self._controller_registration: ControllerRegistration | None = None
        self._is_running = False

    @property
    def partitions(self) -> Partitions:
        """The topic partitions of this node whose logs are open."""
        return self.replicas.partitions

    @property
    def authorizer(self) -> Authorizer | None:
        """Judges requests; None if everybody may do everything."""
        return self._authorization.authorizer

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the broker listeners, advertised form, comma separated."""
        names = {listener.listener_name for listener in self.config.broker_listeners}
        return ",".join(
            end_point.address for end_point in self.advertised_end_points() if end_point.listener_name in names
        )

    def end_points(self) -> list[EndPoint]:
        """The listeners with the ports they are bound to."""
        return [acceptor.end_point for acceptor in self._acceptors]

    def advertised_end_points(self) -> list[EndPoint]:
        """What clients and peers are told; port 0 stands for the bound one."""
        bound = {end_point.listener_name: end_point for end_point in self.end_points()}
        return [
            EndPoint(
                listener.listener_name,
                listener.host or bound[listener.listener_name].host,
                listener.port or bound[listener.listener_name].port,
            )
            for listener in self.config.advertised_listeners
        ]

    async def start(self) -> None:
        """Open everything and serve.

        Raises:
            StartError: A directory is not formatted, belongs to another cluster or node, or the operating system
                refuses a file of it.
            ConfigError: A listener cannot be bound.
            LogError: A directory is locked, or a log cannot be opened.
        """
        self.loop = asyncio.get_running_loop()
        self.now_ms = host.wall_clock()
        self.config.warn_unknown_keys()
        try:
            with named_failures():
                await self._start()
        except BaseException:
            await self._abandon()
            raise
        self._is_running = True

    async def _start(self) -> None:
        self.cluster_id = open_log_dirs(self.config, self.log_dirs)
        self.fetch_sessions = FetchSessionCache(
            self.config.get_int("max.incremental.fetch.session.cache.slots"),
            FETCH_SESSION_EVICTION_MS,
            random.Random(host.random_bits(64)),
            id_step=2,
        )
        self._connections = Connections(self.loop, connection_limits(self.config))
        self._bind()
        if self.config.metrics_listener is not None:
            await self._listen_for_metrics(*self.config.metrics_listener)
        self._make_quorum()
        self.dynamic_settings = DynamicSettings(
            self.config, lambda: self.metadata.image, self._connections, self.log_dirs
        )
        self._make_replicas()
        self.quotas.on_connection_rates = self._connections.admission.publish_address_rates
        if self.config.data_path == "native" and self.config.is_broker:
            self._connections.native = NativeSockets(
                self.loop,
                self.partitions.native,
                self.replicas.inbox,
                data_path_limits(self.config),
                scheduler=self._connections.scheduler,
                on_failure=self.metadata.on_failure,
                grants=self._authorization.open_data_path(),
            )
            self.quotas.on_data_judged = self._connections.native.hand_over_clients
        await self.metadata.start()
        self._authorization.begin_load(self.metadata)
        if self.config.is_controller:
            identity = node_identity(
                self.config, self.cluster_id, self.advertised_end_points(), is_controller_listener=True
            )
            self._controller_registration = ControllerRegistration(identity, self.controllers)
            if self.metadata.replica.is_sole_voter:
                await self._controller_registration.register()
            else:
                # The others have to reach this node before any of them can lead.
                self._accept_controllers()
                self._controller_registration.begin()
        if self.config.is_broker:
            await self._start_broker()
            await self._authorization.wait_for_load()
            self._accept_clients()
        self._accept_controllers()

    def _make_quorum(self) -> None:
        config = self.config
        check_metadata_log(config)
        log_dir = next(log_dir for log_dir in self.log_dirs if log_dir.path == config.metadata_log_dir)
        log_dir.directory_id = ensure_directory_id(config.metadata_log_dir)
        settings = metadata_settings(
            config,
            cluster_id=self.cluster_id,
            directory_id=log_dir.directory_id,
            was_clean_shutdown=log_dir.was_clean_shutdown,
            end_points=self.advertised_end_points(),
        )
        self.metadata = MetadataQuorum(settings, self.metrics, wall_ms=self.now_ms, security=config.peer_security)
        self.controllers = ControllerChannel(
            channel_settings(config), self.metadata.replica, self.metadata.controller, security=config.peer_security
        )
        self.metadata.replica.add_leader_listener(self.controllers.leader_changed)
        self.metadata.add_listener(self._authorization.apply)
        self.metadata.add_listener(self.quotas.apply)

    def _make_replicas(self) -> None:
        settings = replica_settings(self.config)
        self.log_cleaner = LogCleaner(settings.cleaner, self.now_ms)
        self.replicas = ReplicaManager(
            settings,
            loop=self.loop,
            now_ms=self.now_ms,
            log_dirs=[log_dir for log_dir in self.log_dirs if log_dir.path in settings.log_dirs],
            image=lambda: self.metadata.image,
            compactor=self.log_cleaner,
            workers=ThreadedLogWorkers(),
            on_fatal=self.metadata.on_failure,
            controllers=self.controllers,
            broker_epoch=lambda: -1 if self._registration is None else self._registration.broker_epoch,
            security=lambda: self.config.peer_security(self.config.inter_broker_listener_name),
            metrics=self.metrics if self.config.is_broker else None,
        )

    async def _listen_for_metrics(self, host: str, port: int) -> None:
        try:
            await self.metrics_listener.open(host, port)
        except OSError as error:
            msg = f"{METRICS_LISTENER}={host}:{port} cannot be bound: {error.strerror or error}"
            raise ConfigError(msg) from error
        logger.info("metrics are served at %s", self.metrics_listener.url)

    def _accept_controllers(self) -> None:
        """Serve the controller listeners; harmless when they are served already."""
        services = ControllerServices(
            cluster=self.metadata,
            raft=self.metadata.replica,
            controller=ControllerAnswers(self.metadata.controller),
            settings=api_settings(self.config),
            tasks=self.tasks,
            authorizer=self.authorizer,
        )
        dispatcher = Dispatcher(
            services, "controller", scheduler=self._scheduler(), authorizer=self.authorizer, quotas=self.quotas
        )
        self._accept(dispatcher, is_controller_listener=True)

    def _accept_clients(self) -> None:
        """Serve the broker listeners."""
        self.quotas.load(self.metadata.image)
        forward = Forwarder(
            self.metadata.replica,
            self.controllers,
            self.tasks,
            request_timeout_ms=self.config.get_int("request.timeout.ms"),
        )
        services = BrokerServices(
            cluster=self.metadata,
            raft=self.metadata.replica,
            controller=ControllerAnswers(self.metadata.controller),
            settings=api_settings(self.config),
            tasks=self.tasks,
            authorizer=self.authorizer,
            replicas=self.partitions,
            stops=self.replicas,
            directory_moves=self.replicas.directory_moves,
            log_dirs=self.log_dirs,
            sessions=self.fetch_sessions,
            isr_changes=self.replicas.isr_changes,
            groups=self.groups,
            transactions=self.transactions,
            verifier=self._transaction_services.verifier,
            markers=self._transaction_services.marker_writer,
            producer_ids=self.producer_ids,
            topic_creation=self.topic_creation,
            topic_views=TopicViews(self.replicas.gone_brokers.find),
            dynamic_settings=self.dynamic_settings,
            shares=self.shares,
            share_admin=self.share_admin,
            forwarding=forward,
        )
        if self.config.has_listener_between_brokers:
            between = Dispatcher(
                services,
                "broker",
                forward=forward,
                scheduler=self._scheduler(),
                removed_keys=(STOP_REPLICA_KEY,),
                authorizer=self.authorizer,
                grants=self._authorization.grants,
                quotas=self.quotas,
            )
            for acceptor in self._acceptors:
                if acceptor.end_point.listener_name == self.config.inter_broker_listener_name:
                    acceptor.start(between)
        dispatcher = Dispatcher(
            services,
            "broker",
            forward=forward,
            scheduler=self._scheduler(),
            authorizer=self.authorizer,
            grants=self._authorization.grants,
            quotas=self.quotas,
        )
        self._accept(dispatcher, is_controller_listener=False)

    @property
    def schedulers(self) -> tuple[Scheduler, ...]:
        """What shares the loop among connections."""
        connections = self._connections
        return () if connections is None else (connections.scheduler, connections.controller_scheduler)

    def _scheduler(self) -> Scheduler:
        if self._connections is None:
            raise NodeClosedError("the node was stopped")
        return self._connections.scheduler

    def _accept(self, exchange: Exchange, *, is_controller_listener: bool) -> None:
        for acceptor in self._acceptors:
            if acceptor.is_controller_listener == is_controller_listener:
                acceptor.start(exchange)

    async def _start_broker(self) -> None:
        config = self.config
        self._coordinators_clock = SteadyClock(self.now_ms, host.monotonic_ns)
        self.producer_ids = ProducerIds(config.node_id, self.controllers, lambda: self.metadata.image)
        self.topic_creation = TopicCreation(
            topic_creation_settings(self.config), self.controllers, self.metadata, self.replicas
        )
        self.groups = group_coordinator(
            group_coordinator_settings(self.config),
            now_ms=self._coordinators_clock.now_ms,
            metadata=self.metadata,
            partitions=self.partitions,
            topics=self.topic_creation,
            tasks=self.tasks,
            on_event=self._on_group_event,
            events=self._group_gauges.events,
            meter=self._group_gauges.groups.runtime,
        )
        self._make_transactions()
        self._make_shares()
        self._registration = BrokerRegistration(
            broker_registration_settings(config, self.cluster_id, self.advertised_end_points(), self.log_dirs),
            self.log_dirs,
            self.controllers,
            lambda: self.metadata.image.offset,
            self.metadata.on_failure,
            self.dynamic_settings.cordoned_directories,
        )
        self.dynamic_settings.on_cordoned = self._registration.report_cordoned_directories
        self.replicas.add_failure_listener(self._registration.report_failed_directory)
        await self._registration.register()
        await self._registration.catch_up()
        # Listeners of the image need at least this registration.
        await self.metadata.wait_for_offset(self._registration.broker_epoch)
        self.metadata.add_listener(self._publish_brokers)  # before replicas lose their role to one of them
        self._publish_brokers(self.metadata.image)
        self.metadata.add_listener(self.replicas.apply)
        self.dynamic_settings.load(self.metadata.image)  # before logs are placed in directories
        await self.replicas.load()
        self.partitions.add_listener(self._on_partition_changed)
        self.groups.start()
        self.transactions.start()
        self.shares.start()
        self.dynamic_settings.load(self.metadata.image)
        self.metadata.add_listener(self.dynamic_settings.apply)  # last, as in Kafka's BrokerMetadataPublisher
        self._group_gauges.register(self.groups, self.shares)
        self.replicas.start_timers()
        self.log_cleaner.start()
        await self._registration.unfence()

    def _publish_brokers(self, image: MetadataImage, delta: MetadataDelta | None = None) -> None:
        """Tell the data path where clients reach brokers; only when one of them changed, if there is a delta."""
        native = self._connections.native if self._connections is not None else None
        if native is None or (delta is not None and not delta.changed_brokers):
            return
        brokers = image.cluster.brokers
        native.publish_brokers(
            [
                [
                    (address.broker_id, address.host, address.port, address.rack)
                    for address in leader_addresses(image, brokers, end_point.listener_name)
                ]
                for end_point in self.config.listeners
            ]
        )

    def _make_transactions(self) -> None:
        self._transaction_services = transaction_services(
            self.config,
            metrics=self.metrics,
            now_ms=self._coordinators_clock.now_ms,
            metadata=self.metadata,
            partitions=self.partitions,
            groups=self.groups,
            topics=self.topic_creation,
            tasks=self.tasks,
            take_producer_id=self.producer_ids.take_or_request,
        )
        self.transactions = self._transaction_services.coordinator
        self.broker_links = self._transaction_services.links

    def _on_group_event(self, runner: ShardRunner[GroupShard], event: object) -> None:
        self.share_admin.on_event(runner, event)

    def _make_shares(self) -> None:
        self.shares, self.share_admin = share_groups(
            self.config,
            now_ms=self._coordinators_clock.now_ms,
            metadata=self.metadata,
            partitions=self.partitions,
            topics=self.topic_creation,
            tasks=self.tasks,
            links=self.broker_links,
            gauges=self._group_gauges,
        )

    def _on_partition_changed(self, partition: Partition) -> None:
        self.shares.on_partition_changed(partition)
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            self.groups.follow_partition(self.metadata.image, partition.index)
        elif partition.topic == TRANSACTION_STATE_TOPIC:
            self.transactions.follow_partition(self.metadata.image, partition.index)
        elif partition.topic == SHARE_GROUP_STATE_TOPIC:
            self.shares.coordinator.follow_partition(self.metadata.image, partition.index)

    def _bind(self) -> None:
        if self._connections is None:
            raise NodeClosedError("the node was stopped")
        self._acceptors = [
            Acceptor(
                self.loop,
                end_point,
                self._connections,
                is_controller_listener=end_point.listener_name in self.config.controller_listener_names,
                tls=self.config.server_tls(end_point.listener_name),
                sasl=self._sasl(end_point.listener_name),
                index=index,
            )
            for index, end_point in enumerate(self.config.listeners)
        ]

    def _sasl(self, listener_name: str) -> SaslListener | None:
        settings = self.config.sasl(listener_name)
        if settings is None:
            return None
        from kraftlog.node.sasl_settings import credentials_in, sasl_listener

        # Broker listeners accept once the registration is committed, and with it all that was before it.
        return sasl_listener(settings, credentials_in(lambda: self.metadata.image))

    async def stop(self) -> None:
        """Stop gracefully: no new connections, controlled shutdown, everything flushed, clean-shutdown file written."""
        if not self._is_running:
            return
        self._is_running = False
        for acceptor in self._acceptors:
            if not acceptor.is_controller_listener:
                acceptor.close()
        is_clean = True
        if self.config.is_broker:
            if self._registration is not None:
                if self.config.get_bool("controlled.shutdown.enable"):
                    self.replicas.fetchers.leave()
                    await self._registration.shut_down()
                else:
                    self._registration.stop()
            if self._connections is not None:
                self._connections.stop_reading()
            self._group_gauges.close()
            self.groups.stop()
            self._transaction_services.stop()
            self.shares.stop()
            self.broker_links.close()
            await self.tasks.cancel_all()
            if self._connections is not None:
                await self._connections.drain()
            is_clean = await self.replicas.stop()
        await self._stop_quorum()
        self.metrics_listener.close()
        for acceptor in self._acceptors:
            acceptor.close()
        if self._connections is not None:
            self._connections.close_all()
        # After a failed write or fsync only recovery finds out what the metadata log still has.
        is_clean = is_clean and self.metadata.replica.failure is None
        broker_epoch = self._registration.broker_epoch if self._registration is not None else -1
        for log_dir in self.log_dirs:
            if is_clean and log_dir.is_online:
                log_dir.write_clean_shutdown(broker_epoch)
            log_dir.release()
        self.log_dirs.clear()

    async def _stop_quorum(self) -> None:
        self._authorization.stop()
        if self._controller_registration is not None:
            self._controller_registration.stop()
        if hasattr(self, "controllers"):
            self.controllers.stop()
        await self.metadata.stop()

    async def _abandon(self) -> None:
        """A start that failed gives back what it took."""
        self.metrics_listener.close()
        for acceptor in self._acceptors:
            acceptor.close()
        if self._connections is not None:
            self._connections.close_all()
        if hasattr(self, "replicas"):
            await self.replicas.stop()
        if hasattr(self, "metadata"):
            await self._stop_quorum()
        for log_dir in self.log_dirs:
            log_dir.release()
        self.log_dirs.clear()
