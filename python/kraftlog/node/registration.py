"""This broker's place in the cluster: register, be unfenced, send heartbeats, leave."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, LogError
from kraftlog.features import supported_ranges
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kraftlog.node.identity import NodeIdentity
    from kraftlog.runtime.metadata.controller_channel import ControllerChannel
    from kraftlog.storage.log_dir import LogDir
    from kraftlog.types import Uuid

__all__ = ["BrokerRegistration", "BrokerRegistrationSettings", "BrokerState"]

logger = logging.getLogger(__name__)

SHUT_DOWN_TIMEOUT_S = 5.0
SHUT_DOWN_RETRY_S = 0.05
UNFENCE_RETRY_S = 0.05
# Between heartbeats that ask whether this broker has caught up, as in Kafka's BrokerLifecycleManager.
CATCH_UP_RETRY_S = 0.01


class BrokerState(IntEnum):
    """What a broker does, with the numbers of Kafka's ``BrokerState``."""

    NOT_RUNNING = 0
    STARTING = 1
    """Registered, and behind its registration in the metadata."""
    RECOVERY = 2
    """Opens its logs, fenced."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationSettings:
    """Who this broker is, and how often it says so.

    Args:
        identity: With the listeners for clients.
        rack: broker.rack.
        directory_ids: Of the directories in log.dirs that can be read.
        heartbeat_interval_ms: broker.heartbeat.interval.ms.
        registration_timeout_ms: initial.broker.registration.timeout.ms.
        directory_timeout_ms: log.dir.failure.timeout.ms.
    """

    identity: NodeIdentity
    rack: str | None
    directory_ids: tuple[Uuid, ...]
    heartbeat_interval_ms: int
    registration_timeout_ms: int
    directory_timeout_ms: int


class BrokerRegistration:
    """The broker's half of KIP-631.

    Args:
        settings: Who this broker is.
        log_dirs: The data directories; some may go offline later.
        channel: The way to the active controller.
        applied_offset: Gives the offset of the last metadata record that this broker has applied.
        on_fatal: Called if the controller does not learn of a failed directory in time.
        cordoned: Gives the ids of cordoned directories; None while they are not known (KAFKA-20441).

    Attributes:
        broker_epoch: Offset of the registration's record; -1 before.
        state: What this broker does.
    """

    def __init__(
        self,
        settings: BrokerRegistrationSettings,
        log_dirs: Sequence[LogDir],
        channel: ControllerChannel,
        applied_offset: Callable[[], int],
        on_fatal: Callable[[LogError], None],
        cordoned: Callable[[], Sequence[Uuid] | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._broker_id = settings.identity.node_id
        self._log_dirs = log_dirs
        self._channel = channel
        self._applied_offset = applied_offset
        self.broker_epoch = -1
        self.state = BrokerState.NOT_RUNNING
        self.incarnation_id = random_uuid()
        self._on_fatal = on_fatal
        self._cordoned = cordoned
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[BrokerHeartbeatResponse] | None = None
        self._must_beat_again = False
        self._report_deadline: asyncio.TimerHandle | None = None
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._is_stopping = False
        self._refusal = 0
        self._is_ready = False

    async def register(self) -> None:
        """Register, fenced; again after broker.heartbeat.interval.ms, whatever the error.

        Raises:
            KafkaError: The controller does not accept it within initial.broker.registration.timeout.ms: its last error,
                such as DUPLICATE_BROKER_REGISTRATION while another process with this id lives.
        """
        self.state = BrokerState.STARTING
        settings = self._settings
        request = BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=settings.identity.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in settings.identity.listeners
            ],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_ranges().items()
            ],
            rack=settings.rack,
            log_dirs=sorted(settings.directory_ids),
            previous_broker_epoch=self._previous_broker_epoch(),
        )
        try:
            async with asyncio.timeout(settings.registration_timeout_ms / 1000):
                while True:
                    if await self._try_to_register(request):
                        return
                    await asyncio.sleep(self._interval_s)
        except TimeoutError:
            raise KafkaError(
                self._refusal or ErrorCode.REQUEST_TIMED_OUT,
                f"broker {self._broker_id} was not registered within initial.broker.registration.timeout.ms",
            ) from None

    async def _try_to_register(self, request: BrokerRegistrationRequest) -> bool:
        """Whether that is done; not yet, for example, while the session of a process that was killed lasts."""
        try:
            response = await self._channel.request(request)
        except KafkaError as error:  # raised by the channel where the controller is in this process
            error_code, text = error.code, error.message or ""
        else:
            error_code, text = response.error_code, ""
            if not error_code:
                self.broker_epoch = response.broker_epoch
                return True
        if error_code != self._refusal:
            if error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                logger.warning("another process is registered as broker %d: waiting for it to go", self._broker_id)
            else:
                name = ErrorCode.name_of(error_code)
                logger.error("broker %d cannot be registered and tries again: %s %s", self._broker_id, name, text)
        self._refusal = error_code
        return False

    async def catch_up(self) -> None:
        """Send heartbeats until the controller says that this broker has its registration; then keep sending them.

        The broker stays fenced, and its registration stays valid, while it opens its logs.

        Raises:
            KafkaError: The controller does not know this registration any more.
        """
        while True:
            response = await self._checked_heartbeat("catch up")
            if response.is_caught_up:
                break
            await asyncio.sleep(CATCH_UP_RETRY_S)
        self.state = BrokerState.RECOVERY
        self._arm()

    async def unfence(self) -> None:
        """Say that everything is loaded, and keep saying that this broker lives.

        Raises:
            KafkaError: The controller does not know this registration any more.
        """
        self._is_ready = True
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None:
            await asyncio.gather(self._beating, return_exceptions=True)
        while True:
            response = await self._checked_heartbeat("be unfenced")
            if not response.is_fenced:
                break
            await asyncio.sleep(UNFENCE_RETRY_S)
        self.state = BrokerState.RUNNING
        self._arm()

    async def _checked_heartbeat(self, purpose: str) -> BrokerHeartbeatResponse:
        while True:
            try:
                response = await self._heartbeat(want_shut_down=False)
                error_code = response.error_code
            except KafkaError as error:  # raised by the channel where the controller is in this process
                response, error_code = BrokerHeartbeatResponse(), error.code
            if not error_code:
                return response
            # A controller that has just been elected may not have begun it in time.
            if error_code != ErrorCode.REQUEST_TIMED_OUT:
                raise KafkaError(error_code, f"broker {self._broker_id} cannot {purpose}")
            await asyncio.sleep(UNFENCE_RETRY_S)

    async def shut_down(self) -> None:
        """Controlled shutdown: give up leaderships where somebody else can take them."""
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.stop()
        try:
            async with asyncio.timeout(SHUT_DOWN_TIMEOUT_S):
                delay_s = 0.0
                while not (await self._heartbeat(want_shut_down=True)).should_shut_down:
                    # The first answer comes once the leaderships are given away. The last one has this broker fenced,
                    # when heartbeats of all other brokers have said that they know of that.
                    await asyncio.sleep(delay_s)
                    delay_s = SHUT_DOWN_RETRY_S
        except (KraftlogError, TimeoutError) as error:
            logger.warning("controlled shutdown was not acknowledged: %s", error)

    def stop(self) -> None:
        """Send no more heartbeats: without a controlled shutdown this broker is fenced when its session is over."""
        self._is_stopping = True
        for waiting in (self._timer, self._report_deadline, self._beating):
            if waiting is not None:
                waiting.cancel()

    def report_cordoned_directories(self) -> None:
        """Other directories are cordoned now: send a heartbeat at once if this broker sends any."""
        if not self._is_stopping and self.state in {BrokerState.RECOVERY, BrokerState.RUNNING}:
            self._beat_soon()

    def report_failed_directory(self) -> None:
        """A directory went offline: send a heartbeat at once, and end the node if the controller takes none in time.

        Otherwise the controller would leave this broker the leaderships of replicas that it cannot serve (KIP-858).
        """
        if self._is_stopping:
            return
        if self._report_deadline is None:
            timeout_s = self._settings.directory_timeout_ms / 1000
            self._report_deadline = asyncio.get_running_loop().call_later(timeout_s, self._report_failed)
        self._beat_soon()

    def _beat_soon(self) -> None:
        if self._beating is not None:
            self._must_beat_again = True
        elif self._timer is not None:
            self._timer.cancel()
            self._beat()

    def _report_failed(self) -> None:
        names = ", ".join(str(log_dir.path) for log_dir in self._log_dirs if not log_dir.is_online)
        timeout_ms = self._settings.directory_timeout_ms
        message = f"no controller learnt within log.dir.failure.timeout.ms ({timeout_ms} ms) that {names} is offline"
        self._on_fatal(LogError(message))

    def _previous_broker_epoch(self) -> int:
        """The epoch of the last run when every directory was left cleanly, else -1 (KIP-966)."""
        epochs = {log_dir.previous_broker_epoch if log_dir.was_clean_shutdown else -1 for log_dir in self._log_dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    async def _heartbeat(self, *, want_shut_down: bool) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=not self._is_ready,
            want_shut_down=want_shut_down,
            offline_log_dirs=[log_dir.directory_id for log_dir in self._log_dirs if not log_dir.is_online],
            cordoned_log_dirs=self._cordoned(),
        )
        response: BrokerHeartbeatResponse = await self._channel.request(request)
        offline = {log_dir.directory_id for log_dir in self._log_dirs if not log_dir.is_online}
        if self._report_deadline is not None and not response.error_code and offline <= set(request.offline_log_dirs):
            self._report_deadline.cancel()
            self._report_deadline = None
        return response

    def _arm(self) -> None:
        if not self._is_stopping:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._beat)

    def _beat(self) -> None:
        self._must_beat_again = False
        self._beating = asyncio.get_running_loop().create_task(self._heartbeat(want_shut_down=False))
        self._beating.add_done_callback(self._beat_done)

    def _beat_done(self, task: asyncio.Task[BrokerHeartbeatResponse]) -> None:
        self._beating = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.warning("heartbeat failed: %s", error)
        elif task.result().error_code == ErrorCode.STALE_BROKER_EPOCH:
            logger.error("another process has registered as broker %d", self._broker_id)
            return
        if self._must_beat_again and not self._is_stopping:
            self._beat()
        else:
            self._arm()
