"""Client quotas of a node, and what one request uses of them (KIP-13, KIP-124, KIP-219, KIP-599).

A client above its quota is answered at once. The answer says how long the client has to wait, and the connection takes
no request for that time. Kafka's ``ClientQuotaManager``, ``KafkaApis`` and ``RequestHandlerHelper`` do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kraftlog.quota.limits import QuotaLimits
from kraftlog.quota.mutation_quota import MutationCharge, MutationQuota
from kraftlog.quota.rate_quota import RateQuota
from kraftlog.quota.sampled_rate import Windows
from kraftlog.wire.registry import API_BY_KEY

if TYPE_CHECKING:
    from kraftlog.api.slices import Slices
    from kraftlog.controller import MetadataDelta, MetadataImage
    from kraftlog.transport.exchange import PeerContext
    from kraftlog.transport.socket import Output

__all__ = ["ClientQuotas", "QuotaWindows", "RequestQuota", "forwarded_throttle_ms"]

_PRODUCE_KEY: Final = 0
_SHARE_FETCH_KEY: Final = 78
_RATE_MAX: Final = (1 << 31) - 1
_NS_PER_PERCENT: Final = 10_000_000  # of one second
_NS_PER_MS: Final = 1_000_000
_IP_KEY: Final = "connection_creation_rate"


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    """How use is measured.

    Attributes:
        rates: quota.window.size.seconds and quota.window.num.
        mutations: controller.quota.window.size.seconds and controller.quota.window.num.
    """

    rates: Windows = field(default_factory=Windows)
    mutations: Windows = field(default_factory=Windows)


class ClientQuotas:
    """The client quotas of a node; they follow the committed metadata.

    Args:
        windows: How use is measured.
        clock_ns: A clock that never goes back, also while a callback runs.

    Attributes:
        is_active: Whether any quota of users or client ids exists.
        on_data_judged: Called with whether Produce and Fetch requests have to be judged, when that changes.
        on_connection_rates: Called with the connections per second that an address may make, as they are committed:
            the default, None if there is none, and those of single addresses (KIP-612).
    """

    def __init__(self, windows: QuotaWindows, clock_ns: Callable[[], int]) -> None:
        self.clock_ns = clock_ns
        self.is_active = False
        self.on_data_judged: Callable[[bool], None] = lambda _: None
        self.on_connection_rates: Callable[[int | None, dict[str, int]], None] = lambda _default, _by_address: None
        self.produce = RateQuota(windows.rates)
        self.fetch = RateQuota(windows.rates)
        # A client whose processing took long waits for one window at most, as in Kafka.
        self.request_time = RateQuota(windows.rates, throttle_ms_max=windows.rates.window_ms)
        self.mutations = MutationQuota(windows.mutations)
        self._judges_data = False

    def clock_ms(self) -> int:
        """Milliseconds on the clock."""
        return self.clock_ns() // _NS_PER_MS

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow one committed batch of metadata."""
        if delta.quotas_changed:
            self.load(image)

    def load(self, image: MetadataImage) -> None:
        """Take over the quotas of the metadata."""
        quotas = image.security.client_quotas
        self.produce.limits = QuotaLimits.of("producer_byte_rate", quotas)
        self.fetch.limits = QuotaLimits.of("consumer_byte_rate", quotas)
        self.request_time.limits = QuotaLimits.of("request_percentage", quotas)
        self.mutations.limits = QuotaLimits.of("controller_mutation_rate", quotas)
        judges_data = bool(self.produce.limits or self.fetch.limits or self.request_time.limits)
        self.is_active = judges_data or bool(self.mutations.limits)
        if judges_data != self._judges_data:
            self._judges_data = judges_data
            self.on_data_judged(judges_data)
        rates = {
            dict(entity).get("ip"): _whole_rate(values[_IP_KEY])
            for entity, values in quotas.items()
            if _IP_KEY in values
        }
        default = rates.pop(None, None)
        self.on_connection_rates(default, {address: rate for address, rate in rates.items() if address is not None})

    def begin(
        self, peer: PeerContext, api_key: int, client_id: str | None, frame_bytes: int, began_ns: int
    ) -> RequestQuota:
        """What a request uses.

        Args:
            peer: Who sent it.
            api_key: Of the request.
            client_id: Of its header.
            frame_bytes: Its size, without the size before it.
            began_ns: When the work on it began.
        """
        return RequestQuota(self, peer, api_key, client_id or "", frame_bytes, began_ns)


def _whole_rate(rate: float) -> int:
    """Connections per second, as an ``int`` of Java has them, whatever number the metadata holds."""
    return int(min(rate, _RATE_MAX)) if rate > 0 else 0


