"""A broker whose process has ended is fenced before its session is over; one that lives or stands still is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from kraftlog.api.context import RequestContext
from kraftlog.api.handlers import broker_heartbeat
from kraftlog.controller.cluster_image import ListenerEndpoint
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime import broker_probe
from kraftlog.runtime.broker_probe import Finding
from kraftlog.runtime.metadata import broker_watch
from kraftlog.runtime.metadata.broker_watch import BrokerWatch
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext, PeerLoss
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from metadata_fixture import Cluster
from quorum_fixture import format_directory, started
from waiting import settle, until

SSL = 1


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(broker_watch, "_PROBES_AFTER_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(broker_probe, "_PROBE_TIMEOUT_S", 0.2)


@asynccontextmanager
async def listener(how: str) -> AsyncIterator[int]:
    """A listener that ``answers``, ``ends`` each connection, the first two (``restarts``), is ``silent`` or ``closed``.

    Gives its port.
    """
    if how == "closed":
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            yield bound.getsockname()[1]
        return
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        if how == "silent":
            return
        await reader.readexactly(19)
        if how == "answers" or (how == "restarts" and len(accepted) > 2):
            writer.write(b"\0\0\0\x06")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in accepted:
            writer.close()


def brokers(**ports: int) -> SimpleNamespace:
    """An image with these brokers, ``b2=port``; a port below zero is one of SSL."""
    found = {
        int(name[1:]): SimpleNamespace(
            broker_id=int(name[1:]),
            epoch=70 + int(name[1:]),
            fenced=False,
            end_points=(ListenerEndpoint("A", "127.0.0.1", abs(port), SSL if port < 0 else 0),),
        )
        for name, port in ports.items()
    }
    return SimpleNamespace(cluster=SimpleNamespace(brokers=found))


def watch_over(image: SimpleNamespace, error: KafkaError | None = None) -> tuple[BrokerWatch, list[tuple[int, int]]]:
    fenced: list[tuple[int, int]] = []
    loop = asyncio.get_running_loop()

    def fence(broker_id: int, broker_epoch: int) -> asyncio.Future[bool]:
        fenced.append((broker_id, broker_epoch))
        future: asyncio.Future[bool] = loop.create_future()
        if error is None:
            future.set_result(True)
        else:
            future.set_exception(error)
        return future

    return BrokerWatch(1, loop, lambda: image, fence), fenced


def test_a_listener_that_refuses_once_and_answers_then_is_of_a_broker_that_lives():
    async def check() -> None:
        async with listener("restarts") as port:
            watch, fenced = watch_over(brokers(b2=port))
            watch.begin()  # which looks at the listener once
            await idle(watch)
            loss = PeerLoss()
            watch.heard(2, loss)
            loss.tell()
            await idle(watch)
            assert fenced == []
            watch.end()

    asyncio.run(check())


async def idle(watch: BrokerWatch) -> None:
    await until(lambda: not watch._tasks)
    await settle()


@pytest.mark.parametrize(
    ("how", "is_ssl", "expected"),
    [
        ("closed", False, [(2, 72)]),
        ("closed", True, [(2, 72)]),
        ("ends", False, [(2, 72)]),
        ("answers", False, []),
        ("silent", False, []),
        ("silent", True, []),
    ],
)
def test_the_listener_decides_what_a_lost_connection_means(how, is_ssl, expected):
    async def check() -> None:
        async with listener(how) as port:
            image = brokers(b2=-port if is_ssl else port)
            watch, fenced = watch_over(image)
            watch.begin()
            await idle(watch)
            assert fenced == [], "no other broker answers: the whole cluster may be about to start"
            loss = PeerLoss()
            watch.heard(2, loss)
            watch.heard(2, loss)
            loss.tell()
            await idle(watch)
            assert fenced == expected
            watch.end()

    asyncio.run(check())


def test_a_heartbeat_over_another_connection_wins():
    async def check() -> None:
        async with listener("closed") as port:
            watch, fenced = watch_over(brokers(b2=port))
            watch.begin()
            first, second, third = PeerLoss(), PeerLoss(), PeerLoss()
            watch.heard(2, first)
            watch.heard(2, second)
            first.tell()
            await idle(watch)
            assert fenced == []
            second.tell()
            watch.heard(2, third)  # while it is looked at
            await idle(watch)
            assert fenced == []

    asyncio.run(check())


def test_a_new_controller_fences_who_ended_before_if_another_broker_answers():
    async def check() -> None:
        async with listener("closed") as closed, listener("answers") as answering, listener("silent") as silent:
            image = brokers(b1=closed, b2=closed, b3=answering, b4=silent, b5=closed)
            image.cluster.brokers[5].fenced = True
            watch, fenced = watch_over(image)
            watch.begin()
            await idle(watch)
            assert fenced == [(2, 72)], "not its own broker, and none that is fenced"

    asyncio.run(check())


def test_a_broker_that_another_probe_finds_alive_or_that_is_heard_of_meanwhile_is_not_gone(monkeypatch):
    asked: list[tuple[int, asyncio.Future[Finding]]] = []

    async def probe(end_points: tuple[ListenerEndpoint, ...]) -> Finding:
        asked.append((end_points[0].port, asyncio.get_running_loop().create_future()))
        return await asked[-1][1]

    async def answered(port: int, finding: Finding) -> None:
        """The oldest probe of that port is answered, as soon as there is one."""
        await until(lambda: any(at == port for at, _ in asked))
        index = next(index for index, (at, _) in enumerate(asked) if at == port)
        asked.pop(index)[1].set_result(finding)
        await settle()

    monkeypatch.setattr(broker_watch, "probe_broker", probe)

    async def check() -> None:
        watch, fenced = watch_over(brokers(b2=2, b3=3))
        watch.begin()
        await until(lambda: len(asked) == 2)
        first, second = PeerLoss(), PeerLoss()
        watch.heard(2, first)
        first.tell()
        await until(lambda: len(asked) == 3)
        oldest = asked.pop(next(index for index, (port, _) in enumerate(asked) if port == 2))
        await answered(2, Finding.GONE)
        oldest[1].set_result(Finding.ALIVE)  # of the look at all brokers
        await answered(2, Finding.GONE)
        await answered(3, Finding.UNKNOWN)
        await idle(watch)
        assert fenced == []
        watch.end()
        watch.begin()
        await answered(2, Finding.GONE)
        await answered(3, Finding.ALIVE)
        await answered(2, Finding.GONE)
        watch.heard(2, second)
        await answered(2, Finding.GONE)
        await idle(watch)
        assert fenced == []
        watch.end()

    asyncio.run(check())


def test_nothing_is_looked_at_without_the_role_and_a_refused_fencing_is_left_to_the_session():
    async def check() -> None:
        async with listener("closed") as port:
            watch, fenced = watch_over(brokers(b2=port), KafkaError(ErrorCode.NOT_CONTROLLER))
            early, late, last = PeerLoss(), PeerLoss(), PeerLoss()
            watch.heard(2, early)
            early.tell()
            assert not watch._tasks
            watch.begin()
            watch.heard(2, late)
            late.tell()
            await idle(watch)
            assert fenced == [(2, 72)]
            watch.heard(2, last)
            watch.end()
            last.tell()
            await idle(watch)
            assert fenced == [(2, 72)]

    asyncio.run(check())


@pytest.mark.spec("CPRT-34")
def test_a_controller_fences_a_broker_whose_heartbeat_connection_ended_long_before_its_session(tmp_path, caplog):
    async def check() -> None:
        format_directory(tmp_path / "data")
        quorum = await started(tmp_path / "data", **{"node.id": "1"})
        try:
            async with listener("closed") as port:
                listeners = [BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=port)]
                registration = Cluster.registration(2, listeners=listeners)
                await quorum.submit_request(registration)
                broker = quorum.image.cluster.brokers[2]
                request = BrokerHeartbeatRequest(
                    broker_id=2, broker_epoch=broker.epoch, current_metadata_offset=quorum.image.offset
                )
                stale = BrokerHeartbeatRequest(broker_id=2, broker_epoch=broker.epoch - 1)
                losses = [PeerLoss(), PeerLoss()]
                contexts = [
                    RequestContext(
                        63, 2, 1, "2", PeerContext("CONTROLLER", True, ANONYMOUS, "127.0.0.1", "a:1", loss=loss)
                    )
                    for loss in losses
                ]
                await broker_heartbeat.handle(contexts[0], request, controller=quorum)
                with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
                    await broker_heartbeat.handle(contexts[1], stale, controller=quorum)
                assert not quorum.image.cluster.brokers[2].fenced
                losses[1].tell()
                await settle()
                assert not quorum.image.cluster.brokers[2].fenced, "a stale epoch speaks for nobody"
                losses[0].tell()
                await until(lambda: quorum.image.cluster.brokers[2].fenced)
                await until(lambda: "is fenced before the end of its session" in caplog.text)
                # The next process with this id need not wait for a session.
                again = Cluster.registration(2, incarnation=7)
                assert (await quorum.submit_request(again)).broker_epoch > broker.epoch
        finally:
            await quorum.stop()

    asyncio.run(check())
