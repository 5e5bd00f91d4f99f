"""A gateway that dies in the middle of a request: no half of a file is taken for a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from tests.gateway.gateways import content, gateway_of, put
from tests.waiting import wait_until

DATA = os.urandom(3_000_000)


def beginning(address: str, target: str) -> bytes:
    """The first bytes of a request whose body goes on."""
    head = f"PUT {target} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000000000\r\n\r\n"
    return head.encode() + DATA


def test_killed_in_a_create_it_leaves_what_hdfs_leaves(
    cluster: LocalCluster, fs: Client, home: str, tmp_path: Path
) -> None:
    """A file that was new is open until its lease ends, as after a DataNode of HDFS that took the
    bytes has died; and another gateway makes it meanwhile."""
    with gateway_of(cluster, tmp_path) as gateway, gateway.connect() as connection:
        connection.sendall(
            beginning(gateway.address, gateway.url(f"{home}/f", "CREATE", data="true"))
        )
        wait_until(lambda: fs.exists(f"{home}/f") and fs.stat(f"{home}/f").open)
        gateway.kill()
    second = tmp_path / "second"
    second.mkdir()
    with gateway_of(cluster, second) as gateway:

        def made() -> bool:
            return gateway.write(f"{home}/f", b"whole", overwrite="true").status == 201

        wait_until(made, what="the end of the lease")
        assert content(fs, f"{home}/f") == b"whole"


def test_killed_as_it_replaces_a_file_it_leaves_the_old_one(
    cluster: LocalCluster, fs: Client, home: str, tmp_path: Path
) -> None:
    put(fs, f"{home}/f", b"old")
    with gateway_of(cluster, tmp_path) as gateway:
        target = gateway.url(f"{home}/f", "CREATE", data="true", overwrite="true")
        with gateway.connect() as connection:
            connection.sendall(beginning(gateway.address, target))
            wait_until(lambda: any(each.open for each in fs.walk("/.staging")))
            gateway.kill()
    assert content(fs, f"{home}/f") == b"old"
    # What is hidden goes with its directory, which has a time to live.
    (staged,) = [each for each in fs.walk("/.staging") if each.kind is Kind.FILE]
    assert fs.stat(staged.path.rpartition("/")[0]).expires_s > 0


SENT = {"nothing": 0, "a part": len(DATA) // 2, "all": len(DATA)}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("op", ["CREATE", "APPEND"])
def test_killed_at_any_byte_it_leaves_no_file_that_never_was(  # noqa: PLR0917 - fixtures
    cluster: LocalCluster, fs: Client, home: str, tmp_path: Path, op: str, sent: str
) -> None:
    """A file that is replaced is the old or the whole new one; one that is appended to begins with
    what it had, and goes on with what was sent. Another gateway writes it again soon."""
    path = f"{home}/f"
    put(fs, path, b"old")
    before = hidden(fs)

    def begun() -> bool:
        status = fs.stat(path)
        return status.open or status.size != len(b"old") or hidden(fs) != before

    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with gateway_of(cluster, first) as gateway, gateway.connect() as connection:
        method = "PUT" if op == "CREATE" else "POST"
        target = gateway.url(path, op, data="true", overwrite="true")
        fields = f"Host: {gateway.address}\r\nContent-Length: {len(DATA)}"
        head = f"{method} {target} HTTP/1.1\r\n{fields}\r\n\r\n"
        connection.sendall(head.encode() + DATA[: SENT[sent]])
        wait_until(begun, what="a writer, or its end")
        gateway.kill()
    with gateway_of(cluster, second) as gateway:

        def appended() -> bool:
            return gateway.write(path, b"!", "APPEND").status == 200

        wait_until(appended, what="the end of the lease")
    found = content(fs, path)
    if op == "CREATE":
        assert found in (b"old!", DATA + b"!")
    else:
        assert found.startswith(b"old")
        assert found.endswith(b"!")
        assert DATA[: SENT[sent]].startswith(found[3:-1])


def hidden(fs: Client) -> set[str]:
    """The files that are not published yet, or never will be."""
    if not fs.exists("/.staging"):
        return set()
    return {each.path for each in fs.walk("/.staging") if each.kind is Kind.FILE}
