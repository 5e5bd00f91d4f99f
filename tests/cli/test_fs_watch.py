"""`paxosblock fs watch`."""

from __future__ import annotations

import json

from paxosblock import Client, LocalCluster
from paxosblock.api.watching import ChangeKind, NameChange, Trait
from paxosblock.cli.fs_watch import described
from tests.cli.conftest import CtrlC, Paxosblock
from tests.cli.test_fs_bytes import started


def test_changes_are_lines_in_the_order_in_which_they_were_made(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC
) -> None:
    revision = client.list_keys("/").revision
    client.mkdirs(f"{folder}/d", permission=0o755)
    with client.create(f"{folder}/d/f") as out:
        out.write(b"hello")
    client.set_permission(f"{folder}/d/f", 0o600)
    with started(cluster, "watch", "--after", str(revision), folder) as process:
        assert process.stdout is not None
        found = [process.stdout.readline().decode().split(" ", 1) for _ in range(4)]
        client.rename(f"{folder}/d", f"{folder}/e")
        found.append(process.stdout.readline().decode().split(" ", 1))
        ctrl_c(process)
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130
    assert [text for _, text in found] == [
        f"created {folder}/d/\n",
        f"created {folder}/d/f\n",
        f"closed {folder}/d/f 5\n",
        f"changed {folder}/d/f 5 permission\n",
        f"renamed {folder}/d/ -> {folder}/e/\n",
    ]
    numbers = [int(number) for number, _ in found]
    assert numbers == sorted(numbers)
    assert numbers[0] > revision


def test_json_is_an_object_for_each_change(
    cluster: LocalCluster, client: Client, folder: str, ctrl_c: CtrlC
) -> None:
    made = client.mkdirs(f"{folder}/d")
    with started(cluster, "watch", "--listed", "--json", f"{folder}/d") as process:
        assert process.stdout is not None
        listed = json.loads(process.stdout.readline())
        client.delete(f"{folder}/d")
        removed = json.loads(process.stdout.readline())
        ctrl_c(process)
        process.communicate(timeout=30)
    assert listed == {
        "revision": listed["revision"],
        "kind": "listed",
        "path": f"{folder}/d",
        "file_id": made.file_id,
        "is_directory": True,
    }
    assert (removed["kind"], removed["path"]) == ("removed", f"{folder}/d")


def test_what_cannot_be_watched_is_one_line(fs: Paxosblock) -> None:
    assert fs("watch", "--after", "1", "--listed", "/").code == 2
    result = fs("watch", "--after", str(1 << 40), "/")
    assert (result.code, result.out) == (1, "")
    assert "is in the future" in result.err
    assert result.err.count("\n") == 1


def test_a_side_of_a_rename_that_may_not_be_seen_is_not_shown() -> None:
    came = NameChange(7, ChangeKind.RENAMED, "/a", 3, size=5)
    assert described(came) == "7 renamed (not shown) -> /a 5"
    went = NameChange(8, ChangeKind.RENAMED, "", 3, source="/a")
    assert described(went) == "8 renamed /a -> (not shown)"
    traits = (Trait.OWNER, Trait.GROUP)
    assert described(NameChange(9, ChangeKind.CHANGED, "/", 1, True, traits=traits)) == (
        "9 changed / owner,group"
    )
