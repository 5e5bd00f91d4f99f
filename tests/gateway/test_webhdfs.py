"""WebHDFS, operation by operation: Hadoop's answers, and what is in the cluster then."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from paxosblock import Client, ExistsError, LocalCluster, MakeDirectory
from paxosblock.api.namenode import Kind
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway, content, gateway_of, put
from tests.master_keys import encrypt
from tests.waiting import wait_until

DATA = os.urandom(1_500_000)


# -- what changes nothing --------------------------------------------------------------------------


def test_a_status_has_the_fields_that_hadoop_reads(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    with fs.create(f"{home}/f", permission=0o640, block_size=1 << 20) as out:
        out.write(DATA)
    fs.set_times(f"{home}/f", 1_700_000_000.123)
    shown = gateway.ask("GET", f"{home}/f", "GETFILESTATUS")
    assert shown.status == 200
    assert "Content-Type" not in shown.headers  # Hadoop's client in Spark fails at one
    status = fs.stat(f"{home}/f")
    assert shown.json == {
        "FileStatus": {
            "accessTime": 0,
            "blockSize": 1 << 20,
            "fileId": status.file_id,
            "group": status.group,
            "length": len(DATA),
            "modificationTime": 1_700_000_000_123,
            "owner": current_user(),
            "pathSuffix": "",
            "permission": "640",
            "replication": 3,
            "storagePolicy": 0,
            "type": "FILE",
        }
    }
    directory = gateway.ask("GET", home, "getfilestatus").json["FileStatus"]
    assert (directory["type"], directory["replication"], directory["length"]) == ("DIRECTORY", 0, 0)
    fs.modify_acl_entries(f"{home}/f", "user:ann:r--")
    assert gateway.ask("GET", f"{home}/f", "GETFILELINKSTATUS").json["FileStatus"]["aclBit"] is True


def test_a_file_of_an_encryption_zone_is_shown_as_one_and_read_and_written_as_any(
    cluster: LocalCluster, gateway: RunningGateway, fs: Client, home: str
) -> None:
    def bits(path: str) -> list[object]:
        found = gateway.ask("GET", path, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
        return [each.get("encBit") for each in found]

    fs.mkdirs(f"{home}/zone")
    assert bits(home) == [None]
    encrypt(cluster, f"{home}/zone")
    assert gateway.write(f"{home}/zone/f", DATA).status == 201
    assert bits(home) == [True]
    assert bits(f"{home}/zone") == [True]
    assert fs.stat(f"{home}/zone/f").encrypted
    assert gateway.read(f"{home}/zone/f", offset=9, length=700_000) == DATA[9:700_009]
    assert gateway.ask("POST", f"{home}/zone/f", "TRUNCATE", newlength=700_000).json["boolean"]
    assert gateway.read(f"{home}/zone/f") == content(fs, f"{home}/zone/f") == DATA[:700_000]


def test_a_list_shows_a_directory_or_a_file_by_itself(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    for name in ("b", "a", "ü"):
        fs.mkdirs(f"{home}/{name}")
    fs.create(f"{home}/f").close()

    def names(path: str) -> list[str]:
        listed = gateway.ask("GET", path, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
        return [entry["pathSuffix"] for entry in listed]

    assert names(home) == ["a", "b", "f", "ü"]
    assert names(f"{home}/") == names(home)
    assert names(f"{home}/f") == [""]
    assert names(f"{home}/a") == []
    assert gateway.ask("GET", f"{home}/x", "LISTSTATUS").status == 404


def test_a_long_list_comes_whole_and_page_by_page(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    wanted = [f"n{number:04}" for number in range(2_500)]
    fs.transact([MakeDirectory(f"{home}/{name}") for name in wanted])
    whole = gateway.ask("GET", home, "LISTSTATUS")
    assert [e["pathSuffix"] for e in whole.json["FileStatuses"]["FileStatus"]] == wanted
    found, after, pages, left = [], "", 0, 1
    while left:
        page = gateway.ask("GET", home, "LISTSTATUS_BATCH", startAfter=after).json
        listed = page["DirectoryListing"]["partialListing"]["FileStatuses"]["FileStatus"]
        found += [entry["pathSuffix"] for entry in listed]
        after, left, pages = found[-1], page["DirectoryListing"]["remainingEntries"], pages + 1
    assert (found, pages) == (wanted, 3)


def test_a_range_of_a_file_is_what_was_asked_for(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    with fs.create(f"{home}/f", block_size=400_000, chunk_size=100_000) as out:
        out.write(DATA)
    path = f"{home}/f"
    assert gateway.read(path) == DATA
    assert gateway.read(path, offset=399_990, length=500_020) == DATA[399_990:900_010]
    assert gateway.read(path, offset=len(DATA) - 1) == DATA[-1:]
    assert gateway.read(path, offset=10, length=1 << 60) == DATA[10:]
    assert gateway.read(path, length=0) == b""
    past = gateway.ask("GET", path, "OPEN", offset=len(DATA))
    assert (past.status, past.exception) == (403, "IOException")
    assert f"Offset={len(DATA)} out of the range [0, {len(DATA)})" in past.message
    fs.create(f"{home}/empty").close()
    assert gateway.read(f"{home}/empty") == b""
    answer = gateway.ask("GET", path, "OPEN", noredirect="true").json["Location"]
    address = urlsplit(answer)
    again = gateway.send("GET", f"{address.path}?{address.query}")
    assert (again.body, again.headers["Content-Length"]) == (DATA, str(len(DATA)))
    assert gateway.ask("GET", home, "OPEN").message == f"Path is not a file: {home}"


def test_what_needs_no_path_is_told(gateway: RunningGateway, fs: Client, home: str) -> None:
    user = current_user()
    for target in ("/webhdfs/v1", "/webhdfs/v1/"):
        answer = gateway.send("GET", f"{target}?op=GETHOMEDIRECTORY&user.name=joe")
        assert answer.json == {"Path": "/user/joe"}
    assert gateway.ask("GET", "/", "GETTRASHROOT").json == {"Path": f"/user/{user}/.Trash"}
    defaults = gateway.ask("GET", "/", "GETSERVERDEFAULTS").json["FsServerDefaults"]
    assert (defaults["blockSize"], defaults["replication"]) == (128 << 20, 3)
    assert defaults["encryptDataTransfer"] is False
    gateway.write(f"{home}/f", b"12345")
    summary = gateway.ask("GET", home, "GETCONTENTSUMMARY").json["ContentSummary"]
    counted = summary["fileCount"], summary["directoryCount"], summary["spaceConsumed"]
    assert counted == (1, 1, 15)
    usage = gateway.ask("GET", home, "GETQUOTAUSAGE").json["QuotaUsage"]
    assert (usage["fileAndDirectoryCount"], usage["quota"]) == (2, -1)
    places = gateway.ask("GET", f"{home}/f", "GETFILEBLOCKLOCATIONS").json
    (block,) = places["BlockLocations"]["BlockLocation"]
    assert (block["offset"], block["length"], len(block["names"])) == (0, 5, 3)
    assert block["hosts"] == ["127.0.0.1"] * 3


@pytest.mark.parametrize("operation", ["GETCONTENTSUMMARY", "GETQUOTAUSAGE"])
def test_the_count_of_the_root_leaves_out_what_its_listing_does(
    gateway: RunningGateway, fs: Client, operation: str
) -> None:
    def counted() -> list[int]:
        (sums,) = gateway.ask("GET", "/", operation).json.values()
        names = ("fileCount", "directoryCount", "length", "fileAndDirectoryCount", "spaceConsumed")
        return [sums[name] for name in names if name in sums]

    before, hidden = counted(), f"/.staging/{uuid.uuid4().hex}"
    put(fs, f"{hidden}/f", b"12345")
    try:
        assert counted() == before
    finally:
        fs.delete(hidden, recursive=True)


# -- bytes -----------------------------------------------------------------------------------------


def test_a_file_is_made_in_two_steps(gateway: RunningGateway, fs: Client, home: str) -> None:
    path = f"{home}/in dir/a+b %41.txt"
    first = gateway.ask("PUT", path, "CREATE", permission="600", replication=2, blocksize=1 << 20)
    assert (first.status, first.headers["Content-Length"]) == (307, "0")
    assert not fs.exists(path)
    address = urlsplit(first.headers["Location"])
    made = gateway.send("PUT", f"{address.path}?{address.query}", DATA)
    assert (made.status, made.body) == (201, b"")
    assert content(fs, path) == DATA
    status = fs.stat(path)
    wanted = 0o600, 2, 1 << 20, False
    assert (status.permission, status.replication, status.block_size, status.open) == wanted
    # The same in one request, as programs do that were told not to be redirected.
    told = gateway.ask("PUT", f"{home}/g", "CREATE", noredirect="True").json["Location"]
    address = urlsplit(told)
    assert gateway.send("PUT", f"{address.path}?{address.query}", b"g").status == 201
    assert content(fs, f"{home}/g") == b"g"


def test_a_file_that_is_there_is_replaced_only_when_asked_for(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    assert gateway.write(path, b"old").status == 201
    refused = gateway.write(path, b"new")
    assert (refused.status, refused.exception) == (403, "FileAlreadyExistsException")
    assert refused.message.startswith(f"{path} for client 127.0.0.1 already exists")
    assert content(fs, path) == b"old"
    assert gateway.write(path, b"new", overwrite="True", permission="604").status == 201
    assert (content(fs, path), fs.stat(path).permission) == (b"new", 0o604)
    assert gateway.write(path, b"newer", createflag="CREATE,OVERWRITE").status == 201
    assert content(fs, path) == b"newer"
    assert gateway.write(home, b"x", overwrite="true").exception == "FileAlreadyExistsException"
    below = gateway.write(f"{path}/x", b"x")
    assert below.exception == "ParentNotDirectoryException"
    alone = gateway.write(f"{home}/no/x", b"x", createparent="false")
    assert (alone.status, alone.exception) == (404, "FileNotFoundException")
    assert not fs.exists(f"{home}/no")


def test_bytes_are_appended_and_blocks_stay_few(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    assert gateway.write(path, b"").status == 201
    for number in range(5):
        assert gateway.write(path, b"%d" % number * 1000, "APPEND").status == 200
    assert gateway.write(path, b"", "APPEND").status == 200
    assert content(fs, path) == b"".join(b"%d" % number * 1000 for number in range(5))
    assert len(fs.locations(path)) == 1
    missing = gateway.write(f"{home}/no", b"x", "APPEND")
    assert (missing.status, missing.message) == (404, f"File does not exist: {home}/no")
    assert gateway.write(home, b"x", "APPEND").exception == "FileAlreadyExistsException"


def test_no_byte_of_a_body_is_taken_for_a_part_of_a_head(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    """Bytes of a request line that are not ASCII are escaped, and only those."""
    odd = bytes(range(128, 256)) * 300
    with gateway.connect() as connection, connection.makefile("rb") as file:
        for number in range(20):
            target = gateway.url(f"{home}/f{number}", "CREATE", data="true")
            line = target.replace(f"/f{number}?", f"/ü{number}?")
            head = f"PUT {line} HTTP/1.1\r\nHost: {gateway.address}\r\nContent-Length: {len(odd)}"
            whole = f"{head}\r\n\r\n".encode()
            cut = number * 7 % len(whole)
            connection.sendall(whole[:cut])
            connection.sendall(whole[cut:])
            for begin in range(0, len(odd), 5000):
                connection.sendall(odd[begin : begin + 5000])
            assert file.readline().startswith(b"HTTP/1.1 201 ")
            while file.readline() != b"\r\n":
                pass
            assert content(fs, f"{home}/ü{number}") == odd


def announced(gateway: RunningGateway, path: str, op: str = "CREATE", **more: Any) -> bytes:
    """The head of a request whose body is announced as longer than what the test sends."""
    method = "PUT" if op == "CREATE" else "POST"
    target = gateway.url(path, op, data="true", **more)
    head = f"{method} {target} HTTP/1.1\r\nHost: {gateway.address}\r\n"
    return f"{head}Content-Length: 5000000000000\r\n".encode()


def test_a_body_that_breaks_off_leaves_no_new_file(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    with gateway.connect() as connection:
        connection.sendall(announced(gateway, path) + b"\r\n" + DATA)
        wait_until(lambda: fs.exists(path), what="a file that is being written")
    wait_until(lambda: not fs.exists(path), what="its end")


def test_a_body_that_breaks_off_leaves_what_it_was_to_replace(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    put(fs, path, b"old")
    with gateway.connect() as connection:
        connection.sendall(announced(gateway, path, overwrite="true") + b"\r\n" + DATA)

        def written() -> bool:
            return any(entry.open for entry in fs.walk("/.staging"))

        wait_until(written, what="a file that is not published")
        assert content(fs, path) == b"old"

    def left() -> bool:
        return any(entry.kind is Kind.FILE for entry in fs.walk("/.staging"))

    wait_until(lambda: not left(), what="its end")
    assert content(fs, path) == b"old"


def test_an_append_that_breaks_off_leaves_what_came(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    path = f"{home}/f"
    put(fs, path, b"old")
    with gateway.connect() as connection:
        connection.sendall(announced(gateway, path, "APPEND") + b"\r\nnew")
        wait_until(lambda: fs.stat(path).open, what="the append")
    wait_until(lambda: not fs.stat(path).open, what="its end")
    assert content(fs, path) in (b"old", b"oldnew")


def test_a_refusal_costs_no_upload_and_ends_the_connection(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    put(fs, f"{home}/f", b"old")
    waits = b"Expect: 100-continue\r\n\r\n"
    with gateway.connect() as connection:  # the body is never sent
        connection.sendall(announced(gateway, f"{home}/f") + waits)
        with connection.makefile("rb") as file:
            answer = file.read()
    assert answer.startswith(b"HTTP/1.1 403 "), answer
    assert b"Connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1
    # What is left of a body is never the next request.
    head = f"PUT {gateway.url(home, 'MKDIRS', permission='9')} HTTP/1.1\r\nHost: {gateway.address}"
    smuggled = f"DELETE {gateway.url(f'{home}/f', 'DELETE')} HTTP/1.1\r\n\r\n".encode()
    answer = gateway.raw(f"{head}\r\nContent-Length: 99999\r\n\r\n".encode() + smuggled)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert content(fs, f"{home}/f") == b"old"


def test_who_waits_to_be_asked_for_the_body_is_asked(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    target = gateway.url(f"{home}/f", "CREATE", data="true")
    head = f"PUT {target} HTTP/1.1\r\nHost: {gateway.address}\r\nContent-Length: 5\r\n"
    with gateway.connect() as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        with connection.makefile("rb") as file:
            assert file.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert file.readline() == b"\r\n"
            connection.sendall(b"12345")
            assert file.readline().startswith(b"HTTP/1.1 201 ")
    assert content(fs, f"{home}/f") == b"12345"


def test_a_reader_that_leaves_is_no_error(gateway: RunningGateway, fs: Client, home: str) -> None:
    big = DATA * 12
    put(fs, f"{home}/big", big)
    head = f"GET {gateway.url(f'{home}/big', 'OPEN')} HTTP/1.1\r\nHost: {gateway.address}\r\n\r\n"
    before = gateway.log
    for _ in range(5):
        with gateway.connect() as connection:
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
    held = "paxosblock_gateway_bytes_under_way 0.0"
    wait_until(lambda: held in gateway.send("GET", "/metrics").body.decode(), what="its room")
    assert gateway.log == before
    assert gateway.read(f"{home}/big") == big


# -- names -----------------------------------------------------------------------------------------


def test_directories_are_made_with_those_above(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    for _ in range(2):
        made = gateway.ask("PUT", f"{home}/a/b", "MKDIRS", permission="700")
        assert made.json == {"boolean": True}
    assert fs.stat(f"{home}/a/b").permission == 0o700
    put(fs, f"{home}/f", b"")
    assert gateway.ask("PUT", f"{home}/f", "MKDIRS").exception == "FileAlreadyExistsException"
    below = gateway.ask("PUT", f"{home}/f/x", "MKDIRS")
    assert (below.status, below.exception) == (403, "ParentNotDirectoryException")
    assert gateway.ask("GET", f"{home}/f/x", "GETFILESTATUS").exception == "FileNotFoundException"


def test_a_permission_is_what_was_asked_for(gateway: RunningGateway, fs: Client, home: str) -> None:
    """Hadoop's client has taken its umask off already."""
    assert gateway.ask("PUT", f"{home}/d", "MKDIRS", permission="733").status == 200
    assert gateway.write(f"{home}/f", b"", permission="1666").status == 201
    assert gateway.write(f"{home}/f", b"", permission="777", overwrite="true").status == 201
    assert (fs.stat(f"{home}/d").permission, fs.stat(f"{home}/f").permission) == (0o733, 0o777)
    for path, method, op in ((f"{home}/e", "PUT", "MKDIRS"), (f"{home}/g", "PUT", "CREATE")):
        assert gateway.ask(method, path, op, data="true").status in (200, 201)
    assert (fs.stat(f"{home}/e").permission, fs.stat(f"{home}/g").permission) == (0o755, 0o644)
    # On the way to a file no directory is made that others may write into.
    assert gateway.write(f"{home}/x/y/f", b"", permission="666").status == 201
    assert fs.stat(f"{home}/x/y").permission == fs.stat(f"{home}/x").permission == 0o755
    # Where default entries decide, the permission counts from which no umask was taken.
    fs.modify_acl_entries(home, "default:user:bob:rwx")
    gateway.write(f"{home}/h", b"", permission="640", unmaskedpermission="666")
    gateway.ask("PUT", f"{home}/i", "MKDIRS", permission="750", unmaskedpermission="777")
    shown = [str(each) for each in fs.get_acl_status(f"{home}/h").entries]
    assert "user:bob:rwx" in shown
    assert fs.stat(f"{home}/h").permission == 0o664
    assert fs.stat(f"{home}/i").permission == 0o775


