"""The umask of clients: bits that files and directories lack, whatever makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster, MakeDirectory, Marker
from paxosblock.client.fsspec import PaxosBlockFileSystem
from tests.cli.conftest import Paxosblock


@pytest.fixture(autouse=True)
def close_file_systems() -> Iterator[None]:
    """End those of fsspec before their cluster ends."""
    yield
    PaxosBlockFileSystem.clear_instance_cache()


def bits(client: Client, folder: str) -> dict[str, str]:
    """The permissions of all that is below a folder, in octal digits."""
    return {
        entry.path.removeprefix(f"{folder}/"): f"{entry.permission:o}"
        for entry in client.walk(folder)
    }


def test_what_commands_make_lacks_the_bits_of_the_umask(
    fs: Paxosblock,
    client: Client,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    local = tmp_path / "tree"
    (local / "sub").mkdir(parents=True)
    (local / "sub" / "f").write_bytes(b"abc")
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_UMASK", "027")
    assert fs("mkdir", "-p", f"{folder}/a/b").code == 0
    assert fs("touchz", f"{folder}/z").code == 0
    assert fs("put", local, f"{folder}/put").code == 0
    assert fs("cp", f"{folder}/put", f"{folder}/cp").code == 0
    assert bits(client, folder) == {
        **dict.fromkeys(("a", "a/b", "put", "put/sub", "cp", "cp/sub"), "750"),
        **dict.fromkeys(("z", "put/sub/f", "cp/sub/f"), "640"),
    }


def test_what_programs_make_lacks_the_bits_of_the_umask(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    with Client(cluster.url, umask=0o027) as careful:
        careful.mkdirs(f"{folder}/a/b", permission=0o1775)
        with careful.create(f"{folder}/c", permission=0o606) as out:
            out.write(b"abc")
        careful.transact([MakeDirectory(f"{folder}/t"), Marker(f"{folder}/u/m")])
    outside = PaxosBlockFileSystem(namenodes=cluster.url, umask="077")
    outside.pipe(f"{folder}/of/f", b"abc")
    outside.mkdir(f"{folder}/od")
    assert bits(client, folder) == {
        "a": "750",
        "a/b": "1750",
        "c": "600",
        "of": "700",
        "of/f": "600",
        "od": "700",
        "t": "750",
        "u": "750",
        "u/m": "640",
    }


def test_default_entries_decide_in_place_of_the_umask(
    cluster: LocalCluster, client: Client, folder: str
) -> None:
    client.modify_acl_entries(folder, "default:user:bob:rwx,default:other::r-x")
    with Client(cluster.url, umask=0o077) as careful:
        careful.mkdirs(f"{folder}/d")
        careful.create(f"{folder}/f").close()
        careful.transact([MakeDirectory(f"{folder}/t")])
    outside = PaxosBlockFileSystem(namenodes=cluster.url, umask="077")
    outside.pipe(f"{folder}/g", b"abc")
    assert bits(client, folder) == {"d": "775", "f": "664", "g": "664", "t": "775"}
