"""A real NameNode whose backup is asked for by a caller who then does not read it."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.transaction import MakeDirectory
from paxosblock.base.units import MIB
from paxosblock.host.user import current_user
from paxosblock.local.node_process import Node
from paxosblock.net.port.caller import USER
from tests.secure import url_of
from tests.services.conftest import QUICK
from tests.waiting import wait_until

DIRECTORIES = 24_000
AT_ONCE = 2_000
"""Names of 250 bytes: more than the buffers of both ends of a connection take."""


def fill(fs: Client) -> None:
    """Make the catalog long."""
    for first in range(0, DIRECTORIES, AT_ONCE):
        names = (f"/{number:0>250}" for number in range(first, first + AT_ONCE))
        fs.transact([MakeDirectory(name) for name in names])


def ask_and_read_nothing(namenode: Node) -> socket.socket:
    host, _, port = namenode.address.rpartition(":")
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.connect((host, int(port)))
    head = f"Host: {namenode.address}\r\n{USER}: {current_user()}\r\n\r\n"
    stalled.sendall(f"GET /backup HTTP/1.1\r\n{head}".encode())
    return stalled


def backup_of(namenode: Node) -> bytes:
    """Return a backup; b"" if the NameNode gives another one just now."""
    try:
        asked = Request(url_of(namenode.address, "backup"), headers={USER: current_user()})
        with urlopen(asked) as answer:
            data: bytes = answer.read()
            return data
    except HTTPError as refusal:
        if refusal.code != 503 or b"gives another one" not in refusal.read():
            raise
        return b""


@pytest.mark.plain("it sends plain bytes of HTTP")
def test_a_reader_that_stalls_holds_up_no_other_backup_and_no_room(tmp_path: Path) -> None:
    with LocalCluster(1, 1, tmp_path) as cluster, Client(cluster.url, QUICK) as fs:
        fill(fs)
        namenode = cluster.namenode

        def copies() -> list[Path]:
            return list(namenode.volumes[0].glob("*/db.sent-*"))

        with ask_and_read_nothing(namenode):
            wait_until(copies, what="the copy that is being given")
            assert backup_of(namenode) == b"", "one at a time"
            found = wait_until(lambda: backup_of(namenode), what="a backup for the next one")
            assert found is not None
            assert len(found) > 8 * MIB
        wait_until(lambda: not copies(), what="the copies to be removed")
        wait_until(lambda: "took nothing for 10 s" in namenode.log.read_text(), what="the reason")
        assert "Traceback" not in namenode.log.read_text()
