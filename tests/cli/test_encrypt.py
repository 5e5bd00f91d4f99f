"""`paxosblock admin encrypt`, as an operator uses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paxosblock import LocalCluster
from tests.cli.conftest import Paxosblock
from tests.master_keys import write_masters


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the master key, which is not there yet."""
    return tmp_path_factory.mktemp("master") / "key"


@pytest.fixture(scope="module")
def sealed(master: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose settings name that file."""
    settings = {"namenode": {"master_key_file": str(master)}}
    with LocalCluster(1, 1, tmp_path_factory.mktemp("sealed"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def there(
    sealed: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    """Run a command against that cluster."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(sealed.addresses))
    return paxosblock


def test_a_directory_is_encrypted_and_listed_and_its_key_rolled(
    paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The steps of the page, in its order."""
    there, master = paxosblock, tmp_path / "master"
    assert there("setup", "secret", master).code == 0
    monkeypatch.setenv("PAXOSBLOCK_NAMENODE_MASTER_KEY_FILE", str(master))
    with LocalCluster(1, 1, tmp_path / "cluster") as cluster:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        encrypt_list_and_roll(there, master, tmp_path)


def encrypt_list_and_roll(there: Paxosblock, master: Path, tmp_path: Path) -> None:
    assert there("fs", "mkdir", "/secret").code == 0
    made = there("admin", "encrypt", "/secret")
    words = "'/secret' is an encryption zone, its key wrapped by master key "
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith(words)
    name = made.out.removeprefix(words).strip()
    listed = there("admin", "encrypt", "--list")
    assert listed.out.splitlines() == [
        f"'/secret'  wrapped by master key {name}",
        f"1 encryption zone, master key {name}",
    ]
    shown = there("--json", "admin", "encrypt", "--list").out.splitlines()[0]
    assert json.loads(shown)["path"] == "/secret"

    marker = b"nobody reads this line on a disk\n"
    notes = tmp_path / "notes"
    notes.write_bytes(marker)
    assert there("fs", "put", notes, "/secret/notes").code == 0
    assert there("fs", "put", notes, "/notes").code == 0
    assert there("fs", "cat", "/secret/notes").out.encode() == marker
    stored = [file for file in (tmp_path / "cluster").rglob("*") if file.is_file()]
    assert sum(marker in file.read_bytes() for file in stored) == 1, "that of /notes"

    before = master.read_text()
    write_masters(master, 2)
    master.write_text(master.read_text() + before)
    rolled = there("admin", "encrypt", "--roll")
    assert rolled.code == 0
    assert "wraps the keys of all zones, 1 zone newly" in rolled.out
    assert name not in rolled.out
    write_masters(master, 2)
    assert "0 zones newly" in there("admin", "encrypt", "--roll").out
    assert there("fs", "cat", "/secret/notes").out.encode() == marker


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("encrypt", "/"), "'/': the root is no encryption zone; encrypt one below it"),
        (("encrypt", "/nowhere"), "'/nowhere': no such file or directory"),
        (("encrypt", "/full"), "'/full': Attempt to create an encryption zone for a non-empty"),
        (("encrypt", "/full/a"), "'/full/a': Attempt to create an encryption zone for a file."),
        (("encrypt", "/z"), "Directory '/z' is already an encryption zone."),
        (("encrypt", "/z/in"), "Directory '/z/in' is already in an encryption zone."),
    ],
)
def test_what_cannot_be_a_zone_is_refused_in_one_line(
    there: Paxosblock, master: Path, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    write_masters(master, 1, 2)
    if there("fs", "stat", "/full").code:
        (tmp_path / "a").write_bytes(b"a")
        assert there("fs", "mkdir", "/full", "/z").code == 0
        assert there("fs", "put", tmp_path / "a", "/full/a").code == 0
        assert there("admin", "encrypt", "/z").code == 0
        assert there("fs", "mkdir", "/z/in").code == 0
    refused = there("admin", *words)
    assert refused.code == 1
    assert refused.err.startswith("encrypt: ")
    assert line in refused.err
    assert refused.err.count("\n") == 1


def holds(text: str) -> Callable[[Path], None]:
    def spoil(file: Path) -> None:
        write_masters(file)
        file.write_text(text)

    return spoil


def absent(file: Path) -> None:
    file.unlink(missing_ok=True)


def directory(file: Path) -> None:
    absent(file)
    file.mkdir()


def for_everybody(file: Path) -> None:
    write_masters(file, 1)
    file.chmod(0o604)


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (absent, "No such file or directory: put it there, or let `paxosblock setup"),
        (directory, "Is a directory"),
        (for_everybody, "everybody may read the secret: chmod o= it"),
        (holds("\n"), "it holds no secret"),
        (holds("# keys\n"), "line 1 is no secret, one word of base64 or hex"),
    ],
)
@pytest.mark.parametrize("words", ["/new", "--roll"])
def test_a_bad_file_of_the_master_key_is_one_line_that_says_what_to_do(
    there: Paxosblock, master: Path, spoil: Callable[[Path], None], line: str, words: str
) -> None:
    there("fs", "mkdir", "/new")
    spoil(master)
    try:
        refused = there("admin", "encrypt", words)
        assert refused.code == 1
        assert refused.err.startswith("encrypt: ")
        assert f"master_key_file {master}: {line}" in refused.err
        assert refused.err.count("\n") == 1
        listed = there("admin", "encrypt", "--list").out
        assert f"no master key: master_key_file {master}: " in listed
    finally:
        if master.is_dir():
            master.rmdir()


def test_with_another_master_key_there_is_one_line_that_says_which_is_missing(
    there: Paxosblock, master: Path
) -> None:
    write_masters(master, 1)
    assert there("fs", "mkdir", "/missed").code == 0
    name = there("admin", "encrypt", "/missed").out.split()[-1]
    write_masters(master, 2)
    refused = there("admin", "encrypt", "--roll")
    assert refused.code == 1
    assert f"is wrapped by master key {name}, which this NameNode has not (it has " in refused.err
    assert refused.err.endswith("): give it that key in a line of its own\n")
    assert refused.err.count("\n") == 1


def test_a_file_of_a_zone_stays_where_it_is_when_it_cannot_go_to_the_trash(
    there: Paxosblock, master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS has a trash in each zone; here the way is named."""
    write_masters(master, 1, 2)
    assert there("fs", "mkdir", "/kept").code == 0
    assert there("admin", "encrypt", "/kept").code == 0
    assert there("fs", "touchz", "/kept/f").code == 0
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_TRASH_INTERVAL", "1h")
    refused = there("fs", "rm", "/kept/f")
    assert (refused.code, refused.out) == (1, "")
    assert "cannot be moved to the trash" in refused.err
    assert "-skipTrash" in refused.err
    assert there("fs", "test", "-e", "/kept/f").code == 0
    assert there("fs", "rm", "-skipTrash", "/kept/f").code == 0