class RequestQuota:
    """What one request uses of its client's quotas, and how long the client has to wait for it.

    Time counts while the event loop works on the request: from ``began_ns``, or ``resume``, to ``pause``.
    """

    __slots__ = (
        "_api_key",
        "_began_ns",
        "_charge",
        "_client_id",
        "_frame_bytes",
        "_is_exempt",
        "_judged_ms",
        "_peer",
        "_quotas",
        "_used_ns",
    )

    def __init__(
        self, quotas: ClientQuotas, peer: PeerContext, api_key: int, client_id: str, frame_bytes: int, began_ns: int
    ) -> None:
        self._quotas = quotas
        self._peer = peer
        self._api_key = api_key
        self._client_id = client_id
        self._frame_bytes = frame_bytes
        self._began_ns: int | None = began_ns
        self._used_ns = 0
        self._is_exempt = False
        self._judged_ms: int | None = None
        self._charge: MutationCharge | None = None

    @property
    def _user(self) -> str:
        return self._peer.principal.name

    def pause(self) -> None:
        """The request waits."""
        self._used_ns = self._used_until_now()
        self._began_ns = None

    def resume(self) -> None:
        """The loop works on the request again."""
        self._began_ns = self._quotas.clock_ns()

    def timed(self, slices: Slices[Any]) -> Slices[Any]:
        """The same slices; the time between them does not count."""
        try:
            while True:
                self.resume()
                try:
                    awaited = next(slices)
                except StopIteration as stop:
                    return stop.value
                finally:
                    self.pause()
                yield awaited
        finally:
            slices.close()

    def exempt(self) -> None:
        """A replica asks, not a client."""
        self._is_exempt = True

    def charge_mutations(self, *, is_strict: bool) -> MutationCharge | None:
        """What changes at the controller are charged to; None if no quota applies.

        Args:
            is_strict: Whether the version of the request knows THROTTLING_QUOTA_EXCEEDED.
        """
        quotas = self._quotas
        self._charge = quotas.mutations.charge(
            self._user, self._client_id, is_strict=is_strict, clock_ms=quotas.clock_ms
        )
        return self._charge

    def most_fetched(self) -> int | None:
        """Bytes of an answer above which a consumer would have to wait in any case; None if there is no such bound."""
        most = self._quotas.fetch.most_at_once(self._user, self._client_id)
        return None if most is None else int(min(most, 2**31 - 1))

    def judge_fetch(self, size_bytes: int) -> int:
        """Count the answer to a consumer.

        Returns:
            Milliseconds that the consumer has to wait. If above 0 it must not get the records: they are not counted.
        """
        quotas, now_ms = self._quotas, self._quotas.clock_ms()
        by_bytes_ms = quotas.fetch.record(self._user, self._client_id, size_bytes, now_ms)
        throttle_ms = max(by_bytes_ms, self._count_time(now_ms))
        if throttle_ms:
            quotas.fetch.take_back(self._user, self._client_id, size_bytes, now_ms)
        self._judged_ms = throttle_ms
        return throttle_ms

    def judge(self, response: Any) -> Any:
        """Count what is not counted yet, mute the connection if the client has to wait, and say so in the response.

        Args:
            response: A message; None where the protocol wants no response.

        Returns:
            The response with its throttle_time_ms.
        """
        if self._is_exempt:
            return response
        throttle_ms = self._judged_ms
        if throttle_ms is None:
            throttle_ms = self._judge(response)
        has_field = response is not None and "throttle_time_ms" in type(response).FIELDS
        if has_field:
            # What the active controller said of a request that was sent on.
            throttle_ms = max(throttle_ms, response.throttle_time_ms)
        if throttle_ms and self._peer.throttle is not None:
            self._peer.throttle.mute(throttle_ms)
        if has_field and throttle_ms != response.throttle_time_ms:
            return replace(response, throttle_time_ms=throttle_ms)
        return response

    def _judge(self, response: Any) -> int:
        quotas, now_ms = self._quotas, self._quotas.clock_ms()
        throttle_ms = 0
        if self._api_key == _PRODUCE_KEY:
            throttle_ms = quotas.produce.record(self._user, self._client_id, self._frame_bytes, now_ms)
        elif self._api_key == _SHARE_FETCH_KEY and response is not None:
            throttle_ms = quotas.fetch.record(self._user, self._client_id, _size_of_records(response), now_ms)
        if response is not None:  # acks=0 is exempt
            throttle_ms = max(throttle_ms, self._count_time(now_ms))
        if self._charge is not None:
            throttle_ms = max(throttle_ms, self._charge.throttle_ms())
        self._judged_ms = throttle_ms
        return throttle_ms

    def _count_time(self, now_ms: int) -> int:
        percent = self._used_until_now() / _NS_PER_PERCENT
        return self._quotas.request_time.record(self._user, self._client_id, percent, now_ms)

    def _used_until_now(self) -> int:
        return self._used_ns + (0 if self._began_ns is None else self._quotas.clock_ns() - self._began_ns)


def _size_of_records(response: Any) -> int:
    return sum(
        partition.records.size_bytes if hasattr(partition.records, "size_bytes") else len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    )


def forwarded_throttle_ms(api_key: int, api_version: int, outputs: Sequence[Output]) -> int:
    """The throttle_time_ms of a response that the active controller has encoded; 0 if it has none.

    Every API that is forwarded has the field at the beginning of its body, if at all.
    """
    schema = API_BY_KEY[api_key].response
    name, _, versions, *_ = schema.SCHEMA.partition("\n")[0].split()
    if name != "throttleTimeMs" or api_version < int(versions.rstrip("+")):
        return 0
    flexible = schema.FLEXIBLE_VERSIONS
    # Size, correlation id, and from flexible versions on the tagged fields of the header, of which there are none.
    start = 9 if flexible is not None and flexible[0] <= api_version <= flexible[1] else 8
    data = b"".join(bytes(output) for output in outputs[:2])
    if len(data) < start + 4 or (start == 9 and data[8]):
        return 0
    return max(0, int.from_bytes(data[start : start + 4], "big", signed=True))
