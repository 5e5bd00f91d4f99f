"""A path that is a URL belongs to the cluster that the URL names, whatever is configured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import InvalidRequestError
from tests.cli.conftest import Paxosblock
from tests.cli.test_usage import ALL_GROUPS, closed_port, commands
from tests.files import read

__all__ = ["closed_port"]

Words = Callable[[str, str], tuple[str, ...]]
"""The words of a command, from a cluster's URL with a directory in it and a local file's name."""

VERBS: dict[str, Words] = {
    "ls": lambda url, local: ("fs", "ls", f"{url}/a"),
    "mkdir": lambda url, local: ("fs", "mkdir", f"{url}/new"),
    "rm": lambda url, local: ("fs", "rm", f"{url}/a"),
    "mv": lambda url, local: ("fs", "mv", f"{url}/a", f"{url}/c"),
    "concat": lambda url, local: ("fs", "concat", f"{url}/a", f"{url}/b"),
    "recover-lease": lambda url, local: ("fs", "recover-lease", f"{url}/a"),
    "setrep": lambda url, local: ("fs", "setrep", "2", f"{url}/a"),
    "chmod": lambda url, local: ("fs", "chmod", "600", f"{url}/a"),
    "chown": lambda url, local: ("fs", "chown", "ann:staff", f"{url}/a"),
    "chgrp": lambda url, local: ("fs", "chgrp", "staff", f"{url}/a"),
    "getfattr": lambda url, local: ("fs", "getfattr", "-d", f"{url}/a"),
    "setfattr": lambda url, local: ("fs", "setfattr", "-n", "user.a", f"{url}/a"),
    "getfacl": lambda url, local: ("fs", "getfacl", f"{url}/a"),
    "setfacl": lambda url, local: ("fs", "setfacl", "-m", "user:ann:r--", f"{url}/a"),
    "stat": lambda url, local: ("fs", "stat", f"{url}/a"),
    "du": lambda url, local: ("fs", "du", f"{url}/a"),
    "df": lambda url, local: ("fs", "df", f"{url}/a"),
    "count": lambda url, local: ("fs", "count", f"{url}/a"),
    "find": lambda url, local: ("fs", "find", f"{url}/a", "-name", "*"),
    "test": lambda url, local: ("fs", "test", "-e", f"{url}/a"),
    "touch": lambda url, local: ("fs", "touch", f"{url}/new"),
    "touchz": lambda url, local: ("fs", "touchz", f"{url}/new"),
    "rmdir": lambda url, local: ("fs", "rmdir", "--ignore-fail-on-non-empty", url),
    "cp": lambda url, local: ("fs", "cp", f"{url}/a", f"{url}/new"),
    "checksum": lambda url, local: ("fs", "checksum", f"{url}/a"),
    "copyFromLocal": lambda url, local: ("fs", "copyFromLocal", local, f"{url}/new"),
    "moveFromLocal": lambda url, local: ("fs", "moveFromLocal", local, f"{url}/new"),
    "appendToFile": lambda url, local: ("fs", "appendToFile", local, f"{url}/a"),
    "copyToLocal": lambda url, local: ("fs", "copyToLocal", f"{url}/a", "-"),
    "text": lambda url, local: ("fs", "text", f"{url}/a"),
    "getmerge": lambda url, local: ("fs", "getmerge", f"{url}/a", f"{local}.all"),
    "createSnapshot": lambda url, local: ("fs", "createSnapshot", url, "s"),
    "put": lambda url, local: ("fs", "put", local, f"{url}/new"),
    "append": lambda url, local: ("fs", "append", local, f"{url}/a"),
    "truncate": lambda url, local: ("fs", "truncate", "2", f"{url}/a"),
    "sync": lambda url, local: ("fs", "sync", url, f"file:{local}.folder"),
    "get": lambda url, local: ("fs", "get", f"{url}/a", "-"),
    "cat": lambda url, local: ("fs", "cat", f"{url}/a"),
    "head": lambda url, local: ("fs", "head", f"{url}/a"),
    "tail": lambda url, local: ("fs", "tail", f"{url}/a"),
}
OTHERS: dict[str, Words] = {
    "setrep -w": lambda url, local: ("fs", "setrep", "-w", "3", f"{url}/a"),
    "explain": lambda url, local: ("explain", f"{url}/a"),
    "fsck": lambda url, local: ("fsck", f"{url}/a"),
    "admin fsck": lambda url, local: ("admin", "fsck", f"{url}/a"),
    "admin encrypt": lambda url, local: ("admin", "encrypt", f"{url}-empty"),
    "admin recover-lease": lambda url, local: ("admin", "recover-lease", f"{url}/a"),
    "deleteSnapshot": lambda url, local: ("fs", "deleteSnapshot", f"{url}-kept", "s"),
    "renameSnapshot": lambda url, local: ("fs", "renameSnapshot", f"{url}-kept", "s", "t"),
    "snapshotDiff": lambda url, local: ("fs", "snapshotDiff", f"{url}-kept", "s"),
    "snapshot list": lambda url, local: ("fs", "snapshot", "list", f"{url}-kept"),
    "spark distcp": lambda url, local: ("spark", "distcp", local, f"{url}/a"),
    "spark fsck": lambda url, local: ("spark", "fsck", "--deep", f"{url}/a"),
    "spark compact": lambda url, local: ("spark", "compact", f"{url}/a"),
}
UNTIL_STOPPED: dict[str, Words] = {"watch": lambda url, local: ("fs", "watch", url)}
OF_HISTORY: dict[str, Words] = {
    "undelete": lambda url, local: ("fs", "undelete", f"{url}-gone"),
}
"""Commands of a cluster that keeps a history: tests/client/test_history.py has one."""
ALL = VERBS | OTHERS | UNTIL_STOPPED | OF_HISTORY
WITHOUT_PATHS = {
    "admin backup",
    "admin decommission",
    "admin maintenance",
    "admin recommission",
    "admin restore",
    "admin safemode",
    "bench report",
    "bench run",
    "cluster restart",
    "fs help",
    "fs moveToLocal",
    "fs usage",
    "help",
    "setup completion",
    "setup node",
    "setup secret",
    "setup tls",
    "setup tls-user",
}
"""Commands whose words name nothing in a cluster."""
ENDING = {name: words for name, words in (VERBS | OTHERS).items() if not name.startswith("spark")}
"""Commands that end soon, and need no JVM."""


@dataclass(frozen=True)
class Scene:
    """A cluster with the files `a` and `b` in a directory, an empty directory beside it, one with a
    snapshot, and a local file."""

    cluster: LocalCluster
    client: Client
    folder: str
    local: str

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the directory by name, with their bytes."""
        entries = self.client.ls(self.folder)
        return {entry.path.rpartition("/")[2]: read(self.client, entry.path) for entry in entries}


