"""A package as users meet it: its names, the settings of a client, how files are opened."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import paxosblock
from paxosblock import (
    AsyncClient,
    BlockLocation,
    BlockReceipt,
    Client,
    FileStatus,
    FlushReceipt,
    OnFailure,
    Replacement,
    Truncate,
    WriteOptions,
    errors,
)
from paxosblock.api import transaction
from paxosblock.base.settings import settings_of
from paxosblock.client.fsspec.storage_options import config_of
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ConfigError,
    InvalidRequestError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.protocol.types import BlockId
from tests.client.shipped import ShippedCluster, shipped_cluster
from tests.waiting import PATIENCE_S

NOBODY = "paxosblock://127.0.0.1:1"


def test_every_error_and_every_operation_of_a_transaction_comes_from_the_package() -> None:
    kinds = {each for each in vars(errors).values() if isinstance(each, type)}
    names = {each.__name__ for each in kinds if issubclass(each, PaxosBlockError)}
    names |= {each.__name__ for each in transaction.Operation.__args__}
    assert names <= set(paxosblock.__all__)


def test_what_methods_take_and_return_comes_from_the_package() -> None:
    given = [getattr(paxosblock, name) for name in paxosblock.__all__]
    spoken = {
        name: kind.__qualname__
        for each in given
        if isinstance(each, type)
        for kind in each.__mro__
        if kind.__module__.startswith("paxosblock.")
        for name in annotated_with(kind)
    }
    assert {"BlockRecord", "Vote", "Node", "ClusterStatus", "AnyPath"} <= spoken.keys()
    assert not {name: where for name, where in spoken.items() if name not in paxosblock.__all__}


def annotated_with(kind: type) -> Iterator[str]:
    """Yield the names of our types with which public methods and fields of a class are annotated.

    Kinds of settings are left out: a setting is a number, a text or an enum.
    """
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | {
        name.name
        for node in imports
        if (node.module or "").startswith("paxosblock.")
        and node.module != "paxosblock.base.settings"
        for name in node.names
    }
    (body,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    for each in body:
        match each:
            case ast.FunctionDef(name, args, returns=returned) | ast.AsyncFunctionDef(
                name, args, returns=returned
            ) if not name.startswith("_"):
                every = (*args.posonlyargs, *args.args, *args.kwonlyargs)
                said = [*(each.annotation for each in every), returned]
            case ast.AnnAssign(ast.Name(name), annotation) if not (
                name.startswith("_") or "ClassVar" in ast.unparse(annotation)
            ):
                said = [annotation]
            case _:
                continue
        for node in (node for part in said if part is not None for node in ast.walk(part)):
            if isinstance(node, ast.Name) and node.id in ours:
                yield node.id


@pytest.mark.parametrize("name", paxosblock.__all__)
def test_each_name_of_the_package_can_be_had(name: str) -> None:
    assert getattr(paxosblock, name) is not None


def test_a_setting_is_a_keyword_of_a_client() -> None:
    with Client(NOBODY, retry_for_s=5, chunk_size="64KiB") as fs:
        assert (fs.config.retry_for_s, fs.config.chunk_size) == (5, 65536)


def test_sizes_and_times_have_one_name_in_python() -> None:
    for setting in settings_of(ClientConfig).values():
        unit = {"_bytes": "_size"}.get(setting.kind.suffix, setting.kind.suffix)
        assert setting.attribute.endswith(unit)
    for answer in (FileStatus, FlushReceipt, BlockReceipt, BlockLocation, WriteOptions, Truncate):
        for field in answer.__annotations__:
            assert not field.endswith(("_bytes", "_ms", "length")), field


def test_fsspec_takes_the_keywords_of_a_client() -> None:
    settings: dict[str, Any] = {"retry_for_s": 5, "chunk_size": "64KiB", "hung_after_s": "2s"}
    with Client(NOBODY, **settings) as fs:
        assert config_of(settings) == fs.config
    with pytest.raises(ConfigError, match="unknown storage option 'retry_for'; did you mean"):
        config_of({"retry_for": "5s"})


def test_keywords_stand_over_the_configuration() -> None:
    with Client(NOBODY, ClientConfig(window=7, replication=2), replication=1) as fs:
        assert (fs.config.window, fs.config.replication) == (7, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"retry_for": 5}, "unknown setting 'retry_for'; did you mean 'retry_for_s'?"),
        ({"retry_for_s": -1}, 'retry_for_s = -1: expected a duration, such as "60s" or "0s"'),
        ({"window": "many"}, "window = 'many': expected a whole number from 1 on"),
    ],
)
def test_a_keyword_that_makes_no_sense_is_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Client(NOBODY, **settings)
    assert str(refused.value) == said


async def in_a_thread(work: Callable[[Client], None]) -> None:
    def run(cluster: ShippedCluster, fs: AsyncClient) -> None:
        with Client([cluster.address], fs.config) as client:
            work(client)

    async with shipped_cluster(3) as (cluster, fs):
        await asyncio.to_thread(run, cluster, fs)


async def test_a_client_that_was_pickled_reads_and_writes_where_it_arrives() -> None:
    def work(fs: Client) -> None:
        with fs.create("/here") as out:
            out.write(b"written here")
        with pickle.loads(pickle.dumps(fs)) as there:
            assert there.open("/here").read() == b"written here"
            assert there.config == fs.config

    await in_a_thread(work)


def test_a_pickled_client_counts_as_near_to_the_machine_where_it_arrives() -> None:
    with Client(NOBODY) as fs, Client(NOBODY, host="rack7-node3") as named:
        sent = pickle.dumps((fs, named))
    # Another name of this machine: a process of its own whose `gethostname` differs.
    code = (
        "import pickle, socket, sys; socket.gethostname = lambda: 'worker';"
        "print(*(fs.config.host for fs in pickle.load(sys.stdin.buffer)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=True, env=os.environ
    )
    assert ran.stdout.decode().split() == ["worker", "rack7-node3"]
    assert socket.gethostname() != "worker"


async def test_async_with_opens_a_file_and_so_does_await() -> None:
    async with shipped_cluster(3) as (_, fs):
        async with fs.create("/a") as out:
            await out.write(b"one")
        async with await fs.append("/a") as out:
            await out.write(b" two")
        async with fs.open("/a") as file:
            assert await file.read() == b"one two"
        opened = await asyncio.create_task(fs.open("/a"))
        assert await opened.read(3) == b"one"
        await opened.close()


@pytest.mark.parametrize("mode", ["w", "wb", "a", "x", "r+"])
async def test_open_for_writing_says_who_writes(mode: str) -> None:
    async with shipped_cluster(3) as (_, fs):
        with pytest.raises(InvalidRequestError) as refused:
            await fs.open("/a", mode)
    assert str(refused.value) == (
        f"open('/a', '{mode}'): open() reads bytes (mode 'rb'); "
        "create() makes a file and writes it, append() goes on with one"
    )


async def test_a_time_out_for_one_call_is_that_of_this_call_alone() -> None:
    """No node listens: the call that has no time gives up, the one beside it goes on trying."""
    async with AsyncClient(NOBODY, retry_for_s=10 * PATIENCE_S) as fs:
        patient = asyncio.create_task(fs.stat("/a"))
        for call in (fs.within(0).stat("/a"), fs.within(0).blocks.get(BlockId(1))):
            with pytest.raises(UnavailableError):
                await asyncio.wait_for(call, PATIENCE_S)
        assert not patient.done()
        assert fs.config.retry_for_s == 10 * PATIENCE_S
        await fs.within(1).close()
        with pytest.raises(InvalidRequestError, match="closed"):
            await patient


def test_a_time_out_for_one_call_of_a_client_without_asyncio() -> None:
    with Client(NOBODY, retry_for_s=10 * PATIENCE_S) as fs:
        quick = fs.within(0)
        with pytest.raises(UnavailableError):
            quick.ls("/")
        with pytest.raises(UnavailableError):
            quick.open("/a")
        sent = pickle.loads(pickle.dumps(quick))
        assert (fs.config.retry_for_s, sent.config.retry_for_s) == (10 * PATIENCE_S, 0)
        with sent, pytest.raises(UnavailableError):
            sent.stat("/a")
        quick.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            fs.stat("/a")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"on_failure": "wait"}, "on_failure 'wait': write 'seal' or 'rebuild'"),
        (
            {"replace_on_failure": "maybe"},
            "replace_on_failure 'maybe': write 'disable', 'never', 'default' or 'always'",
        ),
    ],
)
def test_a_policy_that_does_not_exist_is_refused_when_it_is_made(
    words: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        WriteOptions(**words)
    assert str(refused.value) == said
    assert WriteOptions("rebuild", "never") == WriteOptions(OnFailure.REBUILD, Replacement.NEVER)
