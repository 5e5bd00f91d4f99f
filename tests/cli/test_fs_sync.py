"""`paxosblock fs sync`, and `Client.upload`, `download` and `copy`, which do its work."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, CopyAction, CopyStep, CopySummary, Kind, LocalCluster, Sync
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.copies.places import COPYING
from paxosblock.errors import ExistsError, InvalidRequestError, IsDirectoryError, NotFoundError
from tests.cli.conftest import CtrlC, Paxosblock
from tests.cli.test_fs_bytes import copying_in, started
from tests.files import read, write
from tests.waiting import wait_until

FILES = {"a": b"first", "d/b": b"", "d/deep/c": random.Random(3).randbytes(700_001)}
LONG = "ü" * 127


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A local directory with FILES, an empty directory, and a name of 254 bytes."""
    top = tmp_path / "local"
    for name, data in {**FILES, LONG: b"long"}.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / "empty").mkdir()
    return top


def below(client: Client, path: str) -> dict[str, bytes | None]:
    """Return what is below a directory: bytes of files, None for directories."""
    return {
        each.path.removeprefix(f"{path}/"): None
        if each.kind is Kind.DIRECTORY
        else read(client, each.path)
        for each in client.walk(path)
    }


def here(top: Path) -> dict[str, bytes | None]:
    """Return what is below a local directory, in the same form."""
    return {
        str(each.relative_to(top)): None if each.is_dir() else each.read_bytes()
        for each in top.rglob("*")
    }


def test_sync_goes_both_ways_and_copies_nothing_the_second_time(
    fs: Paxosblock, client: Client, folder: str, local: Path
) -> None:
    first = fs("sync", f"file:{local}", f"{folder}/new/data")
    assert (first.code, first.out, first.err) == (0, "4 files copied (683.6 K), 0 the same\n", "")
    assert below(client, f"{folder}/new/data") == here(local)
    ids = [each.file_id for each in client.walk(folder)]
    again = fs("sync", f"file:{local}", f"{folder}/new/data")
    assert (again.code, again.out) == (0, "0 files copied (0), 4 the same\n")
    assert [each.file_id for each in client.walk(folder)] == ids
    back = local.parent / "back"
    for out in ("4 files copied (683.6 K), 0 the same\n", "0 files copied (0), 4 the same\n"):
        result = fs("sync", f"{folder}/new/data", f"file://{back}")
        assert (result.code, result.out, result.err) == (0, out, "")
        assert here(back) == here(local)


def test_sync_copies_what_differs_and_deletes_only_if_it_is_told_to(
    fs: Paxosblock, client: Client, folder: str, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(local.parent)
    assert fs("sync", "local", folder).code == 0
    (local / "a").write_bytes(b"FIRST")
    (local / "d" / "b").unlink()
    write(client, f"{folder}/extra/x", b"x")
    dry = fs("sync", "--delete", "-n", "./local", folder)
    assert dry.out.splitlines() == [
        f"copy {folder}/a",
        f"delete {folder}/extra",
        f"delete {folder}/d/b",
        "1 file to copy (5), 2 the same, 2 to delete",
    ]
    assert read(client, f"{folder}/a") == b"first"
    assert fs("sync", "local", folder).out == "1 file copied (5), 2 the same\n"
    assert read(client, f"{folder}/a") == b"FIRST"
    assert client.exists(f"{folder}/extra/x")
    told = [
        json.loads(line)
        for line in fs("sync", "--json", "--delete", "local", folder).out.splitlines()
    ]
    assert told == [
        {"action": "deleted", "source": "", "path": f"{folder}/extra"},
        {"action": "deleted", "source": "", "path": f"{folder}/d/b"},
        {"summary": {"copied": 0, "same": 3, "deleted": 2, "failed": 0, "size": 0}},
    ]
    assert below(client, folder) == here(local)


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("a b", 2, "'a' and 'b' are both on this machine"),
        ("/a {0}", 2, "are both in the cluster; file:/DIRECTORY is here"),
        ("none {0}/x", 1, "sync: 'none': no such file or directory\n"),
        ("{0}/none none", 1, "sync: '{0}/none': no such file or directory\n"),
        ("local/a {0}/x", 1, "sync: 'local/a': is no directory: use put\n"),
        ("{0}/a x", 1, "sync: '{0}/a': is no directory: use get\n"),
        ("local {0}/a", 1, "sync: '{0}/a': file exists\n"),
        ("--delete local {0}/a", 1, "sync: '{0}/a': file exists\n"),
    ],
)
def test_sync_refuses_what_makes_no_sense(
    *,
    fs: Paxosblock,
    client: Client,
    folder: str,
    local: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    code: int,
    line: str,
) -> None:
    monkeypatch.chdir(local.parent)
    write(client, f"{folder}/a", b"kept")
    result = fs("sync", *words.format(folder).split())
    assert result.code == code
    assert line.format(folder) in result.err
    assert below(client, folder) == {"a": b"kept"}
    assert os.listdir() == ["local"]