AS_MADE = {"a": b"aaaa", "b": b"bbbb"}


@pytest.fixture
def scene(cluster: LocalCluster, client: Client, folder: str, tmp_path: Path) -> Scene:
    """The shared cluster, with files of this test's own."""
    for name, data in AS_MADE.items():
        with client.create(f"{folder}/{name}") as out:
            out.write(data)
    client.mkdirs(f"{folder}-empty")
    client.mkdirs(f"{folder}-kept")
    client.create_snapshot(f"{folder}-kept", "s")
    local = tmp_path / "local"
    local.write_bytes(b"local")
    return Scene(cluster, client, folder, str(local))


def test_all_commands_that_take_paths_are_tried_here() -> None:
    take_words = {
        " ".join((*words, name))
        for words, group in ALL_GROUPS.items()
        for name, command in commands(group)
        if any(isinstance(each, click.Argument) for each in command.params)
    }
    lines = [" ".join(words("", "")) + " " for words in ALL.values()]
    tried = {each for each in take_words if any(line.startswith(f"{each} ") for line in lines)}
    assert take_words - tried == WITHOUT_PATHS


@pytest.mark.parametrize("words", ENDING.values(), ids=ENDING.keys())
def test_a_verb_works_in_the_cluster_of_its_url_and_not_in_the_configured_one(
    paxosblock: Paxosblock,
    scene: Scene,
    closed_port: str,
    words: Words,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", closed_port)
    url = scene.cluster.url + scene.folder
    result = paxosblock("--timeout", "5s", *words(url, scene.local))
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("words", ALL.values(), ids=ALL.keys())
def test_no_verb_takes_the_path_of_a_url_for_one_of_the_configured_cluster(
    paxosblock: Paxosblock,
    scene: Scene,
    closed_port: str,
    words: Words,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(scene.cluster.addresses))
    url = f"paxosblock://{closed_port}{scene.folder}"
    result = paxosblock("--timeout", "0s", *words(url, scene.local))
    assert (result.code, result.out) == (1, "")
    assert closed_port in result.err
    assert result.err.count("\n") == 1
    assert scene.files == AS_MADE


def test_a_url_of_another_cluster_after_the_first_path_is_refused(
    paxosblock: Paxosblock, scene: Scene, closed_port: str
) -> None:
    first = f"{scene.cluster.url}{scene.folder}/a"
    result = paxosblock("fs", "truncate", "2", first, f"paxosblock://{closed_port}{scene.folder}/b")
    assert result.code == 1
    assert f"{closed_port} is no NameNode of the cluster" in result.err
    assert scene.files == AS_MADE | {"a": b"aa"}


def test_a_url_after_the_cluster_was_settled_does_not_change_it(closed_port: str) -> None:
    with closing(Invocation(timeout=0.0)) as invocation:
        assert invocation.client.config.retry_for_s == 0
        with pytest.raises(InvalidRequestError, match="is no NameNode of the cluster"):
            invocation.path(f"paxosblock://{closed_port}/a")
