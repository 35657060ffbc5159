"""TLS settings in Kafka's keys, and the transport that encrypts."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl

import pytest

from certificates import Authority
from kraftlog.transport.frame_reader import FrameReader
from kraftlog.transport.listener import ConfigError
from kraftlog.transport.tls_settings import TlsSettings, distinguished_name
from kraftlog.transport.tls_socket import TlsTransport

AUTHORITY = Authority()
SERVER, CLIENT = AUTHORITY.issue("server"), AUTHORITY.issue("client")
STRANGER = Authority("somebody else").issue("server")


def settings(identity=SERVER, **changes):
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.certificate,
    }
    found |= {key.replace("_", "."): value for key, value in changes.items()}
    return {key: value for key, value in found.items() if value is not None}


def shake_hands(server, client, host="127.0.0.1"):
    """Client and server over memory alone; the certificate the server saw."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = server.wrap_bio(to_server, to_client, server_side=True)
    right = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(5):
        for side in (right, left):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    right.write(b"x")
    assert left.read(1) == b"x"
    return left.getpeercert(), left.version()


def test_files_and_inline_values_mean_the_same(tmp_path):
    path = SERVER.write(tmp_path / "identity.pem")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(AUTHORITY.certificate)
    from_files = {
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": str(path),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    # Inline values often stand on one line.
    one_line = settings()
    one_line = {key: value.replace("\n", " ") for key, value in one_line.items()}
    for server in (from_files, one_line):
        for client in (from_files, one_line):
            shake_hands(TlsSettings(server).server_context(), TlsSettings(client).client_context())


def test_an_encrypted_key_needs_its_password():
    locked = AUTHORITY.issue("server", password="secret")
    with pytest.raises(ConfigError, match=r"encrypted, and ssl\.key\.password is not set"):
        TlsSettings(settings(locked)).server_context()
    with pytest.raises(ConfigError, match="cannot be used"):
        TlsSettings(settings(locked, ssl_key_password="other")).server_context()
    server = TlsSettings(settings(locked, ssl_key_password="secret")).server_context()
    shake_hands(server, TlsSettings(settings()).client_context())


def test_a_client_is_asked_for_a_certificate_as_configured():
    named = TlsSettings(settings(CLIENT)).client_context()
    nameless = TlsSettings(settings(ssl_keystore_key=None, ssl_keystore_certificate_chain=None)).client_context()
    required = TlsSettings(settings(ssl_client_auth="required")).server_context()
    certificate, _ = shake_hands(required, named)
    assert distinguished_name(certificate["subject"]) == r"CN=client,O=Tests\, Inc.,C=NO"
    with pytest.raises(ssl.SSLError):
        shake_hands(required, nameless)
    requested = TlsSettings(settings(ssl_client_auth="requested")).server_context()
    assert shake_hands(requested, nameless)[0] is None
    assert shake_hands(TlsSettings(settings()).server_context(), named)[0] is None
    with pytest.raises(ConfigError, match="must be required, requested or none"):
        TlsSettings(settings(ssl_client_auth="maybe")).server_context()


def test_a_server_is_checked_by_authority_and_name():
    client = TlsSettings(settings()).client_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(TlsSettings(settings(STRANGER)).server_context(), client)
    server = TlsSettings(settings()).server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client, "elsewhere.example")
    anywhere = TlsSettings(settings(ssl_endpoint_identification_algorithm="")).client_context()
    shake_hands(server, anywhere, "elsewhere.example")


def test_versions_are_limited():
    server = TlsSettings(settings(ssl_enabled_protocols="TLSv1.2")).server_context()
    assert shake_hands(server, TlsSettings(settings()).client_context())[1] == "TLSv1.2"
    both = TlsSettings(settings()).server_context()
    assert shake_hands(both, TlsSettings(settings(ssl_protocol="TLSv1.2")).client_context())[1] == "TLSv1.2"
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols: TLSv1 is not supported"):
        TlsSettings(settings(ssl_enabled_protocols="TLSv1,TLSv1.3")).server_context()


