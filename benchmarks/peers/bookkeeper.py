"""BookKeeper as its makers publish it: three bookies, and a ZooKeeper for its metadata.

Its own settings but for ports and folders: a bookie forces its journal to disk before it answers,
and waits up to 2 ms for others to go along. The ZooKeeper is no part of an entry's way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.peers.fetch import LOG4J2, Jars, need, run
from benchmarks.peers.processes import Peer, Server, free_ports

VERSION: Final = "4.17.2"
JARS: Final = Jars(
    "BookKeeper",
    VERSION,
    (
        f"org.apache.bookkeeper:bookkeeper-server:{VERSION}",
        # ZooKeeper's server needs these, and says that others bring them.
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "org.xerial.snappy:snappy-java:1.1.10.5",
    ),
    "BookKeeperLoad",
)
BOOKIES: Final = 3


class BookKeeper(Peer):
    """One ZooKeeper and three bookies."""

    name = "BookKeeper"
    version = VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._java = need(self.name, "java")
        self._jars = JARS.fetched()
        self._zookeeper, *self._ports = free_ports(1 + BOOKIES)

    @property
    def bookies(self) -> list[Server]:
        """Return them in order."""
        return self.servers[1:]

    @property
    def _metadata(self) -> str:
        return f"zk+hierarchical://127.0.0.1:{self._zookeeper}/ledgers"

    def start(self) -> None:
        """See `Peer.start`."""
        (self.folder / "log4j2.xml").write_text(LOG4J2)
        zookeeper = self._command("org.apache.zookeeper.server.ZooKeeperServerMain", 256)
        data = f"{self.folder}/ZooKeeper-0/data"
        keeper = self.launch("ZooKeeper-0", [*zookeeper, str(self._zookeeper), data])
        keeper.wait_listening(self._zookeeper)
        settings = [self._settings(number, port) for number, port in enumerate(self._ports)]
        shell = [*self._command("org.apache.bookkeeper.bookie.BookieShell", 256), "-conf"]
        initialize = ["metaformat", "-nonInteractive", "-force"]
        run(self.name, [*shell, str(settings[0]), *initialize], self.folder)
        command = self._command("org.apache.bookkeeper.server.Main", 1024)
        for number, each in enumerate(settings):
            self.launch(f"bookie-{number}", [*command, "-c", str(each)])
        for bookie, port in zip(self.bookies, self._ports, strict=True):
            bookie.wait_listening(port)
        self.launch_load([*self._command("BookKeeperLoad", 1024), self._metadata])
        self.ask("ready")

    def _settings(self, number: int, port: int) -> Path:
        folder = self.folder / f"bookie-{number}"
        folder.mkdir()
        settings = folder / "bookie.conf"
        settings.write_text(
            f"bookiePort={port}\nadvertisedAddress=127.0.0.1\nallowLoopback=true\n"
            f"metadataServiceUri={self._metadata}\nhttpServerEnabled=false\n"
            f"journalDirectory={folder}/journal\nledgerDirectories={folder}/ledgers\n"
        )
        return settings

    def _command(self, module: str, heap_mib: int) -> list[str]:
        """Return how a class is run."""
        places = f"{self._jars}/classes:{self._jars}/lib/*"
        return [
            self._java,
            f"-Xmx{heap_mib}m",
            f"-Dlog4j.configurationFile={self.folder}/log4j2.xml",
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
            places,
            module,
        ]
