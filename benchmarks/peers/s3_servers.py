"""Servers of S3 that others make, each one process with one folder, built from their sources; and
the load on them, which is also that on our gateway.

Neither forces what it takes to disk where it is told nothing else. versitygw makes each object a
file; MinIO spreads it over three folders, so that one may be lost, with checksums of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from benchmarks.peers.fetch import GoPrograms, need
from benchmarks.peers.processes import Peer, free_ports
from benchmarks.record import OURS
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import claimed_user
from paxosblock.local.cluster import LocalCluster

VERSITYGW_VERSION: Final = "1.8.0"
LOAD: Final = GoPrograms("the load on S3", ("s3.go",), (), {"load": "."})
VERSITYGW: Final = GoPrograms(
    "versitygw",
    (),
    (f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}",),
    {"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
)
MINIO_VERSION: Final = "0.0.0-20260212201848-7aac2a2c5b7c"
MINIO: Final = GoPrograms(
    "MinIO",
    (),
    (f"github.com/minio/minio@v{MINIO_VERSION}",),
    {"minio": "github.com/minio/minio"},
)
DRIVES: Final = 3
HEALTHY_WITHIN_S: Final = 5.0
KEY_ID, SECRET = "bench", "bench-secret"


class S3Side(Peer):
    """Something that speaks S3, and the load on it."""

    def launch_s3_load(self, url: str, key_id: str = KEY_ID, secret: str = SECRET) -> None:
        """Start the load on a server at a URL. Raises SkipError: it cannot be built here."""
        self.launch_load([f"{LOAD.fetched()}/load", "s3", url, key_id, secret])


class Versitygw(S3Side):
    """versitygw on a folder, whose files are its objects."""

    name = "versitygw"
    version = VERSITYGW_VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._programs = VERSITYGW.fetched()
        self.root = folder / "root"

    def start(self) -> None:
        """See `Peer.start`."""
        self.launch_s3_load(self.serve())

    def serve(self) -> str:
        """Start the server alone, and return its URL."""
        (port,) = free_ports(1)
        self.root.mkdir()
        options = ["--access", KEY_ID, "--secret", SECRET, "--port", f"127.0.0.1:{port}"]
        program = f"{self._programs}/versitygw"
        server = self.launch(
            "server",
            [program, *options, "--quiet", "--iam-dir", f"{self.root}", "posix", f"{self.root}"],
        )
        server.wait_listening(port)
        return f"http://127.0.0.1:{port}"


class Minio(S3Side):
    """MinIO with three drives, which are folders on one disk here."""

    name = "MinIO"
    version = MINIO_VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._programs = MINIO.fetched()

    def start(self) -> None:
        """See `Peer.start`."""
        port, console_port = free_ports(2)
        url = f"http://127.0.0.1:{port}"
        settings = [
            f"MINIO_ROOT_USER={KEY_ID}",
            f"MINIO_ROOT_PASSWORD={SECRET}",
            "MINIO_CI_CD=1",  # drives may be folders of the system's disk
            "MINIO_UPDATE=off",  # nobody is asked for newer versions
            "MINIO_BROWSER=off",
        ]
        addresses = ["--address", url[7:], "--console-address", f"127.0.0.1:{console_port}"]
        drives = [f"{self.folder / f'drive-{number}'}" for number in range(1, DRIVES + 1)]
        program = [
            need(self.name, "env"),
            *settings,
            f"{self._programs}/minio",
            "server",
            "--quiet",
        ]
        server = self.launch("server", [*program, *addresses, *drives])
        server.wait_ready(lambda: _is_healthy(f"{url}/minio/health/ready"))
        self.launch_s3_load(url)


def _is_healthy(url: str) -> bool:
    try:
        with urlopen(url, timeout=HEALTHY_WITHIN_S):
            return True
    except OSError:
        return False


class OurGateway(S3Side):
    """The gateway of a cluster of ours, which the suite starts and ends."""

    name = OURS
    version = ""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        super().__init__(folder)
        self._cluster = cluster

    def start(self) -> None:
        """See `Peer.start`."""
        (gateway,) = self._cluster.gateways
        url = f"http://{gateway.member.s3_listen}"
        self.launch_s3_load(url, claimed_user(), OPEN_SECRET)

    @property
    def facts(self) -> dict[str, Any]:
        """See `Peer.facts`."""
        return {"side": OURS}

    def pids(self) -> dict[str, list[int]]:
        """See `Peer.pids`."""
        roles = {
            "gateway": self._cluster.gateways,
            "NameNode": self._cluster.namenodes,
            "DataNodes": self._cluster.datanodes,
        }
        servers = {role: [node.pid or 0 for node in those] for role, those in roles.items()}
        return servers | super().pids()


S3_PEERS: Final[tuple[type[Peer], ...]] = (Versitygw, Minio)
