"""The practical limit of this machine: the data path's task with bare blocking sockets.

One sender and three receiver processes on loopback. A chunk travels as a header of 16 bytes and
its payload; a receiver checks its CRC32C, appends it to a file with `pwrite` and answers with 8
bytes, after `fdatasync` when asked to. No consensus, no event loop, no error handling: what is left
out here is what paxosblock adds, and a benchmark of paxosblock states its ratio to this.

It works on as many different bytes as we do: receivers keep every file until the round is over, and
the file that is read is as long as what is read of it. Memory that is used again and again is warm
and partly in the processor's cache; new memory is neither, and a virtual machine often has to ask
its host for it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import crc32c
from paxosblock.base.units import KIB, MIB

FILE_BYTES: Final = 128 * MIB
"""A receiver begins a new file after so many bytes, as a DataNode begins a new block."""
WARM_UP_BYTES: Final = 32 * MIB
WARM_UP_CHUNKS: Final = 1000
SOCKET_BUFFER_BYTES: Final = 4 * MIB

_HEADER = struct.Struct("<IIII")  # payload bytes, crc, index, 1 to sync
_ACK = struct.Struct("<II")  # index, 0
_ASK = struct.Struct("<QQ")  # offset, bytes


@dataclass(frozen=True, slots=True)
class WriteLimit:
    """Throughput of user bytes (counted once, not per replica), and the seconds from sending each
    chunk to its last answer."""

    mib_per_s: float
    times_s: list[float]


def measure_write_limit(
    chunk_bytes: int,
    window: int,
    sync: bool,
    total_bytes: int,
    replicas: int = 3,
    *,
    folder: Path | None = None,
) -> WriteLimit:
    """Send `total_bytes` in chunks to `replicas` receivers, at most `window` chunks unanswered.

    Files go to a new directory in `folder` (the system's temporary one when None), removed after.
    """
    with _peers("receive", replicas, folder) as sockets:
        payload = memoryview(os.urandom(chunk_bytes))
        count = max(window, total_bytes // chunk_bytes)
        warm_up = min(WARM_UP_BYTES // chunk_bytes, 50 if sync else WARM_UP_CHUNKS, count)
        _send_chunks(sockets, payload, max(2 * window, warm_up), window, sync)
        started = time.perf_counter()
        times = _send_chunks(sockets, payload, count, window, sync)
        elapsed = time.perf_counter() - started
    return WriteLimit(count * chunk_bytes / MIB / elapsed, times)


def measure_round_trip(
    chunk_bytes: int = KIB,
    sync: bool = False,
    count: int = 3000,
    replicas: int = 3,
    *,
    folder: Path | None = None,
) -> WriteLimit:
    """One chunk at a time: the latency when nothing else costs time."""
    return measure_write_limit(chunk_bytes, 1, sync, count * chunk_bytes, replicas, folder=folder)


def measure_read_limit(
    chunk_bytes: int, total_bytes: int, window: int = 4, folder: Path | None = None
) -> float:
    """Return MiB/s of `sendfile` from the page cache into a buffer, checksums checked: read
    `total_bytes` from one sender, asking for `window` chunks ahead."""
    count = max(window, total_bytes // chunk_bytes)
    with _peers("serve", 1, folder, count * chunk_bytes) as (sock,):
        _read_chunks(sock, chunk_bytes, count, window)
        started = time.perf_counter()
        _read_chunks(sock, chunk_bytes, count, window)
        elapsed = time.perf_counter() - started
    return count * chunk_bytes / MIB / elapsed


# -- this process -------------------------------------------------------------------------------


def _send_chunks(
    sockets: Sequence[socket.socket], payload: memoryview, count: int, window: int, sync: bool
) -> list[float]:
    """Seconds from sending each chunk to its last ack."""
    sent_at: list[float] = []
    times: list[float] = []
    for index in range(count):
        header = _HEADER.pack(len(payload), crc32c(payload), index, sync)
        sent_at.append(time.perf_counter())
        for sock in sockets:
            _send_all(sock, header, payload)
        if index >= window - 1:
            _await_acks(sockets, len(times))
            times.append(time.perf_counter() - sent_at[len(times)])
    while len(times) < count:
        _await_acks(sockets, len(times))
        times.append(time.perf_counter() - sent_at[len(times)])
    return times


def _send_all(sock: socket.socket, header: bytes, payload: memoryview) -> None:
    sent = sock.sendmsg([header, payload]) - len(header)
    assert sent >= 0
    if sent < len(payload):
        sock.sendall(payload[sent:])


def _await_acks(sockets: Sequence[socket.socket], index: int) -> None:
    for sock in sockets:
        ack = sock.recv(_ACK.size, socket.MSG_WAITALL)
        assert _ACK.unpack(ack) == (index, 0)


def _read_chunks(sock: socket.socket, chunk_bytes: int, count: int, window: int) -> None:
    buffer = memoryview(bytearray(chunk_bytes))
    asked = 0
    for index in range(count):
        while asked < min(count, index + window):
            sock.sendall(_ASK.pack(asked * chunk_bytes, chunk_bytes))
            asked += 1
        _fill(sock, buffer)
        crc32c(buffer)


def _fill(sock: socket.socket, buffer: memoryview) -> None:
    """Take what is there as soon as it is there; one MSG_WAITALL was slower."""
    filled = 0
    while filled < len(buffer):
        received = sock.recv_into(buffer[filled:])
        assert received
        filled += received


@contextlib.contextmanager
def _peers(
    role: str, count: int, folder: Path | None, file_bytes: int = 0
) -> Iterator[list[socket.socket]]:
    """Sockets to `count` new processes in `role`, which end with the block."""
    command = (sys.executable, "-m", "benchmarks.limit")
    with tempfile.TemporaryDirectory(dir=folder) as directory, contextlib.ExitStack() as stack:
        sockets = []
        for number in range(count):
            process = subprocess.Popen(
                [*command, role, f"{directory}/{number}", f"--bytes={file_bytes}"],
                stdout=subprocess.PIPE,
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            sockets.append(stack.enter_context(_connect(process)))
        yield sockets


def _connect(process: subprocess.Popen[bytes]) -> socket.socket:
    assert process.stdout is not None
    port = int(process.stdout.readline())
    sock = socket.socket()
    _tune(sock)
    sock.connect(("127.0.0.1", port))
    return sock


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# -- the other processes ------------------------------------------------------------------------


def _accept() -> socket.socket:
    """Tell the port on standard output, then wait for the one connection."""
    with socket.socket() as listener:
        _tune(listener)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        sock, _ = listener.accept()
    _tune(sock)
    return sock


def _receive(folder: Path) -> None:
    """Write what comes to files in `folder` until the sender is gone."""
    folder.mkdir()
    sock = _accept()
    buffer = memoryview(bytearray(64 * KIB))
    names = itertools.count()
    file, position = _new_file(folder / str(next(names))), 0
    while header := sock.recv(_HEADER.size, socket.MSG_WAITALL):
        size, crc, index, sync = _HEADER.unpack(header)
        if size > len(buffer):
            buffer = memoryview(bytearray(size))
        payload = buffer[:size]
        _fill(sock, payload)
        assert crc32c(payload) == crc
        if position + size > FILE_BYTES:
            os.close(file)
            file, position = _new_file(folder / str(next(names))), 0
        os.pwrite(file, payload, position)
        position += size
        if sync:
            os.fdatasync(file)
        sock.sendall(_ACK.pack(index, 0))


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _serve(path: Path, file_bytes: int) -> None:
    """Send the parts of a file that are asked for until the reader is gone."""
    file = _new_file(path)
    piece = os.urandom(MIB)
    for position in range(0, file_bytes, MIB):
        os.pwrite(file, piece, position)
    sock = _accept()
    while ask := sock.recv(_ASK.size, socket.MSG_WAITALL):
        offset, left = _ASK.unpack(ask)
        while left:
            sent = os.sendfile(sock.fileno(), file, offset, left)
            offset, left = offset + sent, left - sent


def main() -> None:
    """Be one of the processes that a measurement starts."""
    parser = argparse.ArgumentParser(description="the other side of a measurement of bare sockets")
    parser.add_argument("role", choices=["receive", "serve"])
    parser.add_argument("path", type=Path, help="folder (receive), or file (serve)")
    parser.add_argument("--bytes", type=int, default=0, help="length of the file (serve)")
    arguments = parser.parse_args()
    if arguments.role == "receive":
        _receive(arguments.path)
    else:
        _serve(arguments.path, arguments.bytes)


if __name__ == "__main__":
    main()
