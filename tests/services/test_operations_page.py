"""Backup and restore of docs/operations.md, done by the page: its commands are read from it and
run as they stand there, only with other names for its machines and folders."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from paxosblock import Client, LocalCluster
from tests.children import killed_at_the_end
from tests.services.content import content
from tests.services.test_leaving_nodes import QUICK, blocks
from tests.waiting import wait_until

PATIENCE_S = 90.0
FILES = {f"/data/{number}": size for number, size in enumerate((10, 5_000, 300_000) * 3)}
DELETED = "/data/deleted-since"


def commands(page: str) -> Iterator[str]:
    """Yield the commands of the part on backups, whole lines, as a reader would type them."""
    part = page.partition("\n## Backup\n")[2].partition("\n## ")[0]
    for block in re.finditer(r"^ *```console\n(.*?)^ *```$", part, re.MULTILINE | re.DOTALL):
        yield from (each.strip() for each in re.split(r"^ *\$ ", block[1], flags=re.MULTILINE)[1:])


class Operator:
    """Types the commands of the page, in their order; each machine is a folder here."""

    def __init__(self, cluster: LocalCluster, folder: Path, commands: Iterator[str]) -> None:
        self._commands, self._folder = commands, folder
        self._replaced = {"/backups/monday": str(folder / "monday")}
        self._replaced["/etc/paxosblock/secret"] = str(cluster.path / "secret")
        for number, address in enumerate(cluster.addresses, 1):
            self._replaced[f"nn{number}:9870"] = address
        self._environment = dict(os.environ)
        for name, value in QUICK["namenode"].items():
            self._environment[f"PAXOSBLOCK_NAMENODE_{name.upper()}"] = value
        (folder / "bin").mkdir()
        script = folder / "bin" / "paxosblock"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m paxosblock "$@"\n')
        script.chmod(0o755)
        self._environment["PATH"] = f"{script.parent}:{os.environ['PATH']}"

    def next(self, begins: str) -> str:
        """Return the next command of the page, which begins so."""
        command = next(self._commands)
        assert command.startswith(begins), command
        machine = re.search(r"--listen (nn\d)", command)
        folder = self._folder / (machine[1] if machine else "nn1")
        command = command.replace("/srv/nn", str(folder))
        for theirs, ours in self._replaced.items():
            command = command.replace(theirs, ours)
        return command

    def export(self) -> None:
        name, _, value = self.next("export ").removeprefix("export ").partition("=")
        self._environment[name] = value

    def run(self, begins: str, *, answers: str = "", code: int | None = 0) -> str:
        """Run the next command to its end, and return what it said."""
        return self.again(self.next(begins), answers=answers, code=code)

    def again(self, command: str, *, answers: str = "", code: int | None = 0) -> str:
        """Type a command at a terminal, and `answers` to what it asks."""
        terminal, stdin = pty.openpty()
        try:
            os.write(terminal, answers.encode())
            ended = subprocess.run(
                ["bash", "-c", command],
                check=False,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment,
                timeout=120,
            )
        finally:
            os.close(terminal)
            os.close(stdin)
        assert code is None or ended.returncode == code, f"{command}\n{ended.stdout}"
        return ended.stdout

    def start(self, stack: ExitStack) -> Path:
        """Run the next command, a node, until the stack ends; return its log."""
        command = self.next("paxosblock namenode ")
        log = self._folder / f"log-{len(list(self._folder.glob('log-*')))}"
        with open(log, "wb") as out:
            node = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stderr=out, stdout=out, env=self._environment
            )
        stack.enter_context(killed_at_the_end(node))
        return log


def write(fs: Client, path: str, size: int) -> None:
    with fs.create(path) as out:
        out.write(content(path, 0, size))


def wait_members(cluster: LocalCluster, count: int, without: str) -> None:
    """Wait until each block has so many members, none of which is that node."""

    def moved() -> bool:
        views = [view for path in FILES for view in blocks(cluster, path)]
        hosts = [{member.address for member in view.members} for view in views]
        return all(len(each) == count and without not in each for each in hosts)

    wait_until(moved, PATIENCE_S, f"each block at {count} others than {without}")


def test_a_catalog_is_brought_back_by_the_commands_of_the_page(
    tmp_path: Path, repository: Path
) -> None:
    page = (repository / "docs" / "operations.md").read_text(encoding="utf-8")
    typed = commands(page)
    with LocalCluster(4, 3, tmp_path / "cluster", settings=QUICK) as cluster, ExitStack() as stack:
        operator = Operator(cluster, tmp_path, typed)
        operator.export()
        with Client(cluster.url) as fs:
            for path, size in FILES.items():
                write(fs, path, size)
            write(fs, DELETED, 1000)
            operator.run("paxosblock admin backup")
            move_blocks(cluster, fs, operator)
        for node in cluster.namenodes:  # step 1
            node.kill()
            node.volumes[0].rename(tmp_path / f"put away {node.name}")
        operator.run("paxosblock admin restore")
        for _ in cluster.namenodes:
            operator.start(stack)
        report = operator.next("paxosblock admin report")
        wait_until(lambda: all_told(operator.again(report, code=None)), PATIENCE_S)
        fsck, missing = operator.next("paxosblock admin fsck"), f"{DELETED!r}: MISSING"
        # UNCLEAR until the DataNodes that are gone count as dead to the NameNode that leads now.
        wait_until(lambda: missing in operator.again(fsck, code=None), PATIENCE_S)
        operator.run("paxosblock admin safemode leave")
        with Client(cluster.url) as fs:
            wait_until(lambda: readable(fs), PATIENCE_S, "every file is read")
            said = operator.run("paxosblock admin fsck --delete-corrupt", answers="y\n", code=None)
            assert f"Deleted {DELETED}" in said
            assert not fs.exists(DELETED)
            assert readable(fs)
            write(fs, "/data/new", 1000)
        assert next(typed, None) is None, "the page has commands that nobody has run"


def move_blocks(cluster: LocalCluster, fs: Client, operator: Operator) -> None:
    """Let happen what does in the months after a backup: nodes leave and die, files change."""
    leaves, dies, *_ = cluster.datanodes
    fs.delete(DELETED)
    operator.again("paxosblock fs setrep -w 2 /data")
    operator.again(f"paxosblock admin decommission --wait {leaves.address}")
    leaves.stop()
    wait_members(cluster, 2, leaves.address)
    dies.kill()
    wait_members(cluster, 2, dies.address)


def all_told(report: str) -> bool:
    """True once blocks wait only for the two DataNodes that are gone."""
    waits = "Restored  10 blocks of the backup wait until its DataNodes have told" in report
    by_hand = "Safe mode is ON: entered by hand" in report
    return waits and by_hand and report.count(f"live, {len(FILES)} blocks") == 2


def readable(fs: Client) -> bool:
    for path, size in FILES.items():
        with fs.open(path) as file:
            if file.read() != content(path, 0, size):
                return False
    return True
