"""Names through fsspec: facts, listings, moves, deletes, and errors as Python has them."""

from __future__ import annotations

import datetime
import json
import pickle
import socket

import fsspec
import pytest

from paxosblock import Client
from paxosblock.api.capability import BlockKey
from paxosblock.api.transaction import Marker
from paxosblock.api.user_tokens import PREFIX, UserToken, seal
from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.errors import ConfigError, UnavailableError
from paxosblock.local.cluster import LocalCluster
from tests.paging import changed_between_pages


@pytest.fixture
def tree(fs: PaxosBlockFileSystem, home: str) -> str:
    """Four files of 1 to 4 bytes, two of them in a directory, and an empty directory."""
    fs.pipe(
        {f"{home}/{name}": b"x" * size for size, name in enumerate(("a", "b", "d/c", "d/e"), 1)}
    )
    fs.mkdir(f"{home}/empty")
    return home


def test_info_has_what_pyarrow_and_fsspec_ask_for(fs: PaxosBlockFileSystem, tree: str) -> None:
    file, directory = fs.info(f"{tree}/b"), fs.info(f"{tree}/d")
    assert (file["name"], file["size"], file["type"]) == (f"{tree}/b", 2, "file")
    assert (directory["name"], directory["size"], directory["type"]) == (
        f"{tree}/d",
        0,
        "directory",
    )
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert now - 60 < file["created"] <= file["mtime"] < now + 60
    assert json.loads(json.dumps(file)) == file


def test_what_another_client_did_is_seen_at_once_as_no_listing_is_kept(
    fs: PaxosBlockFileSystem, tree: str, cluster: LocalCluster
) -> None:
    """Also by one that was asked to keep listings, as fsspec's own option says."""
    keeps = fsspec.filesystem(
        "paxosblock", namenodes=fs.namenodes, use_listings_cache=True, listings_expiry_time=3600
    )
    for each in (fs, keeps):
        assert each.ls(f"{tree}/d", detail=False) == [f"{tree}/d/c", f"{tree}/d/e"]
        assert each.info(f"{tree}/b")["size"] == 2
        assert not each.dircache
    with Client(cluster.url) as other:
        other.rename(f"{tree}/d/c", f"{tree}/d/new")
        other.truncate(f"{tree}/b", 1)
    for each in (fs, keeps):
        assert each.ls(f"{tree}/d", detail=False) == [f"{tree}/d/e", f"{tree}/d/new"]
        assert each.find(tree) == [f"{tree}/{name}" for name in ("a", "b", "d/e", "d/new")]
        assert not each.exists(f"{tree}/d/c")
        assert each.info(f"{tree}/b")["size"] == 1


def test_times_are_those_of_the_file(fs: PaxosBlockFileSystem, tree: str) -> None:
    path = f"{tree}/a"
    created, modified = fs.created(path), fs.modified(path)
    with fs.open(path, "ab") as out:
        out.write(b"more")
    assert fs.created(path) == created
    assert fs.modified(path) > modified
    assert created.tzinfo is datetime.UTC


def test_replicas_are_asked_for_as_of_webhdfs(fs: PaxosBlockFileSystem, tree: str) -> None:
    fs.set_replication(f"{tree}/a", 1)
    assert (fs.info(f"{tree}/a")["replication"], fs.info(f"{tree}/b")["replication"]) == (1, 3)
    with pytest.raises(IsADirectoryError):
        fs.set_replication(f"{tree}/d", 1)


def test_owners_and_bits_change_as_of_webhdfs(fs: PaxosBlockFileSystem, tree: str) -> None:
    path = f"{tree}/a"
    fs.chmod(path, 0o640)
    assert fs.info(path)["mode"] & 0o7777 == 0o640
    fs.chmod(path, "755")
    fs.chown(path, "ann", "staff")
    fs.chown(path, group="dev")
    found = fs.info(path)
    assert (found["mode"] & 0o7777, found["owner"], found["group"]) == (0o755, "ann", "dev")
    with pytest.raises(FileNotFoundError):
        fs.chmod(f"{tree}/none", 0o600)


