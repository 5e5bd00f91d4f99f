"""`paxosblock fs` about all that is below a path: du, df, count, find. The lines are those that
FsShell of Hadoop 3.5 prints for the same files."""

from __future__ import annotations

import json

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.host.user import claimed_user
from tests.cli.conftest import Paxosblock
from tests.files import write


@pytest.fixture
def tree(client: Client, folder: str) -> str:
    """A directory with files in three directories, 3,007 bytes."""
    write(client, f"{folder}/a.txt", b"hello")
    write(client, f"{folder}/sub/b.bin", bytes(3000))
    write(client, f"{folder}/sub/deep/c.log", b"x\n")
    write(client, f"{folder}/zero", b"")
    return folder


# --- du ------------------------------------------------------------------------------------------


def test_du_shows_each_entry_and_the_room_of_all_replicas(fs: Paxosblock, tree: str) -> None:
    assert fs("du", tree).out == (
        f"5     15    {tree}/a.txt\n3002  9006  {tree}/sub\n0     0     {tree}/zero\n"
    )


def test_du_s_shows_one_line_for_each_path(fs: Paxosblock, tree: str) -> None:
    assert fs("-du", "-s", "-h", "-v", tree, f"{tree}/zero").out == (
        "SIZE   DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS  FULL_PATH_NAME\n"
        f"2.9 K  8.8 K                                  {tree}\n"
        f"0      0                                      {tree}/zero\n"
    )


def test_du_of_a_file_shows_the_file_and_of_an_empty_directory_nothing(
    fs: Paxosblock, client: Client, tree: str
) -> None:
    client.mkdirs(f"{tree}/empty")
    assert fs("du", f"{tree}/a.txt").out == f"5  15  {tree}/a.txt\n"
    assert fs("du", "-x", f"{tree}/empty") == fs("ls", f"{tree}/empty")


def test_du_of_nothing_is_an_error_and_the_other_paths_are_shown(fs: Paxosblock, tree: str) -> None:
    result = fs("du", "-s", "/none", tree)
    assert (result.code, result.out) == (1, f"3007  9021  {tree}\n")
    assert result.err == "du: '/none': no such file or directory\n"


def test_du_counts_what_a_writer_has_finalized(fs: Paxosblock, client: Client, folder: str) -> None:
    with client.create(f"{folder}/open", block_size=1024) as out:
        out.write(bytes(3000))
        out.hflush()
        assert fs("du", folder).out == f"2048  6144  {folder}/open\n"


def test_du_tells_numbers_to_machines(fs: Paxosblock, tree: str) -> None:
    told = [json.loads(line) for line in fs("du", "--json", tree).out.splitlines()]
    assert told[1] == {
        "path": f"{tree}/sub", "files": 2, "directories": 2, "size": 3002, "space": 9006
    }  # fmt: skip


# --- df ------------------------------------------------------------------------------------------


def test_df_shows_the_room_of_the_cluster(fs: Paxosblock, cluster: LocalCluster) -> None:
    head, line = fs("df").out.splitlines()
    assert head.split() == ["Filesystem", "Size", "Used", "Available", "Use%"]
    name, size, used, free, percent = line.split()
    assert name == f"paxosblock://{','.join(cluster.addresses)}"
    assert 0 <= int(used) <= int(size) >= int(free) > 0
    assert percent.endswith("%")
    assert len(head) == len(line)
    told = json.loads(fs("df", "--json").out)
    assert told["size_bytes"] == int(size)


def test_df_names_a_path_that_is_not_there(fs: Paxosblock) -> None:
    result = fs("df", "-h", "/", "/none")
    assert (result.code, result.err) == (1, "df: '/none': no such file or directory\n")
    assert len(result.out.splitlines()) == 2


# --- count ---------------------------------------------------------------------------------------


def test_count_prints_hdfs_columns(fs: Paxosblock, tree: str) -> None:
    assert fs("count", tree).out == f"           3            4               3007 {tree}\n"
    assert fs("count", "-h", "-v", tree, f"{tree}/a.txt").out == (
        "   DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME\n"
        f"           3            4              2.9 K {tree}\n"
        f"           0            1                  5 {tree}/a.txt\n"
    )


def test_count_q_shows_that_there_are_no_quotas(fs: Paxosblock, tree: str) -> None:
    none = "        none             inf            none             inf "
    heads = "       QUOTA       REM_QUOTA     SPACE_QUOTA REM_SPACE_QUOTA "
    counts = "   DIR_COUNT   FILE_COUNT       CONTENT_SIZE PATHNAME\n"
    line = f"           3            4               3007 {tree}\n"
    assert fs("count", "-q", "-v", tree).out == heads + counts + none + line
    assert fs("count", "-u", "-v", tree).out == f"{heads}PATHNAME\n{none}{tree}\n"
    assert json.loads(fs("count", "-x", "--json", tree).out) == {
        "path": tree, "files": 4, "directories": 3, "size": 3007, "space": 9021
    }  # fmt: skip


