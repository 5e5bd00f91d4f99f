"""A URL of another cluster is not this cluster: nothing of it is done to a path of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paxosblock.client.blocking.sync import Client
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import PaxosBlockError
from paxosblock.local.cluster import LocalCluster

OTHER = "paxosblock://other:9870"

VERBS: dict[str, Callable[[Any, str, str], object]] = {
    "rm": lambda fs, url, own: fs.rm(url),
    "rm a list": lambda fs, url, own: fs.rm([own, url]),
    "rm recursive": lambda fs, url, own: fs.rm(url, recursive=True),
    "rm_file": lambda fs, url, own: fs.rm_file(url),
    "mv from": lambda fs, url, own: fs.mv(url, own + "2"),
    "mv to": lambda fs, url, own: fs.mv(own, url),
    "cp from": lambda fs, url, own: fs.cp(url, own + "2"),
    "cp to": lambda fs, url, own: fs.cp(own, url),
    "open": lambda fs, url, own: fs.open(url),
    "open to write": lambda fs, url, own: fs.open(url, "wb"),
    "pipe": lambda fs, url, own: fs.pipe(url, b"new"),
    "pipe_file": lambda fs, url, own: fs.pipe_file(url, b"new"),
    "cat": lambda fs, url, own: fs.cat(url),
    "cat_ranges": lambda fs, url, own: fs.cat_ranges([url], 0, 1, on_error="raise"),
    "put": lambda fs, url, own: fs.put(__file__, url),
    "touch": lambda fs, url, own: fs.touch(url),
    "ls": lambda fs, url, own: fs.ls(url),
    "info": lambda fs, url, own: fs.info(url),
    "exists": lambda fs, url, own: fs.exists(url),
    "find": lambda fs, url, own: fs.find(url),
    "glob": lambda fs, url, own: fs.glob(url + "*"),
    "mkdir": lambda fs, url, own: fs.mkdir(url + "/new"),
    "rmdir": lambda fs, url, own: fs.rmdir(url),
    "unstrip_protocol": lambda fs, url, own: fs.unstrip_protocol(url),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_no_verb_takes_a_url_of_another_cluster_for_a_path_of_this_one(
    fs: PaxosBlockFileSystem, home: str, verb: Callable[[Any, str, str], object]
) -> None:
    fs.pipe_file(f"{home}/a", b"ours")
    with pytest.raises(ValueError, match="other:9870 is no NameNode of the cluster"):
        verb(fs, f"{OTHER}{home}/a", f"{home}/a")
    assert fs.cat(fs.find(home)) == {f"{home}/a": b"ours"}


def test_a_url_of_this_cluster_is_taken_also_by_another_name_of_this_machine(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    fs.pipe_file(f"{home}/a", b"ours")
    for url in (cluster.url, cluster.url.replace("127.0.0.1", "localhost"), "paxosblock://"):
        assert fs.cat_file(f"{url}{home}/a") == b"ours"
    fs.rm(f"{cluster.url}{home}/a")
    assert fs.ls(home) == []


def test_a_client_takes_paths_and_no_url(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    fs.pipe_file(f"{home}/a", b"ours")
    url = f"{OTHER}{home}/a"
    with Client(cluster.url) as client:
        for verb in (client.delete, client.stat, client.open, client.ls, client.create):
            with pytest.raises(PaxosBlockError, match="a path starts with '/'"):
                verb(url)
        with pytest.raises(PaxosBlockError, match="a path starts with '/'"):
            client.rename(f"{home}/a", url)
        with pytest.raises(PaxosBlockError, match="a path starts with '/'"):
            client.glob(url + "*")
    assert fs.cat_file(f"{home}/a") == b"ours"


def test_a_member_that_was_not_named_is_this_cluster_too() -> None:
    with LocalCluster(namenodes=3, datanodes=1) as cluster:
        first, *_, last = cluster.addresses
        fs = PaxosBlockFileSystem(first, replication=1, skip_instance_cache=True)
        assert fs.glob(f"paxosblock://{last}/*") == []
        fs.pipe_file(f"paxosblock://{last}/a", b"ours")
        assert fs.cat_file("/a") == b"ours"
        with pytest.raises(ValueError, match="other:9870 is no NameNode"):
            fs.rm(f"{OTHER}/a")
        fs.close()
