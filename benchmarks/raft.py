"""How fast is the replicated store: three members as processes on loopback, `fdatasync` on?

    python -m benchmarks.raft [--folder DIR] [--seconds 4] [--clients 1 64] [--kills 10]
                              [--keys 200000] [--members 3]

Clients run inside the leader's process, as a NameNode's requests do; each writes 100-byte values
with a compare-and-set on its own key, or reads through a barrier, one after the other. Fail-over
is the time from SIGKILL of the leader to the next write that another member commits, asked for
every millisecond. `--keys` fills the store, then takes snapshots under load: the longest pause of
the leader's event loop, the memory for each key and the time of a restart are reported.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import uvloop
from aiohttp import web

from benchmarks.kv import describe, longest_pause
from benchmarks.stats import machine, median, resident_mib, say
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.kv.interface import Committed, Expect, Transaction
from paxosblock.namenode.raft.http_transport import HttpTransport
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore
from paxosblock.units import MIB

VALUE = bytes(100)
SECRET = b"a secret of the benchmark"
KEYS_AT_ONCE = 500

# -- a member: a process with the store, and its clients inside ------------------------------------


async def writer(store: ReplicatedStore, key: bytes, end: float, latencies: list[float]) -> None:
    """Change one key again and again until `end`."""
    revision = store.view().get(key).revision
    while (begun := time.perf_counter()) < end:
        result = await store.commit(Transaction((Expect(key, revision),), ((key, VALUE),)))
        assert isinstance(result, Committed), "each client has its own key"
        revision = result.revision
        latencies.append(time.perf_counter() - begun)


async def reader(store: ReplicatedStore, key: bytes, end: float, latencies: list[float]) -> None:
    """Read one key again and again until `end`, each time linearizably."""
    while (begun := time.perf_counter()) < end:
        (await store.barrier()).get(key)
        latencies.append(time.perf_counter() - begun)


async def measure(store: ReplicatedStore, kind: str, clients: int, seconds: float) -> list[float]:
    """Let so many clients "write" or "read"; the seconds of each of their calls."""
    latencies: list[float] = []
    client = writer if kind == "write" else reader
    end = time.perf_counter() + seconds
    keys = [b"bench/%d" % number for number in range(clients)]
    await asyncio.gather(*(client(store, key, end, latencies) for key in keys))
    return latencies


async def fill(store: ReplicatedStore, keys: int) -> None:
    """Write so many keys, new ones or again."""
    for first in range(0, keys, KEYS_AT_ONCE):
        numbers = range(first, first + KEYS_AT_ONCE)
        puts = tuple((b"file/%08d" % number, VALUE) for number in numbers)
        await store.commit(Transaction(puts=puts))


def handlers(
    store: ReplicatedStore,
) -> dict[str, Callable[[web.Request], Coroutine[Any, Any, Any]]]:
    """Return what a member does when it is asked for `GET /<name>`."""

    async def status(_request: web.Request) -> object:
        return {**asdict(store.status()), "keys": len(store._machine)}

    async def bench(request: web.Request) -> object:
        query = request.query
        clients, seconds = int(query["clients"]), float(query["seconds"])
        return await measure(store, query["kind"], clients, seconds)

    async def load(request: web.Request) -> object:
        before_mib = resident_mib()
        await fill(store, int(request.query["keys"]))
        return (resident_mib() - before_mib) * MIB

    async def pause(request: web.Request) -> object:
        keys, seconds = int(request.query["keys"]), float(request.query["seconds"])
        quiet = await longest_pause(measure(store, "write", 16, seconds))
        written = store.status().counters.snapshots_written
        busy = await longest_pause(fill(store, keys))
        return [quiet, busy, store.status().counters.snapshots_written - written]

    async def one(_request: web.Request) -> object:
        await store.commit(Transaction(puts=((b"one", VALUE),)))
        return True

    return {"status": status, "bench": bench, "load": load, "pause": pause, "one": one}


async def serve(options: argparse.Namespace) -> None:
    """Be a member until SIGTERM."""
    addresses = options.addresses.split(",")
    address = addresses[options.member]
    transport = HttpTransport(address, addresses, SECRET)
    limits = Limits(snapshot_bytes=options.snapshot_bytes)
    store = ReplicatedStore(
        options.folder, address, addresses, transport, options=Options(limits=limits)
    )
    app = web.Application()
    transport.add_to(app)
    actions = handlers(store)

    async def handle(request: web.Request) -> web.Response:
        try:
            return web.json_response(await actions[request.match_info["action"]](request))
        except PaxosBlockError as error:
            return web.json_response(str(error), status=503)

    app.router.add_get("/{action}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port)).start()
    await store.start()
    # What lives as long as the process is not looked at again in each full collection.
    gc.collect()
    gc.freeze()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await store.close()
    await runner.cleanup()


# -- the cluster, from outside ---------------------------------------------------------------------


def ask(address: str, action: str, timeout_s: float = 120.0) -> Any:
    """The member's answer; None when it is down or does not lead."""
    try:
        with urlopen(f"http://{address}/{action}", timeout=timeout_s) as answer:
            return json.load(answer)
    except (URLError, ConnectionError, TimeoutError):
        return None


