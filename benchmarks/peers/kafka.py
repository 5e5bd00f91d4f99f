"""Kafka as its makers publish it: three brokers that are controllers, too, without ZooKeeper.

Its own settings but for ports, folders and durability. A broker of Kafka answers before the disk
has anything, and trusts the others to be up; here each forces every batch of records to disk
(`log.flush.interval.messages=1`), and a record counts as written when all three have it
(`acks=all` and `min.insync.replicas=3`), as ours does.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

from benchmarks.peers.fetch import LOG4J2, Jars, need, run
from benchmarks.peers.processes import Peer, free_ports

VERSION: Final = "4.1.1"
JARS: Final = Jars(
    "Kafka",
    VERSION,
    (
        f"org.apache.kafka:kafka_2.13:{VERSION}",
        # Whoever runs a broker brings what writes its log.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
    ),
    "KafkaLoad",
)
BROKERS: Final = 3


class Kafka(Peer):
    """Three brokers."""

    name = "Kafka"
    version = VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._java = need(self.name, "java")
        self._jars = JARS.fetched()
        ports = free_ports(2 * BROKERS)
        self._ports, self._controllers = ports[:BROKERS], ports[BROKERS:]

    def start(self) -> None:
        """See `Peer.start`."""
        (self.folder / "log4j2.xml").write_text(LOG4J2)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        settings = [self._settings(number) for number in range(BROKERS)]
        for each in settings:
            tool = [*self._command("kafka.tools.StorageTool", 256), "format"]
            run(self.name, [*tool, "-t", cluster, "-c", str(each)], self.folder)
        for number, each in enumerate(settings):
            self.launch(f"broker-{number}", [*self._command("kafka.Kafka", 1024), str(each)])
        for broker, port in zip(self.servers, self._ports, strict=True):
            broker.wait_listening(port)
        brokers = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.launch_load([*self._command("KafkaLoad", 1024), brokers])
        self.ask("ready", brokers=BROKERS)

    def _settings(self, number: int) -> Path:
        folder = self.folder / f"broker-{number}"
        folder.mkdir()
        voters = ",".join(f"{at}@127.0.0.1:{port}" for at, port in enumerate(self._controllers))
        listener = f"PLAINTEXT://127.0.0.1:{self._ports[number]}"
        settings = folder / "server.properties"
        settings.write_text(
            f"process.roles=broker,controller\nnode.id={number}\n"
            f"controller.quorum.voters={voters}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners={listener},CONTROLLER://127.0.0.1:{self._controllers[number]}\n"
            f"advertised.listeners={listener}\nlog.dirs={folder}/data\n"
            f"default.replication.factor={BROKERS}\nmin.insync.replicas={BROKERS}\n"
            "log.flush.interval.messages=1\n"
        )
        return settings

    def _command(self, module: str, heap_mib: int) -> list[str]:
        """Return how a class is run."""
        return [
            self._java,
            f"-Xmx{heap_mib}m",
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.xml",
            "-cp",
            f"{self._jars}/classes:{self._jars}/lib/*",
            module,
        ]
