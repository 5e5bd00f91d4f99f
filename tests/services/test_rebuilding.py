"""Files whose blocks are rebuilt when a DataNode is killed: real processes, disks and settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster, WriteOptions
from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.base.units import KIB
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.errors import NoSpaceError
from tests.cli.conftest import Paxosblock, paxosblock  # noqa: F401 - a fixture
from tests.services.content import content, first_difference
from tests.waiting import wait_until

PIECE_BYTES = 64 * KIB
GO_ON = [Replacement.DISABLE, Replacement.NEVER, Replacement.DEFAULT]


@pytest.fixture(scope="module")
def running() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: LocalCluster) -> LocalCluster:
    """All three DataNodes live."""
    running.start_missing()
    running.wait_registered()
    return running


@pytest.fixture
def command(
    running: LocalCluster,
    paxosblock: Paxosblock,  # noqa: F811 - it is the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> Paxosblock:
    """The command, which finds the cluster."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(running.addresses))
    return paxosblock


class Written:
    """A file that is being written, and how much of it was flushed."""

    def __init__(self, path: str, out: FileWriter) -> None:
        self.path = path
        self.out = out
        self.flushed = 0

    def go_on(self, pieces: int = 1) -> None:
        """Write and flush so many pieces more."""
        for _ in range(pieces):
            at = self.out.tell()
            self.out.write(content(self.path, at, at + PIECE_BYTES))
            self.out.hflush()
            self.flushed = at + PIECE_BYTES

    def is_flushed(self) -> bool:
        """Try to flush all that was written."""
        try:
            self.out.hflush()
        except NoSpaceError:
            return False
        self.flushed = self.out.tell()
        return True

    def check(self, fs: Client) -> None:
        """Every byte that was flushed is there, in its place."""
        with fs.open(self.path) as file:
            data = file.read()
        assert len(data) >= self.flushed
        assert first_difference(self.path, 0, data) is None


def hosts(fs: Client, path: str) -> list[int]:
    """Of each block of a file the number of live DataNodes that hold it."""
    return [len(block.hosts) for block in fs.locations(path)]


def test_a_member_killed_while_a_file_is_written_costs_no_byte_and_no_block(
    cluster: LocalCluster,
    command: Paxosblock,
) -> None:
    with (
        Client(cluster.url) as fs,
        fs.create("/rebuilt", options=WriteOptions(on_failure="rebuild")) as out,
    ):
        written = Written("/rebuilt", out)
        written.go_on()
        cluster.datanodes[0].kill()
        written.go_on(3)
        written.check(fs)
        assert (out.fewest_replicas, hosts(fs, "/rebuilt")) == (2, [2])
        told = command("explain", "/rebuilt").out
        assert "only 2 of 3 replicas" in told
        assert "rebuilt" in told
        cluster.start_missing()
        cluster.wait_registered()
        # HDFS-6867: the DataNode that is back becomes a member while the block is written.
        wait_until(lambda: hosts(fs, "/rebuilt") == [3], what="a third member, in the same block")
        written.go_on()
        out.close()
        written.check(fs)
        assert fs.stat("/rebuilt").size == written.flushed
        assert hosts(fs, "/rebuilt") == [3]


@pytest.mark.parametrize("on_failure", OnFailure)
def test_with_three_nodes_and_one_dead_every_policy_but_always_goes_on(
    cluster: LocalCluster,
    on_failure: OnFailure,
    command: Paxosblock,
) -> None:
    with Client(cluster.url) as fs, Client(cluster.url, ClientConfig(retry_for_s=1.0)) as hasty:

        def begun(by: Client, policy: Replacement, *, best_effort: bool = False) -> Written:
            path = f"/{on_failure.value}-{policy.value}-{best_effort}"
            out = by.create(
                path,
                options=WriteOptions(
                    on_failure=on_failure, replace_on_failure=policy, best_effort=best_effort
                ),
            )
            written = Written(path, out)
            written.go_on()
            return written

        lenient = [begun(fs, policy) for policy in GO_ON]
        lenient.append(begun(fs, Replacement.ALWAYS, best_effort=True))
        strict = begun(hasty, Replacement.ALWAYS)
        cluster.datanodes[1].kill()
        for written in lenient:
            written.go_on(2)  # the first may still be in the block that is sealed
            assert "only 2 of 3 replicas" in command("explain", written.path).out
            written.out.close()
            written.check(fs)
        with pytest.raises(NoSpaceError, match="policy 'always' needs 3 DataNodes, and there are"):
            strict.go_on(2)
        strict.check(fs)
        cluster.start_missing()
        cluster.wait_registered()
        wait_until(strict.is_flushed, what="a third DataNode, as the policy asks for")
        strict.out.close()
        strict.check(fs)


def test_a_name_that_is_none_is_one_line_and_changes_nothing(
    cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    command: Paxosblock,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_ON_FAILURE", "maybe")
    result = command("fs", "put", __file__, "/never")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert '= \'maybe\': expected one of "seal", "rebuild"' in result.err
    monkeypatch.delenv("PAXOSBLOCK_CLIENT_ON_FAILURE")
    with Client(cluster.url) as fs:
        assert not fs.exists("/never")