def test_count_t_shows_that_no_type_of_storage_has_a_quota(fs: Paxosblock, tree: str) -> None:
    heads = "    DISK_QUOTA     REM_DISK_QUOTA      SSD_QUOTA      REM_SSD_QUOTA PATHNAME\n"
    none = "          none                inf " * 2
    assert fs("count", "-q", "-t", "disk,SSD", "-v", tree).out == f"{heads}{none}{tree}\n"
    assert fs("count", "-u", "-t", "-v", tree).out.count(" none ") == 5
    refused = fs("count", "-q", "-t", "tape", tree)
    assert (refused.code, refused.out) == (2, "")
    assert "'tape' is no type of storage: all, or some of archive,disk," in refused.err
    assert fs("count", "-t", "tape", tree) == fs("count", tree)


def test_count_e_shows_that_files_are_replicated(fs: Paxosblock, tree: str) -> None:
    assert fs("count", "-e", "-v", f"{tree}/a.txt", tree).out == (
        "   DIR_COUNT   FILE_COUNT       CONTENT_SIZE ERASURECODING_POLICY PATHNAME\n"
        f"           0            1                  5           Replicated {tree}/a.txt\n"
        f"           3            4               3007                  EC: {tree}\n"
    )
    told = json.loads(fs("count", "-e", "--json", f"{tree}/a.txt").out)
    assert told["erasure_coding"] == "Replicated"


def test_count_of_nothing_is_an_error(fs: Paxosblock) -> None:
    result = fs("count", "/none")
    assert (result.code, result.out) == (1, "")
    assert result.err == "count: '/none': no such file or directory\n"


# --- find ----------------------------------------------------------------------------------------


def test_find_shows_all_that_is_below_a_path_and_the_path(fs: Paxosblock, tree: str) -> None:
    names = ["", "/a.txt", "/sub", "/sub/b.bin", "/sub/deep", "/sub/deep/c.log", "/zero"]
    assert fs("find", tree).out.splitlines() == [f"{tree}{name}" for name in names]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("-name", "*.log"), "{}/sub/deep/c.log\n"),
        (("-iname", "*.LOG", "-print0"), "{}/sub/deep/c.log\0"),
        (("-name", "a*", "-a", "-name", "*.txt"), "{}/a.txt\n"),
        (("-name", "a*", "-and", "-name", "*.txt", "-print"), "{}/a.txt\n"),
        (("-name", "{a,b}.[tb]*"), "{0}/a.txt\n{0}/sub/b.bin\n"),
        (("-name", "deep", "-print", "-print"), "{0}/sub/deep\n{0}/sub/deep\n"),
        (("-name", "zero", "-print", "-name", "x"), "{0}/zero\n"),
        (("-name", "none"), ""),
    ],
)
def test_find_takes_the_expressions_of_hdfs(
    fs: Paxosblock, tree: str, words: tuple[str, ...], found: str
) -> None:
    result = fs("find", tree, *words)
    assert (result.code, result.out, result.err) == (0, found.format(tree), "")


def test_find_goes_through_its_paths_in_order(fs: Paxosblock, tree: str) -> None:
    result = fs("find", f"{tree}/a.txt", "/none", tree, "-name", "*.txt")
    assert (result.code, result.out) == (1, f"{tree}/a.txt\n{tree}/a.txt\n")
    assert result.err == "find: '/none': no such file or directory\n"
    (told,) = fs("find", tree, "-name", "zero", "--json").out.splitlines()
    assert json.loads(told)["path"] == f"{tree}/zero"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-foo",), "'-foo': unexpected argument"),
        (("-depth",), "'-depth': unexpected argument"),
        (("-name",), "'-name': needs a pattern"),
        (("-name", "x", "-a"), "'-a': joins two expressions"),
        (("-a", "-name", "x"), "'-a': joins two expressions"),
        (("-name", "x", "/y"), "'/y': unexpected argument"),
        (("-name", "[a"), "'[a': Illegal file pattern: Unclosed character class"),
    ],
)
def test_find_refuses_what_is_no_expression(
    fs: Paxosblock, tree: str, words: tuple[str, ...], line: str
) -> None:
    result = fs("find", tree, *words)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"find: {line}")


# --- relative paths ------------------------------------------------------------------------------


def test_a_relative_path_begins_at_the_users_home(fs: Paxosblock, client: Client) -> None:
    home = f"/user/{claimed_user()}"
    write(client, f"{home}/notes/a", b"12")
    assert fs("du", "notes").out == f"2  6  {home}/notes/a\n"
    assert fs("find", "-name", "a").out == f"{home}/notes/a\n"
    assert fs("count", "./notes/../notes/*").out.endswith(f" {home}/notes/a\n")
    assert fs("test", "-d", ".").code == 0
    client.delete(home, recursive=True)
    assert fs("du").err == f"du: '{home}': no such file or directory\n"
