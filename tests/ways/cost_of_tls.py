"""Measures what TLS costs by itself: processor seconds per GiB, which Python's `ssl` encrypts and
decrypts in memory, without a socket and an event loop. `python -m tests.ways.cost_of_tls`

What a read with TLS takes beyond these and a plain one goes to copies and turns of the loop.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from paxosblock.base.units import GIB, KIB
from paxosblock.net.port.certified import CertifiedKind
from paxosblock.net.port.tls import Tls
from tests.certificates import Certificates

CHUNK: Final = os.urandom(512 * KIB)
CHUNKS: Final = 1024
HELLOS: Final = 4
"""Turns in which both ends are done with the handshake."""


class Wire:
    """A DataNode and a user, between whom everything stays in memory."""

    def __init__(self, folder: Path) -> None:
        made = Certificates(folder)
        node = Tls(made.node("datanode-0"), made.ca, serves=CertifiedKind.DATANODE)
        user = Tls(made.user(), made.ca)
        self.to_node, self.to_user = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.node = node.server.wrap_bio(self.to_node, self.to_user, server_side=True)
        self.user = user.client.wrap_bio(self.to_user, self.to_node, server_hostname="127.0.0.1")
        for _ in range(HELLOS):
            for end in (self.user, self.node):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()

    def send(self, data: bytes) -> None:
        """Encrypt the `data`, of which OpenSSL takes a record of 16 KiB at a time."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.node.write(rest) :]

    def receive(self, count: int) -> bytes:
        """Return the next `count` bytes, decrypted."""
        parts = list[bytes]()
        while count:
            parts.append(self.user.read(count))
            count -= len(parts[-1])
        return b"".join(parts)


def main() -> None:
    """Print how long each end takes for a GiB."""
    with tempfile.TemporaryDirectory() as folder:
        wire = Wire(Path(folder))
    received = b""
    encrypted_s = decrypted_s = 0.0
    for _ in range(CHUNKS):
        begun_s = time.process_time()
        wire.send(CHUNK)
        sent_s = time.process_time()
        received = wire.receive(len(CHUNK))
        encrypted_s += sent_s - begun_s
        decrypted_s += time.process_time() - sent_s
    assert received == CHUNK
    per_gib = GIB / (len(CHUNK) * CHUNKS)
    name, *_ = wire.node.cipher() or ("",)
    sys.stdout.write(
        f"{name}, {ssl.OPENSSL_VERSION}: encrypts in {encrypted_s * per_gib:.2f} s per GiB, "
        f"decrypts in {decrypted_s * per_gib:.2f} s\n"
    )


if __name__ == "__main__":
    main()