def test_a_rename_without_options_is_true_or_false_as_in_hdfs(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    for name in ("d/e", "into"):
        fs.mkdirs(f"{home}/{name}")
    for name in ("f", "g"):
        put(fs, f"{home}/{name}", name.encode())

    def moved(source: str, destination: str) -> bool:
        wanted = f"{home}/{destination}"
        reply = gateway.ask("PUT", f"{home}/{source}", "RENAME", destination=wanted)
        assert reply.status == 200, reply
        return bool(reply.json["boolean"])

    assert not moved("no", "x")
    assert not moved("f", "g")  # a file is there
    assert not moved("d", "d/e/x")  # below itself
    assert not moved("f", "g/x")  # below a file
    assert not moved("f", "no/x")  # no parent
    assert moved("f", "f")
    assert moved("f", "into")
    assert content(fs, f"{home}/into/f") == b"f"
    assert moved("d", "h")
    assert fs.exists(f"{home}/h/e")
    fs.mkdirs(f"{home}/into/h/x")
    assert not moved("h", "into")  # its name is taken there
    assert fs.exists(f"{home}/h/e")
    root = gateway.ask("PUT", "/", "RENAME", destination=f"{home}/x")
    assert root.json == {"boolean": False}


def test_a_rename_with_options_says_why_not(gateway: RunningGateway, fs: Client, home: str) -> None:
    for name in ("empty", "full/x", "d"):
        fs.mkdirs(f"{home}/{name}")
    for name in ("f", "g"):
        put(fs, f"{home}/{name}", name.encode())

    def why(source: str, destination: str, options: str) -> str:
        wanted = f"{home}/{destination}"
        reply = gateway.ask(
            "PUT", f"{home}/{source}", "RENAME", destination=wanted, renameoptions=options
        )
        return reply.exception if reply.body else str(reply.status)

    assert why("no", "x", "NONE") == "FileNotFoundException"
    assert why("f", "f", "OVERWRITE") == "FileAlreadyExistsException"
    assert why("f", "g", "NONE") == "FileAlreadyExistsException"
    assert why("f", "no/x", "NONE") == "FileNotFoundException"
    assert why("f", "g/x", "NONE") == "ParentNotDirectoryException"
    assert why("f", "empty", "OVERWRITE") == "IOException"
    assert why("d", "full", "OVERWRITE") == "IOException"
    assert why("f", "x", "SOMETIMES") == "IllegalArgumentException"
    assert why("f", "g", "OVERWRITE") == "200"
    assert content(fs, f"{home}/g") == b"f"
    assert why("d", "empty", "OVERWRITE") == "200"
    assert why("g", "t", "TO_TRASH") == "200"
    assert sorted(each.name for each in fs.ls(home)) == ["empty", "full", "t"]


def test_deleting_says_whether_there_was_anything(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    fs.mkdirs(f"{home}/d/e")
    put(fs, f"{home}/f", b"")
    for path in (f"{home}/d", "/"):
        full = gateway.ask("DELETE", path, "DELETE")
        assert (full.status, full.exception) == (403, "PathIsNotEmptyDirectoryException")
        assert f"{path} is non empty" in full.message
    for path in (f"{home}/f/x", f"{home}/no", "/"):
        gone = gateway.ask("DELETE", path, "DELETE", recursive="true")
        assert gone.json == {"boolean": False}, path
    for path in (f"{home}/f", f"{home}/d"):
        assert gateway.ask("DELETE", path, "DELETE", recursive="true").json == {"boolean": True}
    assert fs.ls(home) == []


def test_what_belongs_to_a_name_is_changed(gateway: RunningGateway, fs: Client, home: str) -> None:
    path = f"{home}/f"
    put(fs, path, b"")
    assert gateway.ask("PUT", path, "SETREPLICATION", replication=2).json == {"boolean": True}
    assert gateway.ask("PUT", home, "SETREPLICATION", replication=2).json == {"boolean": False}
    assert gateway.ask("PUT", path, "SETPERMISSION", permission="1711").status == 200
    owned = gateway.ask("PUT", path, "SETOWNER", owner="ann", group="dev")
    assert (owned.body, owned.headers["Content-Type"]) == (b"", "application/octet-stream")
    both = gateway.ask("PUT", path, "SETOWNER")
    assert (both.status, both.message) == (400, "Both owner and group are empty.")
    times = gateway.ask("PUT", path, "SETTIMES", modificationtime=1_500_000_000_001, accesstime=5)
    assert times.status == 200
    status = fs.stat(path)
    assert (status.replication, status.permission, status.owner) == (2, 0o1711, "ann")
    assert (status.group, round(status.modified_s * 1000)) == ("dev", 1_500_000_000_001)
    alone = gateway.ask("PUT", path, "SETTIMES", accesstime=1_500_000_000_002)
    assert (alone.status, alone.exception) == (403, "IOException")
    assert fs.stat(path) == status


# -- who asks --------------------------------------------------------------------------------------


def test_a_request_is_made_as_the_user_who_asks(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    put(fs, f"{home}/f", b"secret")
    fs.set_permission(f"{home}/f", 0o600)
    denied = gateway.ask("GET", f"{home}/f", "OPEN", user="joe")
    assert (denied.status, denied.exception) == (403, "AccessControlException")
    assert denied.message.startswith("Permission denied: user=joe, access=READ, inode=")
    assert gateway.write(f"{home}/g", b"x", user="joe").exception == "AccessControlException"
    fs.set_permission(home, 0o777)
    assert gateway.write(f"{home}/g", b"x", user="joe").status == 201
    assert fs.stat(f"{home}/g").owner == "joe"
    assert gateway.send("GET", f"/webhdfs/v1{home}/f?op=OPEN").exception == "AccessControlException"
    asked = {
        wanted: gateway.ask("GET", f"{home}/g", "CHECKACCESS", fsaction=wanted, user="ann").status
        for wanted in ("r--", "rw-", "--x")
    }
    assert asked == {"r--": 200, "rw-": 403, "--x": 403}
    other = gateway.ask("GET", home, "GETFILESTATUS", doas="ann")
    assert (other.exception, other.status) == ("AuthorizationException", 403)
    assert "is not allowed to impersonate ann" in other.message
    bad = gateway.ask("GET", home, "GETFILESTATUS", user="a:b")
    assert (bad.status, bad.exception) == (400, "IllegalArgumentException")


def test_a_page_in_a_browser_gets_nothing(gateway: RunningGateway, fs: Client, home: str) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example:80"}):
        for method, op in (("PUT", "MKDIRS"), ("GET", "LISTSTATUS")):
            reply = gateway.ask(method, f"{home}/x", op, headers=headers)
            assert (reply.status, reply.exception) == (403, "AccessControlException")
    assert not fs.exists(f"{home}/x")


def test_files_that_are_not_published_are_no_business_of_a_door(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    """A list does not name their directory, as a program that walks it would be refused."""
    fs.mkdirs("/.staging")
    for path in ("/.staging", "/.staging/x"):
        reply = gateway.ask("GET", path, "GETFILESTATUS")
        assert (reply.status, reply.exception) == (403, "AccessControlException")
    shown = gateway.ask("GET", "/", "LISTSTATUS").json["FileStatuses"]
    page = gateway.ask("GET", "/", "LISTSTATUS_BATCH").json["DirectoryListing"]["partialListing"]
    for listed in (shown, page["FileStatuses"]):
        names = [entry["pathSuffix"] for entry in listed["FileStatus"]]
        assert home[1:] in names
        assert ".staging" not in names


def test_snapshots_are_taken_read_renamed_and_deleted(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    with fs.create(f"{home}/f") as out:
        out.write(b"before")
    assert gateway.ask("PUT", home, "ALLOWSNAPSHOT").status == 200
    no_directory = gateway.ask("PUT", f"{home}/f", "ALLOWSNAPSHOT")
    assert (no_directory.status, no_directory.exception) == (403, "PathIsNotDirectoryException")
    taken = gateway.ask("PUT", home, "CREATESNAPSHOT", snapshotname="s")
    assert (taken.status, taken.json) == (200, {"Path": f"{home}/.snapshot/s"})
    fs.delete(f"{home}/f")
    compared = gateway.ask("GET", home, "GETSNAPSHOTDIFF", oldsnapshotname="s", snapshotname="")
    assert compared.json == {
        "SnapshotDiffReport": {
            "diffList": [
                {"sourcePath": "", "type": "MODIFY"},
                {"sourcePath": "f", "type": "DELETE"},
            ],
            "fromSnapshot": "s",
            "snapshotRoot": home,
            "toSnapshot": "",
        }
    }
    renamed = gateway.ask("PUT", home, "RENAMESNAPSHOT", oldsnapshotname="s", snapshotname="t")
    assert (renamed.status, renamed.body) == (200, b"")
    assert gateway.ask("GET", f"{home}/.snapshot/t/f", "OPEN").body == b"before"
    listed = gateway.ask("GET", f"{home}/.snapshot/t", "LISTSTATUS").json
    assert [each["pathSuffix"] for each in listed["FileStatuses"]["FileStatus"]] == ["f"]
    assert gateway.ask("PUT", f"{home}/.snapshot/t/g", "MKDIRS").status == 403
    assert gateway.ask("DELETE", home, "DELETESNAPSHOT", snapshotname="t").status == 200
    assert gateway.ask("GET", f"{home}/.snapshot/t", "LISTSTATUS").status == 404
    assert gateway.ask("DELETE", home, "DELETESNAPSHOT", snapshotname="t").status == 404


def test_what_is_lacking_is_refused_by_name(gateway: RunningGateway, home: str) -> None:
    lacking = gateway.ask("PUT", home, "DISALLOWSNAPSHOT")
    assert (lacking.status, lacking.exception) == (400, "UnsupportedOperationException")
    assert "DISALLOWSNAPSHOT" in lacking.message
    for method, op in (("GET", "NONSENSE"), ("GET", "MKDIRS"), ("POST", "")):
        reply = gateway.ask(method, home, op)
        assert (reply.status, reply.exception) == (400, "IllegalArgumentException")
        assert 'Invalid value for webhdfs parameter "op"' in reply.message


@pytest.mark.parametrize(
    ("operation", "parameter"),
    [
        ("GET OPEN", "offset=x"),
        ("GET OPEN", "offset=-1"),
        ("GET OPEN", "length=-1"),
        ("GET OPEN", "length=99999999999999999999"),
        ("PUT SETPERMISSION", "permission=888"),
        ("PUT MKDIRS", "permission=2777"),
        ("DELETE DELETE", "recursive=perhaps"),
        ("PUT SETREPLICATION", "replication=0"),
        ("PUT SETREPLICATION", "replication=100000"),
        ("PUT CREATE", "blocksize=0"),
        ("PUT CREATE", "createflag=SOMETIMES"),
        ("PUT RENAME", "destination=x"),
        ("GET CHECKACCESS", "fsaction=rwxrwx"),
        ("PUT SETOWNER", "owner=a:b"),
        ("PUT SETTIMES", "modificationtime=9999999999999999"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_and_changes_nothing(
    operation: str, parameter: str, gateway: RunningGateway, fs: Client, home: str
) -> None:
    put(fs, f"{home}/f", b"12345")
    before = fs.stat(f"{home}/f")
    method, op = operation.split()
    reply = gateway.send(method, gateway.url(f"{home}/f", op) + f"&{parameter}")
    assert reply.status in (400, 403), reply
    assert reply.exception in ("IllegalArgumentException", "IOException")
    assert fs.stat(f"{home}/f") == before


def test_a_gateway_without_a_cluster_sends_programs_to_another_one(tmp_path: Path) -> None:
    with LocalCluster(1, path=tmp_path / "cluster") as cluster:
        folder = tmp_path / "gateway"
        folder.mkdir()
        with gateway_of(cluster, folder, PAXOSBLOCK_CLIENT_RETRY_FOR="0.5s") as gateway:
            assert gateway.ask("GET", "/", "LISTSTATUS").status == 200
            cluster.namenode.kill()
            reply = gateway.ask("GET", "/", "LISTSTATUS")
            assert (reply.status, reply.exception) == (403, "StandbyException")
            assert gateway.send("GET", "/healthz").json["role"] == "gateway"
            told = gateway.send("GET", "/page.json").json["health"]["text"]
            assert told.startswith("No NameNode answers this gateway")
            cluster.namenode.start()
            assert gateway.ask("GET", "/", "LISTSTATUS").status == 200
            assert gateway.stop() == 0


def test_many_writers_of_one_name_leave_the_file_of_one(
    gateway: RunningGateway, fs: Client, home: str
) -> None:
    contents = {number: bytes([number]) * 200_000 for number in range(8)}
    replies: dict[int, int] = {}

    def write(number: int) -> None:
        replies[number] = gateway.write(f"{home}/f", contents[number]).status

    threads = [threading.Thread(target=write, args=(number,)) for number in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, status in replies.items() if status == 201]
    assert content(fs, f"{home}/f") == contents[winner]
    with pytest.raises(ExistsError):
        fs.create(f"{home}/f")