def test_access_control_lists_change_with_hdfs_names(fs: PaxosBlockFileSystem, tree: str) -> None:
    fs.modify_acl_entries(tree, "user:bob:r-x,default:user:bob:rwx")
    fs.pipe_file(f"{tree}/in", b"x")
    assert "user:bob:rwx" in map(str, fs.get_acl_status(f"{tree}/in").acl)
    fs.remove_default_acl(tree)
    fs.remove_acl_entries(tree, "user:bob")
    assert list(map(str, fs.get_acl_status(tree).entries)) == ["group::r-x"]
    fs.remove_acl(tree)
    fs.set_acl(tree, "user::rwx,group::---,other::---")
    assert fs.info(tree)["mode"] & 0o7777 == 0o700


def test_a_file_is_truncated_and_has_another_key_then(fs: PaxosBlockFileSystem, tree: str) -> None:
    path = f"{tree}/a"
    fs.pipe_file(path, b"0123456789")
    before = fs.ukey(path)
    fs.truncate(path, 4)
    assert fs.cat_file(path) == b"0123"
    assert fs.ukey(path) != before
    with pytest.raises(ValueError, match="cannot be truncated to 5"):
        fs.truncate(path, 5)


def test_touch_makes_empties_or_only_marks_a_file(fs: PaxosBlockFileSystem, tree: str) -> None:
    path = f"{tree}/a"
    before = fs.modified(path)
    fs.touch(path, truncate=False)
    assert fs.cat_file(path) == b"x"
    assert fs.modified(path) > before
    fs.touch(path)
    assert fs.cat_file(path) == b""
    fs.touch(f"{tree}/new/file", truncate=False)
    assert fs.size(f"{tree}/new/file") == 0


def test_the_key_of_a_file_changes_with_its_content_only(
    fs: PaxosBlockFileSystem, tree: str
) -> None:
    path, keys = f"{tree}/a", set()
    for step in range(2):
        keys.add((fs.ukey(path), fs.checksum(path)))
        assert (fs.ukey(path), fs.checksum(path)) in keys
        fs.pipe_file(path, b"xy"[step:])
    keys.add((fs.ukey(path), fs.checksum(path)))
    assert len(keys) == 3


def test_listings_find_glob_and_walk_agree(fs: PaxosBlockFileSystem, tree: str) -> None:
    files = [f"{tree}/{name}" for name in ("a", "b", "d/c", "d/e")]
    assert fs.find(tree) == files
    assert fs.find(tree, maxdepth=1) == files[:2]
    assert fs.find(files[0], detail=True)[files[0]]["size"] == 1
    assert fs.glob(f"{tree}/*") == [*files[:2], f"{tree}/d", f"{tree}/empty"]
    assert fs.glob(f"{tree}/**/[ce]") == files[2:]
    assert list(fs.walk(tree)) == [
        (tree, ["d", "empty"], ["a", "b"]),
        (f"{tree}/d", [], ["c", "e"]),
        (f"{tree}/empty", [], []),
    ]
    assert (fs.du(tree), fs.du(files[1])) == (10, 2)
    assert fs.du(f"{tree}/d", total=False) == {files[2]: 3, files[3]: 4}
    assert sorted(fs.ls(f"{tree}/d", detail=False)) == files[2:]


def test_a_listing_of_several_pages_shows_one_moment(fs: PaxosBlockFileSystem, home: str) -> None:
    """One job publishes a file in front of all others and one behind them, between two pages."""
    fs.pipe({f"{home}/{name}": b"" for name in "kmp"})
    published = [Marker(f"{home}/{name}") for name in "az"]
    with changed_between_pages(fs.runner.run(fs._client), published):
        assert fs.ls(home, detail=False) == [f"{home}/{name}" for name in "akmpz"]


def test_what_is_being_written_is_not_listed_anywhere(fs: PaxosBlockFileSystem, tree: str) -> None:
    with fs.open(f"{tree}/new", "wb") as out:
        out.write(b"half")
        assert f"{tree}/new" not in fs.find("/")
        assert not any("staging" in path for path in fs.find("/", withdirs=True))