class Cluster:
    """Member processes in folders of their own."""

    def __init__(self, folder: Path, members: int, snapshot_bytes: int) -> None:
        self.folder, self.snapshot_bytes = folder, snapshot_bytes
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(members)]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for address in self.addresses:
            self.start(address)

    def start(self, address: str) -> None:
        """Start the member at `address`, for the first time or again."""
        number = self.addresses.index(address)
        arguments = ["--member", str(number), "--addresses", ",".join(self.addresses)]
        arguments += ["--folder", str(self.folder / f"member-{number}")]
        arguments += ["--snapshot-bytes", str(self.snapshot_bytes)]
        command = [sys.executable, "-m", "benchmarks.raft", *arguments]
        self.processes[address] = subprocess.Popen(command)

    def kill(self, address: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(address)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all members."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()

    def leader(self) -> str:
        """The member that commits a write now."""
        while True:
            for address in self.processes:
                if ask(address, "one", 2.0):
                    return address
            time.sleep(0.001)

    def wait_equal(self) -> None:
        """Until every member has applied what the leader has."""
        wanted = ask(self.leader(), "status")["applied_index"]
        for address in self.addresses:
            while (found := ask(address, "status")) is None or found["applied_index"] < wanted:
                time.sleep(0.01)


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def throughput(cluster: Cluster, options: argparse.Namespace) -> None:
    """Writes and reads per second."""
    for kind in ("write", "read"):
        for clients in options.clients:
            query = f"bench?kind={kind}&clients={clients}&seconds={options.seconds}"
            latencies = ask(cluster.leader(), query)
            say(describe(f"{kind}s, {clients} client(s)", options.seconds, latencies))


def fail_over(cluster: Cluster, kills: int) -> None:
    """Measure how long nobody commits when the leader is killed."""
    durations = []
    for _ in range(kills):
        cluster.wait_equal()
        victim = cluster.leader()
        begun = time.perf_counter()
        cluster.kill(victim)
        cluster.leader()
        durations.append(time.perf_counter() - begun)
        cluster.start(victim)
    p50_ms, longest_ms = median(durations) * 1e3, max(durations) * 1e3
    say(
        f"leader killed to next committed write, {kills} times: "
        f"p50 {p50_ms:.0f} ms, longest {longest_ms:.0f} ms"
    )


def many_keys(folder: Path, options: argparse.Namespace) -> None:
    """Memory, pauses and the restart of a follower with a large store."""
    cluster = Cluster(folder, options.members, snapshot_bytes=8 * MIB)
    leader = cluster.leader()
    grown = ask(leader, f"load?keys={options.keys}")
    query = f"pause?keys={options.keys}&seconds={options.seconds}"
    quiet, busy, snapshots = ask(leader, query)
    say(f"{options.keys} keys, {len(VALUE)} bytes each: {grown / options.keys:.0f} bytes of memory")
    say(f"    longest pause of the leader's loop: {quiet * 1000:.1f} ms with 16 clients, ")
    say(f"    {busy * 1000:.1f} ms when all keys are written again and {snapshots} snapshots taken")
    cluster.wait_equal()
    follower = next(each for each in cluster.addresses if each != cluster.leader())
    cluster.kill(follower)
    begun = time.perf_counter()
    cluster.start(follower)
    cluster.wait_equal()
    say(f"    a follower restarted and level again after {time.perf_counter() - begun:.2f} s")
    cluster.stop()


def run(options: argparse.Namespace) -> None:
    """Ask all questions, in a folder that vanishes."""
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="raft-bench-") as name:
        cluster = Cluster(Path(name) / "speed", options.members, snapshot_bytes=64 * MIB)
        throughput(cluster, options)
        if options.kills:
            fail_over(cluster, options.kills)
        cluster.stop()
        if options.keys:
            many_keys(Path(name) / "keys", options)


def main() -> None:
    """Run, or be one of the members that a run starts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary one)")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--keys", type=int, default=200_000)
    for name, kind in (("member", int), ("addresses", str), ("snapshot-bytes", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member is not None:
        uvloop.run(serve(options))
        return
    say(f"{machine()}, {options.members} members, fdatasync on")
    run(options)


if __name__ == "__main__":
    main()
