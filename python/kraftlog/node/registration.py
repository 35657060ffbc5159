"""This broker's place in the cluster: register, be unfenced, send heartbeats, leave."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
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

__all__ = ["BrokerRegistration", "BrokerRegistrationSettings"]

logger = logging.getLogger(__name__)

SHUT_DOWN_TIMEOUT_S = 5.0
SHUT_DOWN_RETRY_S = 0.05
UNFENCE_RETRY_S = 0.05
REGISTER_RETRY_S = 0.5


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

    Attributes:
        broker_epoch: Offset of the registration's record; -1 before.
    """

    def __init__(
        self,
        settings: BrokerRegistrationSettings,
        log_dirs: Sequence[LogDir],
        channel: ControllerChannel,
        applied_offset: Callable[[], int],
        on_fatal: Callable[[LogError], None],
    ) -> None:
        self._settings = settings
        self._broker_id = settings.identity.node_id
        self._log_dirs = log_dirs
        self._channel = channel
        self._applied_offset = applied_offset
        self.broker_epoch = -1
        self.incarnation_id = random_uuid()
        self._on_fatal = on_fatal
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[BrokerHeartbeatResponse] | None = None
        self._must_beat_again = False
        self._report_deadline: asyncio.TimerHandle | None = None
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._is_stopping = False
        self._is_duplicate = False

    async def register(self) -> None:
        """Register, fenced.

        Raises:
            KafkaError: The controller refuses, or does not accept it within initial.broker.registration.timeout.ms:
                DUPLICATE_BROKER_REGISTRATION, another process with this id lives.
        """
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
                    await asyncio.sleep(REGISTER_RETRY_S)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION if self._is_duplicate else ErrorCode.REQUEST_TIMED_OUT,
                f"broker {self._broker_id} was not registered within initial.broker.registration.timeout.ms",
            ) from None

    async def _try_to_register(self, request: BrokerRegistrationRequest) -> bool:
        """Whether that is done.

        Not yet while the session of an earlier process, which was killed, has not ended, or when the controller could
        not store it in time, as after an election.

        Raises:
            KafkaError: The controller refuses for good.
        """
        try:
            response = await self._channel.request(request)
            if response.error_code:
                raise KafkaError(response.error_code, f"broker {self._broker_id} cannot be registered")
        except KafkaError as error:  # raised by the channel where the controller is in this process
            is_duplicate = error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if not is_duplicate and not error.retriable:
                raise
            if not is_duplicate:
                logger.info("broker %d is not registered yet: %s", self._broker_id, error)
            elif not self._is_duplicate:
                logger.warning("another process is registered as broker %d: waiting for it to go", self._broker_id)
            self._is_duplicate = is_duplicate
            return False
        self.broker_epoch = response.broker_epoch
        return True

    async def unfence(self) -> None:
        """Say that everything is loaded, and keep saying that we live."""
        while True:
            try:
                response = await self._heartbeat(want_shut_down=False)
                if response.error_code:
                    raise KafkaError(response.error_code, f"broker {self._broker_id} cannot be unfenced")
                if not response.is_fenced:
                    break
            except KafkaError as error:  # raised by the channel where the controller is in this process
                # A controller that has just been elected may not have begun it in time.
                if error.code != ErrorCode.REQUEST_TIMED_OUT:
                    raise
            await asyncio.sleep(UNFENCE_RETRY_S)
        self._arm()

    async def shut_down(self) -> None:
        """Controlled shutdown: give up leaderships where somebody else can take them."""
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
        for timer in (self._timer, self._report_deadline):
            if timer is not None:
                timer.cancel()

    def report_failed_directory(self) -> None:
        """A directory went offline: send a heartbeat at once, and end the node if the controller takes none in time.

        Otherwise the controller would leave this broker the leaderships of replicas that it cannot serve (KIP-858).
        """
        if self._is_stopping:
            return
        if self._report_deadline is None:
            timeout_s = self._settings.directory_timeout_ms / 1000
            self._report_deadline = asyncio.get_running_loop().call_later(timeout_s, self._report_failed)
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
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=[log_dir.directory_id for log_dir in self._log_dirs if not log_dir.is_online],
        )
        response: BrokerHeartbeatResponse = await self._channel.request(request)
        offline = {log_dir.directory_id for log_dir in self._log_dirs if not log_dir.is_online}
        if self._report_deadline is not None and not response.error_code and offline <= set(request.offline_log_dirs):
            self._report_deadline.cancel()
            self._report_deadline = None
        return response

    def _arm(self) -> None:
        if not self._is_stopping:
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
