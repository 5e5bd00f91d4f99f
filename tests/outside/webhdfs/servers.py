"""Two servers of WebHDFS: a gateway of ours with its cluster, and HDFS's own by Maven's jars."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from paxosblock import Client, LocalCluster
from tests.gateway.gateways import gateway_of
from tests.make_api import REPOSITORY
from tests.waiting import wait_until

HERE: Final = Path(__file__).parent
FOLDER: Final = REPOSITORY / "build" / "webhdfs-suites"
"""The folder of jars, classes and results."""
LONGEST_S: Final = 1800.0
"""Seconds that a step may take: Maven fetches 110 MB the first time."""
_OPEN: Final = ("java.lang", "java.util")


def java(*arguments: str | Path) -> list[str]:
    """Return the command that runs `WebHdfsSuites`."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPEN]
    path = f"{FOLDER / 'classes'}:{HERE}:{FOLDER / 'jars'}/*"
    return ["java", "-Xmx1500m", *opened, "-cp", path, "WebHdfsSuites", *map(str, arguments)]


def build() -> None:
    """Fetch Hadoop's jars, unless they are there, and compile what runs its tests."""
    jars, classes = FOLDER / "jars", FOLDER / "classes"
    for folder in (jars, classes):
        folder.mkdir(parents=True, exist_ok=True)
    if not any(jars.glob("hadoop-hdfs-*-tests.jar")):
        fetch = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*fetch, f"-DoutputDirectory={jars}"], check=True, timeout=LONGEST_S)
    source = HERE / "WebHdfsSuites.java"
    compiler = ["javac", "-nowarn", "-proc:none", "-d", str(classes), "-cp", f"{jars}/*"]
    subprocess.run([*compiler, str(source)], check=True, timeout=LONGEST_S)


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Give the address of a gateway whose cluster lets everybody write to the root."""
    with LocalCluster(path=folder / "cluster") as cluster:
        with Client(cluster.url) as fs:
            fs.set_permission("/", 0o777)
        (folder / "gateway").mkdir()
        with gateway_of(cluster, folder / "gateway") as running:
            yield running.address


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """Give the address of HDFS's NameNode, in a process that ends with the block."""
    address = folder / "address"
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            java("serve", address), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder
        )
        try:

            def serves() -> bool:
                assert server.poll() is None, (folder / "log").read_text()
                return address.exists() and address.read_text().endswith("\n")

            wait_until(serves, what="HDFS", timeout_s=120)
            yield address.read_text().strip()
        finally:
            assert server.stdin is not None
            server.stdin.close()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
