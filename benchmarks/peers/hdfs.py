"""HDFS as its makers publish it: a NameNode and three DataNodes, a process each.

Its own settings but for ports and folders, and where they would hold it back here: 64 handlers
instead of 10, no permissions to check, no audit log, short cuts of a cluster of three DataNodes.
Reads go through sockets, as ours do: short-circuit reads need a library that is in no jar.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.peers.fetch import Jars, need, run
from benchmarks.peers.processes import Peer, Server, free_ports

VERSION: Final = "3.4.2"
JARS: Final = Jars(
    "HDFS",
    VERSION,
    tuple(
        f"org.apache.hadoop:{name}:{VERSION}"
        for name in ("hadoop-common", "hadoop-hdfs", "hadoop-hdfs-client")
    ),
    "HdfsLoad",
)
DATANODES: Final = 3
_OPEN: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio")
]
_HEAP: Final = "GC.class_histogram"
_MODULE: Final = "org.apache.hadoop.hdfs.server"
_LOG: Final = """log4j.rootLogger=WARN,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c: %m%n
"""


class Hdfs(Peer):
    """One NameNode and three DataNodes."""

    name = "HDFS"
    version = VERSION

    def __init__(self, folder: Path) -> None:
        """Raises SkipError when it cannot be had."""
        super().__init__(folder)
        self._java = need(self.name, "java")
        self._jars = JARS.fetched()
        self.port, self._web_port = free_ports(2)

    @property
    def url(self) -> str:
        """Return what paths of its files begin with."""
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def web_address(self) -> str:
        """Return where its NameNode speaks WebHDFS."""
        return f"127.0.0.1:{self._web_port}"

    @property
    def namenode(self) -> Server:
        """Return the one that there is."""
        return self.servers[0]

    @property
    def datanodes(self) -> list[Server]:
        """Return them in order."""
        return self.servers[1:]

    def start(self) -> None:
        """See `Peer.start`."""
        for role in (
            "hdfs",
            "datanode",
        ):  # the jars hold no pages of theirs, and both look for them
            (self.folder / "pages" / "webapps" / role).mkdir(parents=True)
        namenode = self._command("NameNode-0", f"{_MODULE}.namenode.NameNode", 2048)
        run(self.name, [*namenode, "-format", "-nonInteractive"], self.folder)
        self.launch("NameNode-0", namenode).wait_listening(self.port)
        for number in range(DATANODES):
            name = f"DataNode-{number}"
            self.launch(name, self._command(name, f"{_MODULE}.datanode.DataNode", 1024))
        self.launch_load([*self._command("client", "HdfsLoad", 2048), f"127.0.0.1:{self.port}"])
        self.ask("ready", datanodes=DATANODES)

    def live_heap_bytes(self) -> int:
        """Return what the NameNode holds in memory, after a full collection.

        Raises:
            SkipError: the tool for it is missing or failed.
        """
        told = run(self.name, [need(self.name, "jcmd"), str(self.namenode.pid), _HEAP], self.folder)
        return int(told.splitlines()[-1].split()[2])  # Total, instances, bytes

    def _command(self, folder: str, module: str, heap_mib: int) -> list[str]:
        """Return how a class is run, with settings of its own in its folder."""
        conf = self.folder / folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "core-site.xml").write_text(_site({"fs.defaultFS": self.url}))
        (conf / "hdfs-site.xml").write_text(_site(self._settings(folder)))
        (conf / "log4j.properties").write_text(_LOG)
        places = f"{conf}:{self.folder}/pages:{self._jars}/classes:{self._jars}/lib/*"
        return [self._java, f"-Xmx{heap_mib}m", *_OPEN, "-cp", places, module]

    def _settings(self, folder: str) -> dict[str, object]:
        anywhere = "127.0.0.1:0"
        return {
            "dfs.replication": 3,
            "dfs.namenode.rpc-address": f"127.0.0.1:{self.port}",
            "dfs.namenode.http-address": self.web_address,
            "dfs.namenode.name.dir": (self.folder / "NameNode-0" / "name").as_uri(),
            "dfs.namenode.handler.count": 64,
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.permissions.enabled": "false",
            "dfs.datanode.data.dir": (self.folder / folder / "data").as_uri(),
            "dfs.datanode.address": anywhere,
            "dfs.datanode.ipc.address": anywhere,
            "dfs.datanode.http.address": anywhere,
            "dfs.datanode.hostname": "127.0.0.1",  # which its WebHDFS sends programs to
            # With three DataNodes there is none to replace one that fails.
            "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
            "hadoop.tmp.dir": f"{self.folder}/tmp",
        }


class HdfsThatSyncs(Hdfs):
    """Its DataNodes force every block to disk at its end, whoever writes it."""

    def _settings(self, folder: str) -> dict[str, object]:
        return {**super()._settings(folder), "dfs.datanode.synconclose": "true"}


def _site(values: dict[str, object]) -> str:
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    )
    return "<configuration>\n" + "\n".join(lines) + "\n</configuration>\n"
