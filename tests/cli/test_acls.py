"""`paxosblock fs getfacl`, `setfacl`, and the `+` of `fs ls`."""

from __future__ import annotations

import json

import pytest

from paxosblock import Client
from tests.cli.conftest import Paxosblock
from tests.files import write


def test_a_list_is_changed_and_shown_as_hdfs_shows_it(
    fs: Paxosblock, client: Client, folder: str
) -> None:
    client.mkdirs(f"{folder}/d", permission=0o1750)
    client.set_owner(f"{folder}/d", "ada", "staff")
    spec = "user:bob:rwx,group:dev:rw-,mask::r-x,default:user:eve:rwx,default:mask::r--"
    result = fs("setfacl", "-m", spec, f"{folder}/d")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert fs("getfacl", f"{folder}/d").out == (
        f"# file: {folder}/d\n"
        "# owner: ada\n"
        "# group: staff\n"
        "# flags: --T\n"
        "user::rwx\n"
        "user:bob:rwx\t#effective:r-x\n"
        "group::r-x\n"
        "group:dev:rw-\t#effective:r--\n"
        "mask::r-x\n"
        "other::---\n"
        "default:user::rwx\n"
        "default:user:eve:rwx\t#effective:r--\n"
        "default:group::r-x\t#effective:r--\n"
        "default:mask::r--\n"
        "default:other::---\n"
        "\n"
    )
    assert fs("ls", "-d", f"{folder}/d").out.startswith("drwxr-x--T+  - ada staff ")
    assert fs("setfacl", "-x", "user:bob,group:dev,default:user:eve", f"{folder}/d").code == 0
    assert "bob" not in fs("getfacl", f"{folder}/d").out
    assert fs("setfacl", "-k", f"{folder}/d").code == 0
    assert "default" not in fs("getfacl", f"{folder}/d").out
    assert fs("setfacl", "-b", f"{folder}/d").code == 0
    assert fs("ls", "-d", f"{folder}/d").out.startswith("drwxr-x--T   - ada staff ")


def test_a_plain_file_shows_what_its_mode_says(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    client.set_owner(f"{folder}/a", "ada", "staff")
    result = fs("-getfacl", f"{folder}/a")
    assert (result.code, result.out) == (
        0,
        f"# file: {folder}/a\n# owner: ada\n# group: staff\nuser::rw-\ngroup::r--\nother::r--\n\n",
    )


def test_with_R_files_get_what_is_not_default(fs: Paxosblock, client: Client, folder: str) -> None:
    client.mkdirs(f"{folder}/d/e")
    write(client, f"{folder}/d/f", b"abc")
    assert fs("setfacl", "-R", "-m", "user:bob:r-x,default:user:bob:rwx", f"{folder}/d").code == 0
    found = {
        entry["path"].removeprefix(folder): entry["acl"]
        for entry in map(json.loads, fs("getfacl", "-R", f"{folder}/d", "--json").out.split())
    }
    access = "user::rwx,user:bob:r-x,group::r-x,mask::r-x,other::r-x"
    default = (
        ",default:user::rwx,default:user:bob:rwx,default:group::r-x,default:mask::rwx,"
        "default:other::r-x"
    )
    assert found == {
        "/d": access + default,
        "/d/e": access + default,
        "/d/f": "user::rw-,user:bob:r-x,group::r--,mask::r-x,other::r--",
    }
    assert fs("setfacl", "-R", "-m", "default:user:eve:rwx", f"{folder}/d").code == 0
    assert "eve" not in fs("getfacl", f"{folder}/d/f").out


def test_set_replaces_the_whole_list(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    client.modify_acl_entries(f"{folder}/a", "user:ann:rwx")
    assert (
        fs("setfacl", "--set", "user::rw-,user:bob:r--,group::---,other::---", f"{folder}/*").code
        == 0
    )
    assert [str(entry) for entry in client.get_acl_status(f"{folder}/a").acl] == [
        "user::rw-",
        "user:bob:r--",
        "group::---",
        "mask::r--",
        "other::---",
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("setfacl",), "<path> is missing"),
        (("setfacl", "/a"), "Expected one of -b, -k, -m, -x or --set options"),
        (("setfacl", "-b", "/a", "/b"), "Too many arguments"),
        (("setfacl", "-b", "-k", "/a"), "Specified flags contains both remove and modify flags"),
        (("setfacl", "-b", "-m", "user:a:rwx", "/a"), "contains both remove and modify flags"),
        (("setfacl", "--set", "-x", "user:a", "/a"), "contains both remove and modify flags"),
        (("setfacl", "-m"), "Missing arguments: <acl_spec> <path>"),
        (("setfacl", "-m", "/a"), "Missing either <acl_spec> or <path>"),
        (("setfacl", "-m", ",", "/a"), "Missing <acl_spec> entry"),
        (("setfacl", "-m", "user:a", "/a"), "Invalid <aclSpec> : user:a"),
        (("setfacl", "-m", "::", "/a"), "Invalid <aclSpec> : ::"),
        (("setfacl", "-m", "default:", "/a"), "Invalid <aclSpec> : default:"),
        (("setfacl", "-m", "owner:a:rwx", "/a"), "Invalid type of acl in <aclSpec> :owner:a:rwx"),
        (("setfacl", "-m", "user:a:rxw", "/a"), "Invalid permission in <aclSpec> : user:a:rxw"),
        (("setfacl", "-m", "user:a:rwx:b", "/a"), "Invalid <aclSpec> : user:a:rwx:b"),
        (("setfacl", "-x", "user:a:rwx", "/a"), "Invalid <aclSpec> : user:a:rwx"),
        (("getfacl",), "<path> is missing"),
        (("getfacl", "/a", "/b"), "Too many arguments"),
    ],
)
def test_wrong_usage_is_told_in_hdfs_words(
    fs: Paxosblock, words: tuple[str, ...], line: str
) -> None:
    result = fs(*words)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert line in result.err


def test_what_the_namenode_refuses_is_one_line(fs: Paxosblock, client: Client, folder: str) -> None:
    write(client, f"{folder}/a", b"abc")
    result = fs("setfacl", "-m", "default:user:bob:rwx", f"{folder}/a")
    assert (result.code, len(result.err.splitlines())) == (1, 1)
    assert "Invalid ACL: only directories may have a default ACL." in result.err
    result = fs("getfacl", f"{folder}/none")
    assert (result.code, result.err) == (
        1,
        f"getfacl: '{folder}/none': no such file or directory\n",
    )
