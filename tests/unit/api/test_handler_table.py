"""Which listeners serve which APIs."""

from __future__ import annotations

from kraftlog.wire.registry import API_BY_KEY

ALTER_PARTITION = 56


def test_alter_partition_is_for_controllers_alone():
    """ISR-36: versions 2 and 3."""
    api = API_BY_KEY[ALTER_PARTITION]
    assert api.listeners == ("controller",)
    assert (api.min_version, api.max_version) == (2, 3)
