"""Verbs that wait or ask, as a user at a terminal sees them: processes on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.text import percent
from paxosblock.errors import PaxosBlockError
from tests.children import killed_at_the_end
from tests.cli.conftest import Paxosblock
from tests.waiting import PATIENCE_S, wait_until

NODE: Final = "datanode-1"
CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Colours, and where the cursor goes."""


class Terminal:
    """A process, and the terminal that it was started from."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int) -> None:
        self.shown = ""
        """Everything that it wrote, without colours."""
        self._process = process
        self._handle = handle
        self._bytes = b""

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._handle, f"{line}\n".encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first thing like this that was shown; raise AssertionError if none comes."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.shown)) is None:
            assert self._read(deadline), f"it ended without {pattern!r}: {self.shown}"
        return found

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self, deadline: float) -> bool:
        """Take what comes next; False when no process is left that could write."""
        ready, _, _ = select.select([self._handle], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"it shows nothing more: {self.shown}"
        try:
            self._bytes += os.read(self._handle, 65536)
        except OSError:  # EIO: the last process that had it open has ended
            return False
        self.shown = CONTROL.sub("", self._bytes.decode(errors="replace")).replace("\r\n", "\n")
        return True


@pytest.fixture
def addresses(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands find the shared cluster."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))


pytestmark = pytest.mark.usefixtures("addresses")


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[Terminal]:
    """The command on a terminal of its own, for the length of a `with`."""
    handle, its = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": ":".join(sys.path)}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "paxosblock", *arguments],
            stdin=its,
            stdout=its,
            stderr=its,
            env=environment,
            start_new_session=True,
        )
        os.close(its)
        with killed_at_the_end(process):
            yield Terminal(process, handle)
    finally:
        os.close(handle)


def make(client: Client, path: str, replication: int) -> None:
    with client.create(path, replication=replication) as out:
        out.write(b"abc")


def test_a_node_that_leaves_is_a_bar_that_grows_until_it_may_go(
    client: Client, folder: str, paxosblock: Paxosblock
) -> None:
    for entry in client.ls("/"):  # other tests have left files that hold it up for ever
        if entry.path != folder:
            client.delete(entry.path, recursive=True)
    for name in ("a", "b"):
        make(client, f"{folder}/{name}", 3)
    try:
        with on_a_terminal("admin", "decommission", "--wait", NODE) as terminal:
            terminal.wait_for(rf"{NODE} ━+ +\d+/\d+")
            terminal.wait_for(r"waits for '.*/[ab]' .*only 2 other DataNodes live")
            for name in ("a", "b"):
                client.set_replication(f"{folder}/{name}", 2)
            assert terminal.end() == 0
            assert terminal.wait_for(rf"{NODE}: decommissioned, enough replicas .* elsewhere\n")
    finally:
        assert paxosblock("admin", "recommission", NODE).code == 0


def test_setrep_shows_dots_until_the_replicas_are_as_many(
    client: Client, cluster: LocalCluster, folder: str
) -> None:
    with client.create(f"{folder}/a", replication=2) as out:
        out.write(MARK)
    (block,) = client.locations(f"{folder}/a")
    (third,) = (node for node in cluster.datanodes if node.address not in block.hosts)
    third.pause()  # it lives, as far as the NameNode knows, and makes no copy
    try:
        with on_a_terminal("fs", "setrep", "-w", "3", f"{folder}/a") as terminal:
            terminal.wait_for(rf"Replication 3 set: {folder}/a\nWaiting for {folder}/a \.\.\.\.")
            third.resume()
            assert terminal.end() == 0
    finally:
        third.resume()
    with on_a_terminal("fs", "setrep", "-w", "2", f"{folder}/a") as terminal:
        assert terminal.end() == 0
        assert re.search(rf"Waiting for {folder}/a \.+ done\n", terminal.shown)
    (block,) = client.locations(f"{folder}/a")
    assert len(block.hosts) == 2


def test_the_balancer_is_a_bar_and_then_a_line() -> None:
    with on_a_terminal("admin", "balancer") as terminal:
        assert terminal.end() == 0
        bar, _, line = terminal.shown.rpartition("balanced: ")
        assert re.search(r"balancing ━+ +0(/0)? bytes", bar)
        share = r"\d+(\.\d)? %"
        used = rf"(less than )?{share}"
        line_says = (
            rf"0 in 0 blocks moved; the use of 3 storages is within {share} of the mean, {used}"
        )
        assert re.fullmatch(line_says, line.strip())


@pytest.mark.parametrize(
    ("share", "said"),
    [(6e-08, "less than 0.1 %"), (0.0, "0 %"), (0.046, "4.6 %"), (0.61, "61 %"), (1.0, "100 %")],
)
def test_a_share_is_a_number_that_people_say(share: float, said: str) -> None:
    assert percent(share) == said


def damage(client: Client, cluster: LocalCluster, path: str) -> None:
    """Flip a bit of the only replica of a file, and let a reader find it."""
    wait_until(lambda: len(client.locations(path)[0].hosts) == 1, what="one replica")
    found = [file for node in cluster.datanodes for file in data_files(node.volumes)]
    for file in found:
        data = bytearray(file.read_bytes())
        if data[-len(MARK) :] == MARK:
            data[-1] ^= 1
            file.write_bytes(data)
    with pytest.raises(PaxosBlockError), client.open(path) as opened:
        opened.read()


MARK: Final = b"this one will be damaged" * 8


def data_files(volumes: tuple[Path, ...]) -> Iterator[Path]:
    for volume in volumes:
        yield from (each for each in (volume / "current").rglob("blk_*") if not each.suffix)


def test_fsck_asks_before_it_deletes_and_takes_no_for_an_answer(
    client: Client, cluster: LocalCluster, folder: str, paxosblock: Paxosblock
) -> None:
    path = f"{folder}/corrupt"
    with client.create(path, replication=1) as out:
        out.write(MARK)
        out.hflush()  # so that it has a file of its own
    damage(client, cluster, path)
    wait_until(lambda: "CORRUPT block" in paxosblock("fsck", path).out, what="it to be known")
    for answer, code in (("n", 1), ("", 1), ("y", 1)):
        with on_a_terminal("fsck", folder, "--delete-corrupt") as terminal:
            terminal.wait_for(r"Delete 1 file, with all that is in them\? \[y/N\]:")
            assert client.exists(path)
            terminal.type(answer)
            assert terminal.end() == code
            assert ("nothing was deleted" in terminal.shown) == (answer != "y")
            assert (f"Deleted {path}" in terminal.shown) == (answer == "y")
    assert not client.exists(path)
