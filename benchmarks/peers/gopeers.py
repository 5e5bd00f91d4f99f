"""etcd and NATS as their makers publish them: three servers each, built from their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.peers.fetch import GoPrograms
from benchmarks.peers.processes import Peer, Server, free_ports

ETCD_VERSION: Final = "3.6.16"
NATS_VERSION: Final = "2.12.15"
PROGRAMS: Final = GoPrograms(
    "etcd and NATS",
    ("etcd.go", "nats.go"),
    (
        f"go.etcd.io/etcd/server/v3@v{ETCD_VERSION}",
        f"go.etcd.io/etcd/client/v3@v{ETCD_VERSION}",
        f"github.com/nats-io/nats-server/v2@v{NATS_VERSION}",
        "github.com/nats-io/nats.go@v1.55.0",
    ),
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "nats-server": "github.com/nats-io/nats-server/v2",
        "load": ".",
    },
)
MEMBERS: Final = 3


class Etcd(Peer):
    """Three members with their own settings: each forces its log to disk before it votes."""

    name = "etcd"
    version = ETCD_VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._programs = PROGRAMS.fetched()

    def start(self) -> None:
        """See `Peer.start`."""
        ports = free_ports(2 * MEMBERS)
        clients = [f"http://127.0.0.1:{port}" for port in ports[:MEMBERS]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[MEMBERS:]]
        cluster = ",".join(f"member-{number}={url}" for number, url in enumerate(peers))
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            options = {
                "name": f"member-{number}",
                "data-dir": f"{self.folder}/member-{number}/data",
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": cluster,
                "log-level": "warn",
            }
            flags = [f"--{option}={value}" for option, value in options.items()]
            self.launch(f"member-{number}", [f"{self._programs}/etcd", *flags])
        for server, port in zip(self.servers, ports[:MEMBERS], strict=True):
            server.wait_listening(port)
        self.launch_load([f"{self._programs}/load", "etcd", *clients])
        self.ask("prepare")

    def leader(self) -> Server:
        """Return the member that leads now."""
        return self.named(self.ask("leader")["leader"])


class Nats(Peer):
    """Three servers; a stream in files of three replicas, forced to disk with every message."""

    name = "NATS"
    version = NATS_VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._programs = PROGRAMS.fetched()

    def start(self) -> None:
        """See `Peer.start`."""
        ports = free_ports(2 * MEMBERS)
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in ports[MEMBERS:])
        for number in range(MEMBERS):
            folder = self.folder / f"server-{number}"
            folder.mkdir()
            (folder / "nats.conf").write_text(
                f'server_name: server-{number}\nlisten: "127.0.0.1:{ports[number]}"\n'
                f'jetstream {{ store_dir: "{folder}/data", sync_interval: always }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{ports[MEMBERS + number]}", '
                f"routes: [{routes}] }}\n"
            )
            program = f"{self._programs}/nats-server"
            self.launch(f"server-{number}", [program, "--config", f"{folder}/nats.conf"])
        for server, port in zip(self.servers, ports[:MEMBERS], strict=True):
            server.wait_listening(port)
        endpoints = [f"nats://127.0.0.1:{port}" for port in ports[:MEMBERS]]
        self.launch_load([f"{self._programs}/load", "nats", *endpoints])
        self.ask("prepare", clients=20)

    def leader(self) -> Server:
        """Return the server that leads the stream now."""
        return self.named(self.ask("leader")["leader"])