def test_a_tree_moves_and_goes_in_one_step(fs: PaxosBlockFileSystem, tree: str) -> None:
    fs.mv(f"{tree}/d", f"{tree}/new/place", recursive=True)
    assert fs.find(tree) == [f"{tree}/{name}" for name in ("a", "b", "new/place/c", "new/place/e")]
    fs.mv(f"{tree}/new/place", f"{tree}/empty")
    assert fs.isfile(f"{tree}/empty/place/c")
    fs.rm(f"{tree}/empty", recursive=True)
    assert fs.find(tree) == [f"{tree}/a", f"{tree}/b"]


def test_a_moved_file_replaces_and_several_go_into_a_directory(
    fs: PaxosBlockFileSystem, tree: str
) -> None:
    fs.mv(f"{tree}/a", f"{tree}/b")
    assert fs.cat_file(f"{tree}/b") == b"x"
    fs.mv(f"{tree}/d/*", f"{tree}/empty")
    assert fs.find(tree) == [f"{tree}/b", f"{tree}/empty/c", f"{tree}/empty/e"]


def test_a_list_is_deleted_together_or_not_at_all(fs: PaxosBlockFileSystem, tree: str) -> None:
    with pytest.raises(FileNotFoundError):
        fs.rm([f"{tree}/a", f"{tree}/missing"])
    with pytest.raises(IsADirectoryError):
        fs.rm([f"{tree}/a", f"{tree}/d"])
    assert fs.exists(f"{tree}/a")
    fs.rm([f"{tree}/a", f"{tree}/d"], recursive=True)
    assert fs.find(tree) == [f"{tree}/b"]


def test_a_name_with_the_signs_of_a_pattern_can_be_deleted_and_moved(
    fs: PaxosBlockFileSystem, tree: str
) -> None:
    fs.pipe_file(f"{tree}/[a]*", b"odd")
    fs.mv(f"{tree}/[a]*", f"{tree}/a?")
    fs.rm(f"{tree}/a?")
    assert fs.find(tree, maxdepth=1) == [f"{tree}/a", f"{tree}/b"]


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("cat_file", ["missing"], FileNotFoundError),
        ("info", ["missing"], FileNotFoundError),
        ("info", ["a/below"], NotADirectoryError),
        ("open", ["d"], IsADirectoryError),
        ("open", ["d", "wb"], IsADirectoryError),
        ("open", ["a/below", "wb"], NotADirectoryError),
        ("pipe_file", ["a", b"", "create"], FileExistsError),
        ("mkdir", ["d"], FileExistsError),
        ("makedirs", ["d"], FileExistsError),
        ("mkdir", ["x/y", False], FileNotFoundError),
        ("rmdir", ["d"], OSError),
        ("rmdir", ["a"], NotADirectoryError),
        ("rm", ["missing"], FileNotFoundError),
        ("rm", ["no*"], FileNotFoundError),
        ("rm_file", ["d"], IsADirectoryError),
        ("mv", ["missing", "b"], FileNotFoundError),
        ("ls", ["missing"], FileNotFoundError),
        ("pipe_file", ["a\0b", b""], ValueError),
    ],
)
def test_errors_are_the_ones_that_python_has_for_it(
    fs: PaxosBlockFileSystem, tree: str, verb: str, arguments: list[object], error: type[Exception]
) -> None:
    first, *rest = arguments
    rest = [f"{tree}/{each}" if verb == "mv" else each for each in rest]
    with pytest.raises(error) as caught:
        getattr(fs, verb)(f"{tree}/{first}", *rest)
    assert "\n" not in str(caught.value)
    assert fs.find(tree) == [f"{tree}/{name}" for name in ("a", "b", "d/c", "d/e")]


def test_what_is_below_a_file_does_not_exist(fs: PaxosBlockFileSystem, tree: str) -> None:
    path = f"{tree}/a/below"
    assert (fs.exists(path), fs.isfile(path), fs.isdir(path)) == (False, False, False)


