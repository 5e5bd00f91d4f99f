"""One tree through all doors: what one of them changes, each other one shows at once."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import fsspec
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.cli.main import run
from tests.gateway.gateways import RunningGateway, content
from tests.gateway.s3_clients import s3_client

FOLDERS = ("", "d", "d/ü e", "k=a%3Ab", "x+y/&z", "d/A.b")
NAMES = ("f", "g h", "é日本", "a%41", "+", "#?", "~.x", "A")
STEPS = 30
Tree = dict[str, bytes]


class Door(Protocol):
    """A way to the files of one directory, by their paths in it."""

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> bytes: ...

    def remove(self, path: str) -> None: ...

    def move(self, path: str, target: str) -> None: ...

    def paths(self) -> list[str]: ...


class ByWebHdfs:
    """Requests to a gateway."""

    def __init__(self, gateway: RunningGateway, home: str) -> None:
        self._gateway, self._home = gateway, home

    def write(self, path: str, data: bytes) -> None:
        reply = self._gateway.write(f"{self._home}/{path}", data, overwrite="true")
        assert reply.status == 201, reply

    def read(self, path: str) -> bytes:
        return self._gateway.read(f"{self._home}/{path}")

    def remove(self, path: str) -> None:
        reply = self._gateway.ask("DELETE", f"{self._home}/{path}", "DELETE")
        assert reply.json == {"boolean": True}

    def move(self, path: str, target: str) -> None:
        there = f"{self._home}/{target}"
        reply = self._gateway.ask("PUT", f"{self._home}/{path}", "RENAME", destination=there)
        assert reply.json == {"boolean": True}

    def paths(self) -> list[str]:
        found: list[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            shown = self._gateway.ask("GET", f"{self._home}/{folder}".rstrip("/"), "LISTSTATUS")
            for entry in shown.json["FileStatuses"]["FileStatus"]:
                path = posixpath.join(folder, entry["pathSuffix"])
                (folders if entry["type"] == "DIRECTORY" else found).append(path)
        return found


class ByS3:
    """boto3 at a gateway; the directory is the bucket."""

    def __init__(self, url: str, home: str) -> None:
        self._s3, self._bucket = s3_client(url), home[1:]

    def _object(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": path}

    def write(self, path: str, data: bytes) -> None:
        self._s3.put_object(Body=data, **self._object(path))

    def read(self, path: str) -> bytes:
        body: bytes = self._s3.get_object(**self._object(path))["Body"].read()
        return body

    def remove(self, path: str) -> None:
        self._s3.delete_object(**self._object(path))

    def move(self, path: str, target: str) -> None:
        self._s3.copy_object(CopySource=self._object(path), **self._object(target))
        self.remove(path)

    def paths(self) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return [key for key in keys if not key.endswith("/")]


class ByClient:
    """Our own client."""

    def __init__(self, fs: Client, home: str) -> None:
        self._fs, self._home = fs, home

    def write(self, path: str, data: bytes) -> None:
        with self._fs.create(f"{self._home}/{path}", overwrite=True) as out:
            out.write(data)

    def read(self, path: str) -> bytes:
        return content(self._fs, f"{self._home}/{path}")

    def remove(self, path: str) -> None:
        assert self._fs.delete(f"{self._home}/{path}")

    def move(self, path: str, target: str) -> None:
        self._fs.rename(f"{self._home}/{path}", f"{self._home}/{target}")

    def paths(self) -> list[str]:
        found: list[str] = []
        folders = [self._home]
        while folders:
            for each in self._fs.ls(folders.pop()):
                (folders if each.kind is Kind.DIRECTORY else found).append(each.path)
        return [posixpath.relpath(path, self._home) for path in found]


class ByFsspec:
    """The file system of fsspec."""

    def __init__(self, url: str, home: str) -> None:
        self._fs: Any = fsspec.url_to_fs(url, skip_instance_cache=True)[0]
        self._home = home

    def write(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(f"{self._home}/{path}", data)

    def read(self, path: str) -> bytes:
        data: bytes = self._fs.cat_file(f"{self._home}/{path}")
        return data

    def remove(self, path: str) -> None:
        self._fs.rm_file(f"{self._home}/{path}")

    def move(self, path: str, target: str) -> None:
        self._fs.mv(f"{self._home}/{path}", f"{self._home}/{target}")

    def paths(self) -> list[str]:
        return [posixpath.relpath(path, self._home) for path in self._fs.find(self._home)]


class ByCommand:
    """`paxosblock fs`, in this process."""

    def __init__(self, ran: Callable[..., bytes], home: str, local: Path) -> None:
        self._ran, self._home, self._local = ran, home, local

    def write(self, path: str, data: bytes) -> None:
        self._local.write_bytes(data)
        self._ran("mkdir", "-p", posixpath.dirname(f"{self._home}/{path}"))
        self._ran("put", "-f", str(self._local), f"{self._home}/{path}")

    def read(self, path: str) -> bytes:
        return self._ran("cat", f"{self._home}/{path}")

    def remove(self, path: str) -> None:
        self._ran("rm", "-skipTrash", f"{self._home}/{path}")

    def move(self, path: str, target: str) -> None:
        self._ran("mv", f"{self._home}/{path}", f"{self._home}/{target}")

    def paths(self) -> list[str]:
        lines = self._ran("ls", "-R", self._home).decode().splitlines()
        files = [line.split(maxsplit=7)[7] for line in lines if line.startswith("-")]
        return [posixpath.relpath(path, self._home) for path in files]


@pytest.fixture
def doors(  # noqa: PLR0917 - fixtures
    cluster: LocalCluster,
    gateways: tuple[RunningGateway, RunningGateway],
    fs: Client,
    home: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Door]:
    """All doors of one directory; of two gateways that of WebHDFS of one, of S3 of the other."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))

    def ran(*words: str) -> bytes:
        capfdbinary.readouterr()
        code, told = run(["fs", *words]), capfdbinary.readouterr()
        assert code == 0, told.err
        return told.out

    return {
        "webhdfs": ByWebHdfs(gateways[0], home),
        "s3": ByS3(gateways[1].s3_url, home),
        "client": ByClient(fs, home),
        "fsspec": ByFsspec(cluster.url, home),
        "fs": ByCommand(ran, home, tmp_path / "local"),
    }


@pytest.mark.parametrize("seed", range(2))
def test_all_doors_show_the_same_random_tree(seed: int, doors: dict[str, Door]) -> None:
    """Each step goes through any door, and another one shows what it did."""
    dice = random.Random(seed)
    tree: Tree = {}
    for step in range(STEPS):
        writes, sees = dice.sample(sorted(doors), 2)
        path = posixpath.join(dice.choice(FOLDERS), dice.choice(NAMES))
        kind = dice.choice(("write", "write", "remove", "move")) if tree else "write"
        if kind == "write":
            tree[path] = dice.randbytes(dice.choice((0, 1, 100, 70_000)))
            doors[writes].write(path, tree[path])
        else:
            gone = dice.choice(sorted(tree))
            before = tree.pop(gone)
            path = posixpath.join(posixpath.dirname(gone), f"moved-{step}")
            if kind == "move":
                doors[writes].move(gone, path)
                tree[path] = before
            else:
                doors[writes].remove(gone)
        said = f"{kind} {path} by {writes}, seen by {sees}"
        assert sorted(doors[sees].paths()) == sorted(tree), said
        if path in tree:
            assert doors[sees].read(path) == tree[path], said
    for name, door in doors.items():
        assert {path: door.read(path) for path in door.paths()} == tree, name
