"""The controllers' listener goes from PLAINTEXT to TLS while a client writes (KIP-853, the page quorum-tls.md)."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from pathlib import Path

import pytest

from interop.harness import Java
from interop.story import Story, story
from interop.test_stories import assert_kafka_reads, replicas_agree, stop_all, three_voters
from kraftlog.cli.admin_client import AdminClient
from kraftlog.errors import KraftlogError
from kraftlog.transport.listener import EndPoint
from kraftlog.transport.peer_security import PeerSecurity
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

BROKER = 4
KEY = "message.max.bytes"
# An election with the default time-outs takes at most some seconds; a loaded machine gets more.
LONGEST_GAP_S = 30.0


class Writer(threading.Thread):
    """Sets a setting of the cluster to one number after the other, each until somebody has committed it."""

    def __init__(self, told: Story) -> None:
        super().__init__(daemon=True)
        self._told = told
        self._stopped = threading.Event()
        self.written: list[int] = []
        self.longest_gap_s = 0.0

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)
        assert not self.is_alive(), "a write neither succeeded nor failed"

    def run(self) -> None:
        last_s = time.monotonic()
        value = 1_000_000
        while not self._stopped.is_set():
            if self._write(value):
                self.written.append(value)
                value += 1
                self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - last_s)
                last_s = time.monotonic()
            time.sleep(0.02)
        self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - last_s)

    def _write(self, value: int) -> bool:
        """Try each address, with TLS and without, as a client does that was given them all."""
        trusted = next(self._told.home.rglob("trusted.pem"), self._told.home / "trusted.pem")
        ways: list[tuple[int, ssl.SSLContext | None]] = [(9091 + n, None) for n in range(3)]
        if trusted.exists() and trusted.stat().st_size:
            context = ssl.create_default_context(cafile=str(trusted))
            ways += [(9191 + n, context) for n in range(3)]
        for port, context in ways:
            try:
                if asyncio.run(self._write_to(EndPoint("", "127.0.0.1", self._told.port(port)), context, value)):
                    return True
            except (KraftlogError, OSError, TimeoutError):
                continue
        return False

    @staticmethod
    async def _write_to(server: EndPoint, context: ssl.SSLContext | None, value: int) -> bool:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=KEY, config_operation=0, value=str(value))
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER, resource_name="", configs=(config,)
        )
        async with AdminClient([server], is_controller=True, security=PeerSecurity(context), timeout_s=3) as client:
            response = await client.request(IncrementalAlterConfigsRequest(resources=(resource,)))
        return all(topic_response.error_code == 0 for topic_response in response.responses)


def test_a_node_listens_with_tls(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("tls.md")
        refused = told.run("kraftlog features --bootstrap-server 127.0.0.1:9091 describe 2>&1 || echo refused\n")
        assert "refused" in refused


def test_a_node_controls_access(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("access-control.md")
        listed = told.run("kafka-acls --bootstrap-server 127.0.0.1:9091 --command-config node.properties --list\n")
        assert "(principal=User:CN=alice, host=*, operation=READ, permissionType=ALLOW)" in listed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("ENDP-08", "ENDP-20", "ENDP-21", "KVER-17")
def test_the_listener_is_changed_to_tls_while_a_client_writes(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        three_voters(told)
        writer = Writer(told)
        writer.start()
        try:
            told.read("quorum-tls.md")
        finally:
            writer.stop()
        stop_all(told)
        replicas_agree(told)
        dumped = assert_kafka_reads(told, java)
        lost = [value for value in writer.written if f'"value":"{value}"' not in dumped]
        print(f"{len(writer.written)} writes during the change, the longest wait for one {writer.longest_gap_s:.1f} s")
        assert not lost, f"acknowledged and gone: {lost}"
        assert len(writer.written) > 20
        assert writer.longest_gap_s < LONGEST_GAP_S
