"""A writer that stands still while another one takes its file over, and wakes: real processes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import pytest

from paxosblock import Client, LocalCluster, WriteOptions
from paxosblock.api.datanode import LIST_REPLICAS, ListReplicas
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import BlockRequest
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.api.status import EXPLAIN
from paxosblock.base.replacement import Policy
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.errors import FencedError
from paxosblock.local.node_process import Node
from paxosblock.namenode.blocks.runner import STARTS
from paxosblock.net.calls import control
from paxosblock.protocol.recovery import RecoveryKind
from paxosblock.protocol.types import BlockId, Generation
from tests.children import killed_at_the_end
from tests.files import read
from tests.fork_server import Program
from tests.waiting import wait_until

PATH = "/log"
CHUNK_BYTES = 10
FLUSHED, UNFLUSHED, AFTER, LAST = (word * CHUNK_BYTES for word in (b"a", b"x", b"b", b"c"))
WRITER = f"""
import sys
from paxosblock import Client, WriteOptions

def told(word):
    print(word, flush=True)

fs = Client(sys.argv[1])
out = fs.create({PATH!r}, chunk_size={CHUNK_BYTES}, options=WriteOptions(sys.argv[2]))
out.write({FLUSHED * 2!r})
out.hflush()
told("flushed")
sys.stdin.readline()
out.write({UNFLUSHED * 2!r})
told("sent")
sys.stdin.readline()
told("wakes")
try:
    out.hflush()
except Exception as error:
    told(f"{{type(error).__name__}}: {{error}}")
else:
    told("flushed what it had")
"""


@dataclass
class Sleeper:
    """A writer in a process of its own."""

    process: subprocess.Popen[str]

    def says(self) -> str:
        """Wait for its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def go_on(self) -> None:
        """Let it pass the point where it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def asleep(cluster: LocalCluster, on_failure: str) -> Iterator[Sleeper]:
    """A writer that flushed two chunks, and stands still while two more are on their way, which
    the third DataNode has not got."""
    command = [sys.executable, "-c", WRITER, cluster.url, on_failure]
    process = Program(command, stdin=-1, stdout=-1, stderr=-3, text=True)
    with killed_at_the_end(process):
        sleeper = Sleeper(process)
        assert sleeper.says() == "flushed"
        cluster.datanodes[2].pause()
        sleeper.go_on()
        assert sleeper.says() == "sent"
        process.send_signal(signal.SIGSTOP)
        cluster.datanodes[2].kill()
        yield sleeper


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=3) as cluster:
        yield cluster


@pytest.mark.parametrize("on_failure", ["rebuild", "seal"])
def test_a_writer_whose_block_was_cut_meanwhile_hears_that_it_is_fenced(
    cluster: LocalCluster, on_failure: str
) -> None:
    """No chunk was lost: they were cut."""
    with asleep(cluster, on_failure) as sleeper, Client(cluster.url) as fs:
        assert fs.take_over(PATH) >= len(FLUSHED * 2)
        fs.truncate(PATH, len(FLUSHED))
        sleeper.process.send_signal(signal.SIGCONT)
        sleeper.go_on()
        assert sleeper.says() == "wakes"
        assert sleeper.says().startswith("FencedError: ")
        assert read(fs, PATH) == FLUSHED


def test_a_writer_that_wakes_gets_no_grant_of_the_one_that_took_its_file(
    cluster: LocalCluster,
) -> None:
    """The other one waits for a Rebuild, since one member was killed and another hangs."""
    config = ClientConfig(retry_for_s=60.0)
    with (
        asleep(cluster, "rebuild") as sleeper,
        Client(cluster.url, config) as fs,
        ThreadPoolExecutor(3) as pool,
    ):
        (block,) = control.call(cluster.namenode.address, GET_FILE, GetFile(PATH)).blocks
        fenced = block.record
        fs.take_over(PATH)
        fs.truncate(PATH, len(FLUSHED * 2))
        cluster.datanodes[2].start()
        cluster.wait_registered()
        wait_until(lambda: len(fs.locations(PATH)[0].hosts) == 3, what="three replicas")
        out = appended(fs)
        cluster.datanodes[1].pause()
        # In a call: a writer that is idle waits a second for a Rebuild, and seals the block.
        flushing = pool.submit(flush, out, LAST)
        wait_until(lambda: chunks_at(cluster.datanodes[0], fenced.block) == 4, what="the chunk")
        cluster.datanodes[2].kill()
        wait_until(lambda: is_being_rebuilt(cluster, fenced.block), what="a rebuild")
        sleeper.process.send_signal(signal.SIGCONT)
        sleeper.go_on()
        assert sleeper.says() == "wakes"
        asked = RebuildBlock(fenced.block, fenced.writer, Generation(0), (), Policy())
        late = pool.submit(control.call, cluster.namenode.address, REBUILD_BLOCK, asked)
        said = pool.submit(sleeper.says)
        wait([late], timeout=2.0)  # without the mend both join, and get the Grant below
        cluster.datanodes[1].resume()
        assert isinstance(late.exception(), FencedError)
        assert said.result().startswith("FencedError: ")
        flushing.result()
        out.close()
        assert read(fs, PATH) == FLUSHED * 2 + AFTER + LAST


def flush(out: FileWriter, data: bytes) -> None:
    """Write a chunk; return when it is acknowledged."""
    out.write(data)
    out.hflush()


def chunks_at(node: Node, block: BlockId) -> int:
    """Return how many chunks of the block a DataNode has."""
    found = control.call(node.address, LIST_REPLICAS, ListReplicas()).replicas
    return sum(each.state.length for each in found if each.state.block == block)


def is_being_rebuilt(cluster: LocalCluster, block: BlockId) -> bool:
    """True once a Rebuild of the block began; the members are not asked, as one of them hangs."""
    story = control.call(cluster.namenode.address, EXPLAIN, BlockRequest(block))
    return any(line.event == STARTS[RecoveryKind.REBUILD] for line in story.history)


def appended(fs: Client) -> FileWriter:
    """Another writer, which goes on in the same block, and whose chunk is flushed."""
    out = fs.append(PATH, chunk_size=CHUNK_BYTES, options=WriteOptions(on_failure="rebuild"))
    out.write(AFTER)
    out.hflush()
    assert len(fs.locations(PATH)) == 1, "it goes on in the same block"
    return out
