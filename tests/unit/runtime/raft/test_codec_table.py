"""The table of the replicas' APIs has every message of the core and of the wire once."""

from __future__ import annotations

import typing

import pytest

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec import table
from kraftlog.types import METADATA_LOG
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.wire.registry import API_BY_KEY


def test_every_message_of_the_core_has_one_codec():
    for field, union in (("core_request", raft.Request), ("core_response", raft.Response)):
        found = [getattr(codec, field) for codec in table.CODECS]
        assert len(found) == len(set(found))
        assert set(found) == set(typing.get_args(union)), field


def test_each_codec_is_of_one_api():
    for codec in table.CODECS:
        api = API_BY_KEY[codec.api_key]
        assert (codec.wire_request, codec.wire_response) == (api.request, api.response)
        assert table.api_key_of(codec.core_request.__new__(codec.core_request)) == codec.api_key


def test_messages_of_other_apis_are_refused():
    with pytest.raises(TypeError, match="MetadataRequest is no request to a replica"):
        table.to_core_request(MetadataRequest(), 13)
    with pytest.raises(TypeError, match="ApiVersionsRequest is no request to a replica"):
        table.to_core_request(ApiVersionsRequest(), 4)
    with pytest.raises(TypeError, match="MetadataResponse answers no request of a replica"):
        table.to_core_response(MetadataResponse(), listener_name="A", topic=METADATA_LOG)
    with pytest.raises(TypeError, match="the core does not answer with ApiVersionsResponse"):
        table.to_wire_response(raft.ApiVersionsResponse(), version=4, listener_name="A")