def test_locations_name_the_datanodes_of_every_block(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str
) -> None:
    fs.pipe_file(f"{home}/a", bytes(2500), block_size=1000, chunk_size=500, replication=3)
    blocks = fs.locations(f"{home}/a")
    assert [(block.offset, block.size) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 500),
    ]
    hosts = {node.address for node in cluster.datanodes}
    assert all(len(set(block.hosts) & hosts) == 3 for block in blocks)


# -- the file system itself -----------------------------------------------------------------------


def test_the_same_cluster_and_options_are_the_same_file_system(cluster: LocalCluster) -> None:
    first, path = fsspec.url_to_fs(f"{cluster.url}/a", replication=2)
    second, _ = fsspec.url_to_fs(f"{cluster.url}/b", replication=2)
    assert (first is second, path) == (True, "/a")
    assert first is not fsspec.url_to_fs(cluster.url, replication=3)[0]
    assert pickle.loads(pickle.dumps(first)) == first
    assert fsspec.AbstractFileSystem.from_json(first.to_json()) is first
    assert first.unstrip_protocol("/a") == f"{cluster.url}/a"


def test_json_of_a_file_system_has_no_token(cluster: LocalCluster) -> None:
    """JSON is what dask and catalogs of data sets keep of a file system."""
    word = seal(UserToken(1, 2, "ann", (), 1, 1 << 40), BlockKey(1, b"k" * 32))
    made = fsspec.filesystem("paxosblock", namenodes=cluster.addresses, token=word)
    assert made._config.token == word
    shown = f"{made.to_json()} {made.to_dict()} {made!r}"
    assert word.removeprefix(PREFIX)[:30] not in shown
    assert cluster.addresses[0] in shown


def test_a_url_without_a_host_takes_the_environment(
    fs: PaxosBlockFileSystem, cluster: LocalCluster, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.pipe_file(f"{home}/a", b"here")
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    with fsspec.open(f"paxosblock://{home}/a") as file:
        assert file.read() == b"here"
    found, _ = fsspec.url_to_fs("paxosblock:///")
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", "elsewhere:1")
    assert fsspec.url_to_fs("paxosblock:///")[0].namenodes == ("elsewhere:1",)
    assert pickle.loads(pickle.dumps(found)).namenodes == cluster.addresses


@pytest.mark.parametrize(
    ("url", "options", "complaint"),
    [
        ("paxosblock:///a", {}, "set PAXOSBLOCK_NAMENODES"),
        ("paxosblock://", {}, "set PAXOSBLOCK_NAMENODES"),
        ("paxosblock://host:port/a", {}, "'port' is no port"),
        ("paxosblock://user@host:1/a", {}, "is no HOST:PORT"),
        (
            "paxosblock://host:1/a",
            {"replicaton": 2},
            "unknown storage option 'replicaton'; did you",
        ),
        ("paxosblock://host:1/a", {"replication": 0}, "replication = 0: expected"),
        ("paxosblock://host:1/a", {"durability": "tape"}, 'one of "disk", "memory"'),
        ("paxosblock://host:1/a", {"staging_ttl": "soon"}, "soon"),
    ],
)
def test_a_wrong_url_or_option_is_one_line_that_says_what_is_wrong(
    url: str, options: dict[str, object], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAXOSBLOCK_NAMENODES", raising=False)
    with pytest.raises(ConfigError, match=complaint) as caught:
        fsspec.open(url, **options)
    assert "\n" not in str(caught.value)


def test_no_namenode_is_an_error_and_never_an_empty_listing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    fs = PaxosBlockFileSystem(f"127.0.0.1:{port}", retry_for_s=0, skip_instance_cache=True)
    for verb in (fs.find, fs.exists, fs.isfile, fs.isdir, fs.cat_file, fs.ls, fs.glob, fs.du):
        with pytest.raises(UnavailableError):
            verb("/a*" if verb == fs.glob else "/a")
    fs.close()