def test_an_interrupted_sync_leaves_whole_files_and_goes_on(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC, tmp_path: Path
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "0").write_bytes(b"small")
    for name in "123":
        with (top / name).open("wb") as file:
            file.truncate(1 << 30)
    with started(cluster, "sync", f"file:{top}", f"{folder}/x") as process:
        wait_until(lambda: len(copying_in(client, folder)) == 3, what="the copies to begin")
        wait_until(lambda: client.exists(f"{folder}/x/0"), what="the small file")
        ctrl_c(process, signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert below(client, f"{folder}/x") == {"0": b"small"}
    for name in "123":
        os.truncate(top / name, 3)
    summary = client.upload(top, f"{folder}/x", sync=Sync())
    assert (summary.copied, summary.same) == (3, 1)


def test_a_name_that_no_text_is_does_not_hold_up_the_rest(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").write_bytes(b"a")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).write_bytes(b"b")
    result = fs("sync", f"file:{top}", f"{folder}/x")
    assert (result.code, result.out) == (1, "1 file copied (1), 0 the same, 1 failed\n")
    assert result.err.endswith("is no valid Unicode text\n")
    assert below(client, f"{folder}/x") == {"a": b"a"}


def test_sync_replaces_nothing_but_what_it_has_compared(
    client: Client, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").write_bytes(b"ours")
    write(client, f"{folder}/a", b"old")
    create = AsyncClient.create

    def create_after_another(fs: AsyncClient, path: str, **how: Any) -> object:
        async def both() -> object:
            if path.endswith(COPYING):
                async with create(fs, f"{folder}/a", overwrite=True) as out:
                    await out.write(b"newer, of another")
            return await create(fs, path, **how)

        return both()

    monkeypatch.setattr(AsyncClient, "create", create_after_another)
    with pytest.raises(Exception, match="a") as raised:
        client.upload(top, folder, sync=Sync())
    monkeypatch.undo()
    assert isinstance(raised.value, (ExistsError, InvalidRequestError, NotFoundError)), raised.value
    assert below(client, folder) == {"a": b"newer, of another"}


# --- Client --------------------------------------------------------------------------------------


def test_upload_and_download_and_copy_are_calls_of_a_client(
    client: Client, folder: str, local: Path
) -> None:
    counts: list[int] = []
    summary = client.upload(local, f"{folder}/x", progress=counts.append)
    size = sum(map(len, FILES.values())) + 4
    assert summary == CopySummary(copied=4, size=size)
    assert sum(counts) == size
    steps: list[CopyStep] = []
    assert client.copy(f"{folder}/x", f"{folder}/y", told=steps.append).copied == 4
    assert {each.path for each in steps if each.action is CopyAction.MADE} == {
        f"{folder}/y{name}" for name in ("", "/d", "/d/deep", "/empty")
    }
    assert below(client, f"{folder}/y") == here(local)
    back = local.parent / "back"
    assert client.download(f"{folder}/y", back).copied == 4
    assert here(back) == here(local)
    client.download(f"{folder}/y/a", back / "one")
    assert (back / "one").read_bytes() == b"first"


def test_a_client_raises_what_cannot_be_copied(client: Client, folder: str, local: Path) -> None:
    client.upload(local / "a", f"{folder}/a")
    with pytest.raises(FileExistsError):
        client.upload(local / "a", f"{folder}/a")
    with pytest.raises(FileNotFoundError):
        client.upload(local / "none", f"{folder}/b")
    with pytest.raises(FileNotFoundError):
        client.upload(local / "a", f"{folder}/none/b")
    with pytest.raises(IsDirectoryError):
        client.copy(f"{folder}/a", folder, overwrite=True)
    with pytest.raises(InvalidRequestError, match="subdirectory of itself"):
        client.copy(folder, f"{folder}/in/it")
    with pytest.raises(FileExistsError):
        client.download(f"{folder}/a", local / "a")
    with pytest.raises(FileNotFoundError):
        client.download(f"{folder}/a", local / "none" / "a")
    assert below(client, folder) == {"a": b"first"}


def test_a_copy_keeps_access_control_lists_and_attributes(client: Client, folder: str) -> None:
    write(client, f"{folder}/d/a", b"hello")
    for path in (f"{folder}/d", f"{folder}/d/a"):
        client.modify_acl_entries(path, "user:ann:r-x,group:dev:rw-")
        client.set_attributes(path, {"user.color": b"red"})
    client.copy(f"{folder}/d", f"{folder}/plain")
    client.copy(f"{folder}/d", f"{folder}/kept", preserve="ax")
    for name in ("", "/a"):
        kept, was = (client.get_acl_status(f"{folder}/{top}{name}") for top in ("kept", "d"))
        assert (kept.acl, kept.permission) == (was.acl, was.permission)
        assert client.get_attributes(f"{folder}/kept{name}") == {"user.color": b"red"}
        assert client.get_acl_status(f"{folder}/plain{name}").entries == ()
        assert client.get_attributes(f"{folder}/plain{name}") == {}
