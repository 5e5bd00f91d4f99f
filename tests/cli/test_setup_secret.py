"""`paxosblock setup secret`, and the nodes that read its file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from tests.cli.conftest import Paxosblock


def test_a_cluster_with_a_made_secret_serves_those_who_have_it(
    paxosblock: Paxosblock, tmp_path: Path
) -> None:
    file = tmp_path / "access"
    made = paxosblock("setup", "secret", str(file))
    assert (made.code, made.out, made.err) == (0, f"{file} holds a new secret\n", "")

    section = {"access_file": str(file)}
    settings = {"namenode": section, "datanode": section}
    with (
        LocalCluster(1, 1, tmp_path / "cluster", settings=settings) as cluster,
        Client(cluster.url, ClientConfig(access_file=str(file))) as fs,
    ):
        fs.mkdirs("/d")
        assert fs.exists("/d")


def test_a_file_that_is_there_stays_as_it_is(paxosblock: Paxosblock, tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_text("ours")
    refused = paxosblock("setup", "secret", str(file))
    assert refused.code == 1
    assert refused.err == f"secret: '{file}': it is there already, and stays as it is\n"
    assert file.read_text() == "ours"


def test_a_node_refuses_a_file_with_a_comment_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_text("# the secret of our cluster\n")
    file.chmod(0o600)
    words = ["namenode", "--path", str(tmp_path / "node"), "--listen", "127.0.0.1:0"]
    # A process of its own: a node sets up logs and umask for all that comes after it.
    refused = subprocess.run(
        [sys.executable, "-m", "paxosblock", *words],
        env={**os.environ, "PAXOSBLOCK_ACCESS_FILE": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(
        f"namenode: access_file {file}: line 1 is no secret, one word of base64 or hex of 32 bytes"
    )
