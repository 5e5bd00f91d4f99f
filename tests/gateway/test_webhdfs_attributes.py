"""WebHDFS, what belongs to a file beside its bytes: attributes, access control lists, checksum."""

from __future__ import annotations

import json
import os
from typing import Any

from paxosblock import Client
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway, content, put


def test_attributes_are_set_shown_and_removed(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    put(fs, path, b"")

    def change(name: str, flag: str, value: str = "") -> str:
        named: dict[str, Any] = {"xattr.name": name, "xattr.value": value}
        reply = gateway.ask("PUT", path, "SETXATTR", flag=flag, **named)
        return reply.exception if reply.body else str(reply.status)

    assert change("user.a", "REPLACE", '"one"') == "IOException"
    assert change("user.a", "CREATE", '"one"') == "200"
    assert change("user.a", "CREATE", '"two"') == "IOException"
    assert change("user.a", "CREATE,REPLACE", "0x0001ff") == "200"
    assert change("user.b", "CREATE", "0sAAE=") == "200"
    assert change("user.empty", "CREATE") == "200"
    assert fs.get_attributes(path) == {
        "user.a": b"\x00\x01\xff",
        "user.b": b"\x00\x01",
        "user.empty": b"",
    }
    assert change("nonsense", "CREATE", "x") == "IllegalArgumentException"
    assert change("user.c", "SOMETIMES", "x") == "IllegalArgumentException"
    assert change("user.c", "", "x") == "IllegalArgumentException"
    assert change("user.c", "CREATE", "0xZZ") == "IllegalArgumentException"

    def shown(**more: Any) -> dict[str, str]:
        listed = gateway.ask("GET", path, "GETXATTRS", **more).json["XAttrs"]
        return {each["name"]: each["value"] for each in listed}

    assert shown(encoding="HEX")["user.a"] == "0x0001ff"
    assert shown(encoding="base64", **{"xattr.name": "user.b"}) == {"user.b": "0sAAE="}
    assert shown()["user.empty"] == '""'
    unknown: dict[str, Any] = {"xattr.name": "user.no"}
    missing = gateway.ask("GET", path, "GETXATTRS", **unknown)
    assert (missing.status, missing.exception) == (403, "IOException")
    names = gateway.ask("GET", path, "LISTXATTRS").json["XAttrNames"]
    assert json.loads(names) == ["user.a", "user.b", "user.empty"]
    second: dict[str, Any] = {"xattr.name": "user.b"}
    for status in (200, 403):
        gone = gateway.ask("PUT", path, "REMOVEXATTR", **second)
        assert gone.status == status
    assert sorted(fs.get_attributes(path)) == ["user.a", "user.empty"]


def test_access_control_lists_are_changed_and_shown(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    def change(op: str, spec: str = "") -> int:
        more: dict[str, Any] = {"aclspec": spec} if spec else {}
        return gateway.ask("PUT", home, op, **more).status

    assert change("MODIFYACLENTRIES", "user:bob:r-x,default:group:dev:rwx") == 200
    status = gateway.ask("GET", home, "GETACLSTATUS").json["AclStatus"]
    wanted = fs.get_acl_status(home)
    assert status == {
        "entries": [str(each) for each in wanted.entries],
        "group": wanted.group,
        "owner": current_user(),
        "permission": f"{wanted.permission:o}",
        "stickyBit": False,
    }
    assert "user:bob:r-x" in status["entries"]
    assert change("REMOVEACLENTRIES", "user:bob") == 200
    assert change("REMOVEDEFAULTACL") == 200
    left = [str(each) for each in fs.get_acl_status(home).entries]
    assert left == ["group::r-x"]
    assert change("SETACL", "user::rwx,user:ann:rwx,group::r-x,other::---") == 200
    assert "user:ann:rwx" in map(str, fs.get_acl_status(home).entries)
    assert change("REMOVEACL") == 200
    assert fs.get_acl_status(home).entries == ()
    fs.set_permission(home, 0o1777)
    assert gateway.ask("GET", home, "GETACLSTATUS").json["AclStatus"]["stickyBit"] is True
    for op in ("SETACL", "MODIFYACLENTRIES", "REMOVEACLENTRIES"):
        assert (change(op), change(op, "nonsense")) == (400, 400)


def test_the_checksum_is_that_of_hdfs(gateway: RunningGateway, fs: Client, home: str) -> None:
    data = os.urandom(10_000)
    with fs.create(f"{home}/f", block_size=4096) as out:
        out.write(data)
    put(fs, f"{home}/empty", b"")
    for name in ("f", "empty"):
        wanted = fs.checksum(f"{home}/{name}")
        told = gateway.ask("GET", f"{home}/{name}", "GETFILECHECKSUM").json["FileChecksum"]
        assert told == {"algorithm": wanted.algorithm, "bytes": wanted.text, "length": 28}
    assert told["bytes"] == "00000000000000000000000070bc8f4b72a86921468bf8e8441dce51"
    assert gateway.ask("GET", home, "GETFILECHECKSUM").exception == "FileNotFoundException"


def test_files_are_joined_and_cut(gateway: RunningGateway, fs: Client, home: str) -> None:
    for name in "abc":
        put(fs, f"{home}/{name}", name.encode() * 3)
    missing = gateway.ask("POST", f"{home}/a", "CONCAT", sources=f"{home}/b,{home}/no")
    assert missing.message == f"File does not exist: {home}/no"
    relative = gateway.ask("POST", f"{home}/a", "CONCAT", sources="b")
    assert relative.exception == "IllegalArgumentException"
    joined = gateway.ask("POST", f"{home}/a", "CONCAT", sources=f"{home}/b,{home}/c")
    assert (joined.status, joined.body) == (200, b"")
    assert content(fs, f"{home}/a") == b"aaabbbccc"
    assert [each.name for each in fs.ls(home)] == ["a"]
    assert gateway.ask("POST", f"{home}/a", "TRUNCATE", newlength=4).json == {"boolean": True}
    assert content(fs, f"{home}/a") == b"aaab"
    cases: list[dict[str, Any]] = [{"newlength": 5}, {"newlength": "x"}, {}]
    for more in cases:
        refused = gateway.ask("POST", f"{home}/a", "TRUNCATE", **more)
        assert refused.exception == "IllegalArgumentException", more
    assert content(fs, f"{home}/a") == b"aaab"


def test_the_room_is_that_of_the_cluster(gateway: RunningGateway, fs: Client) -> None:
    told = gateway.ask("GET", "/", "GETSTATUS").json["FsStatus"]
    assert told["capacity"] == fs.room().size > 0
    assert 0 < told["remaining"] <= told["capacity"]


def test_what_was_deleted_is_found_where_the_shell_puts_it(
    gateway: RunningGateway, fs: Client
) -> None:
    user = f"trash-{os.getpid()}"
    assert gateway.ask("GET", "/", "GETTRASHROOTS", user=user).json == {"Paths": []}
    fs.mkdirs(f"/user/{user}/.Trash")
    (found,) = gateway.ask("GET", "/", "GETTRASHROOTS", user=user).json["Paths"]
    assert (found["pathSuffix"], found["type"]) == (f"/user/{user}/.Trash", "DIRECTORY")


def test_a_name_that_is_claimed_gets_no_token(gateway: RunningGateway) -> None:
    assert gateway.ask("GET", "/", "GETDELEGATIONTOKEN").json == {"Token": None}