def test_settings_of_a_listener_win():
    both = settings(STRANGER) | {
        "listener.name.internal.ssl.keystore.key": SERVER.key,
        "listener.name.internal.ssl.keystore.certificate.chain": SERVER.certificate,
    }
    client = TlsSettings(settings()).client_context()
    shake_hands(TlsSettings(both, "INTERNAL").server_context(), client)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(TlsSettings(both, "EXTERNAL").server_context(), client)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ssl_keystore_type": None}, "ssl.keystore.type=JKS is not supported: convert the store to PEM"),
        ({"ssl_keystore_type": "PKCS12"}, "ssl.keystore.type=PKCS12 is not supported"),
        ({"ssl_keystore_key": None}, "must be set together"),
        ({"ssl_keystore_key": None, "ssl_keystore_certificate_chain": None}, "must be set for a listener with SSL"),
        ({"ssl_keystore_location": "/nowhere/x.pem"}, "ssl.keystore.location=/nowhere/x.pem: No such file"),
        ({"ssl_keystore_certificate_chain": STRANGER.certificate}, "key and certificates cannot be used"),
        ({"ssl_keystore_certificate_chain": "-"}, "expected one private key and its certificates, found 1 and 0"),
        ({"ssl_client_auth": "required", "ssl_truststore_type": "JKS"}, "ssl.truststore.type=JKS is not supported"),
        ({"ssl_client_auth": "required", "ssl_truststore_certificates": "-"}, "no certificate in it"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites=TLS_AES_128_GCM_SHA256: only Java"),
        ({"ssl_engine_factory_class": "org.example.Factory"}, "only Java's TLS supports this setting"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_key(changes, message):
    with pytest.raises(ConfigError) as refused:
        TlsSettings(settings(**changes)).server_context()
    assert message in str(refused.value)


# The transport


class Slice:
    """What the engine's FileSlice offers a transport."""

    def __init__(self, file, position, size_bytes):
        self.file, self.position, self.size_bytes = file, position, size_bytes

    def fileno(self):
        return self.file.fileno()

    def read(self):
        self.file.seek(self.position)
        return self.file.read(self.size_bytes)


class Echo:
    """Answers each frame with what ``answer`` makes of it."""

    is_behind = False

    def __init__(self, answer):
        self.answer = answer
        self.lost = asyncio.Event()
        self.reason = None
        self.subject = None
        self.paused = 0
        self.transport = None

    def handshake_done(self, subject):
        self.subject = subject

    def may_receive(self):
        return True

    def frames_received(self, frames):
        for frame in frames:
            self.transport.write(self.answer(bytes(frame)))

    def connection_lost(self, reason):
        self.reason = reason
        self.lost.set()

    def writing_paused(self):
        self.paused += 1
        self.transport.pause_reading()

    def writing_resumed(self):
        self.transport.resume_reading()


def serve(answer, client, **changes):
    """Run ``client(sock)`` on a thread against a transport that answers; the receiver afterwards."""

    async def main():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(20)
        receiver = Echo(answer)
        context = TlsSettings(settings(**changes)).server_context()
        reader = FrameReader(memoryview(bytearray(65536)), 1 << 24)
        receiver.transport = TlsTransport(loop, ours, reader, receiver, context)
        receiver.transport.resume_reading()

        def work():
            with theirs:
                client(theirs)

        job = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait_for(receiver.lost.wait(), 30)
        await job
        return receiver

    return asyncio.run(main())


def encrypted(sock, identity=CLIENT):
    context = TlsSettings(settings(identity)).client_context()
    return context.wrap_socket(sock, server_hostname="127.0.0.1")


def exactly(sock, count):
    data = bytearray()
    while len(data) < count:
        got = sock.recv(count - len(data))
        assert got, f"the stream ended after {len(data)} of {count} bytes"
        data += got
    return bytes(data)


def frame(data):
    return len(data).to_bytes(4, "big") + data


def test_frames_of_any_size_come_and_go_in_order():
    numbers = random.Random(7)
    sent = [numbers.randbytes(size) for size in (1, 17, 300_000, 5, 70_000, 0, 65_536)]

    def client(sock):
        with encrypted(sock) as link:
            for data in sent:  # one by one
                link.sendall(frame(data))
                assert exactly(link, len(data)) == data
            link.sendall(b"".join(map(frame, sent)))  # and all at once
            assert exactly(link, sum(map(len, sent))) == b"".join(sent)

    receiver = serve(lambda data: [data], client, ssl_client_auth="required")
    assert receiver.reason is None
    assert distinguished_name(receiver.subject).startswith("CN=client,")


def test_parts_of_files_are_sent_to_a_slow_client_without_much_memory(tmp_path):
    path = tmp_path / "segment"
    content = random.Random(3).randbytes(6_000_000)
    path.write_bytes(content)
    with path.open("rb") as file:

        def client(sock):
            with encrypted(sock) as link:
                link.sendall(frame(b"a") + frame(b"b"))
                expected = (b"head" + content[100:5_900_100] + b"tail" + content[10:30]) * 2
                assert exactly(link, len(expected)) == expected

        receiver = serve(
            lambda _: [b"head", Slice(file, 100, 5_900_000), memoryview(b"tail"), Slice(file, 10, 20)], client
        )
    assert receiver.reason is None
    assert receiver.paused


def test_a_client_without_tls_is_told_goodbye_with_a_reason():
    def client(sock):
        sock.sendall(frame(bytes.fromhex("0012000000000001ffff")))
        while sock.recv(100):
            pass

    receiver = serve(lambda data: [data], client)
    assert "TLS handshake failed" in receiver.reason


def test_a_client_without_certificate_is_refused():
    def client(sock):
        context = ssl.create_default_context(cadata=AUTHORITY.certificate)
        with pytest.raises(OSError):
            exactly(context.wrap_socket(sock, server_hostname="127.0.0.1"), 1)

    receiver = serve(lambda data: [data], client, ssl_client_auth="required")
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in receiver.reason
    assert receiver.subject is None


def test_a_stream_cut_inside_a_frame_is_noticed():
    def client(sock):
        with encrypted(sock) as link:
            link.sendall(frame(bytes(100))[:50])
            link.unwrap()

    assert serve(lambda data: [data], client).reason == "peer closed the connection inside a frame"


def test_a_frame_that_is_too_large_ends_the_connection():
    def client(sock):
        with encrypted(sock) as link:
            link.sendall((1 << 30).to_bytes(4, "big") + bytes(10))
            with pytest.raises((OSError, AssertionError)):
                exactly(link, 1)

    assert serve(lambda data: [data], client).reason is not None
