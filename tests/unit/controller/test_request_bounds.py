"""Requests that name more listeners, features or replicas than a cluster has are refused before they are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.controller.broker_registration import check_size
from kraftlog.controller.feature_control import FeatureControl
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.raft.codec.shared_fields import endpoints_of
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest

LIMIT = 1_000


@pytest.mark.parametrize("count", [LIMIT, LIMIT + 1])
def test_registration_beyond_the_bound_is_invalid(count: int) -> None:
    listener = BrokerRegistrationRequest.Listener(name="L")
    request = BrokerRegistrationRequest(listeners=[listener] * count)
    if count == LIMIT:
        check_size(request)
        return
    for refused, directories in ((request, 0), (BrokerRegistrationRequest(), count)):
        with pytest.raises(KafkaError) as raised:
            check_size(refused, directories)
        assert raised.value.code == ErrorCode.INVALID_REGISTRATION


def test_listeners_of_a_voter_beyond_the_bound_are_invalid() -> None:
    listeners = [AddRaftVoterRequest.Listener(name=str(number), host="h", port=1) for number in range(LIMIT + 1)]
    assert len(endpoints_of(listeners[1:])) == LIMIT
    with pytest.raises(KafkaError) as raised:
        endpoints_of(listeners)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_feature_updates_beyond_the_bound_are_invalid() -> None:
    image: Any = SimpleNamespace(features={})
    configs: Any = None
    control = FeatureControl(image, configs, node_id=1, kraft_version=lambda: 1)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="f")
    request = UpdateFeaturesRequest(feature_updates=[update] * (LIMIT + 1))
    assert control.update_features(request).response.error_code == ErrorCode.INVALID_REQUEST
