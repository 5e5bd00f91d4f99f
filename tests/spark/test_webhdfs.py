"""Hadoop's own shell and Spark's own formats over `webhdfs://`, by the jars that Spark brings."""

from __future__ import annotations

import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway, content, gateway_of, quiet_gateway_of

pytestmark = pytest.mark.plain("its subject is the wire of WebHDFS, and a gateway speaks no TLS")

Shell = Callable[[str], tuple[int, str]]
DATA = os.urandom(700_000)


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway of the cluster."""
    with quiet_gateway_of(cluster, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    """The same cluster as our own client sees it."""
    with Client(cluster.url) as fs:
        yield fs


@pytest.fixture
def home(fs: Client) -> str:
    """A directory that only this test uses."""
    path = f"/webhdfs-{uuid.uuid4().hex}"
    fs.mkdirs(path)
    return path


@pytest.fixture
def shell(spark: SparkSession, gateway: RunningGateway) -> Shell:
    """`hdfs dfs` in Spark's JVM at the gateway."""
    return shell_at(spark, {"fs.defaultFS": f"webhdfs://{gateway.address}"})


@pytest.fixture
def our_shell(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """`paxosblock fs` in this process."""
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))

    def our(line: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run(["fs", *shlex.split(line)])
        told = capfd.readouterr()
        return code, told.out + told.err

    return our


def shell_at(spark: SparkSession, settings_of_hadoop: dict[str, str]) -> Shell:
    """`hdfs dfs` in Spark's JVM: its exit code, and what it prints."""
    jvm: Any = spark._jvm
    session: Any = spark._jsc

    def run(line: str) -> tuple[int, str]:
        words = shlex.split(line)
        java: Any = spark.sparkContext._gateway
        arguments = java.new_array(jvm.java.lang.String, len(words))
        for place, word in enumerate(words):
            arguments[place] = word
        settings = jvm.org.apache.hadoop.conf.Configuration(session.hadoopConfiguration())
        for name, value in settings_of_hadoop.items():
            settings.set(name, value)
        system, printed = jvm.java.lang.System, jvm.java.io.ByteArrayOutputStream()
        out, err = system.out, system.err
        stream = jvm.java.io.PrintStream(printed)
        system.setOut(stream)
        system.setErr(stream)
        try:
            code = jvm.org.apache.hadoop.fs.FsShell(settings).run(arguments)
        finally:
            system.setOut(out)
            system.setErr(err)
        return code, str(printed.toString("UTF-8"))

    return run


def test_the_shell_of_hadoop_writes_reads_and_names_files(
    shell: Shell, fs: Client, home: str, tmp_path: Path
) -> None:
    local, got = tmp_path / "local", tmp_path / "got"
    local.write_bytes(DATA)
    for line in (
        f"-mkdir -p {home}/d/e",
        f"-put {local} {home}/d/f",
        f"-put -f {local} {home}/d/f",
        f"-put -d {local} {home}/d/direct",
        f"-get {home}/d/f {got}",
        f"-appendToFile {local} {home}/d/f",
        f"-cp -p {home}/d/f {home}/d/copy",
        f"-mv {home}/d/copy {home}/d/e",
        f"-touchz {home}/d/empty",
        f"-setrep 2 {home}/d/f",
        f"-chmod 640 {home}/d/f",
        f"-chown ann:dev {home}/d/f",
        f"-test -e {home}/d/f",
        f"-mkdir '{home}/ünö +%41'",
        f"-rm {home}/d/direct",
    ):
        assert shell(line)[0] == 0, (line, shell(line))
    assert got.read_bytes() == DATA
    assert content(fs, f"{home}/d/f") == content(fs, f"{home}/d/e/copy") == DATA + DATA
    status = fs.stat(f"{home}/d/f")
    assert (status.replication, status.permission, status.owner) == (2, 0o640, "ann")
    assert [each.name for each in fs.ls(home)] == ["d", "ünö +%41"]
    code, listed = shell(f"-ls {home}/d")
    assert code == 0
    shown = [re.split(r" +", line, maxsplit=7) for line in listed.splitlines()]
    assert shown[0] == ["Found", "3", "items"]
    assert [(line[0], line[1], line[2], line[4], line[7]) for line in shown[1:]] == [
        ("drwxr-xr-x", "-", current_user(), "0", f"{home}/d/e"),
        ("-rw-r--r--", "3", current_user(), "0", f"{home}/d/empty"),
        ("-rw-r-----", "2", "ann", str(2 * len(DATA)), f"{home}/d/f"),
    ]
    assert shell(f"-ls -R {home}")[1].count("\n") == 6
    assert shell(f"-find {home} -name copy")[1] == f"{home}/d/e/copy\n"
    assert shell(f"-stat '%r %a %u' {home}/d/f")[1] == "2 640 ann\n"
    assert shell(f"-du -s {home}")[1].split()[0] == str(4 * len(DATA))
    assert shell(f"-count {home}")[1].split()[:3] == ["4", "3", str(4 * len(DATA))]
    assert shell(f"-rm -r -skipTrash {home}/d")[0] == 0
    assert not fs.exists(f"{home}/d")


def test_the_shell_of_hadoop_sees_what_belongs_to_a_file(
    shell: Shell, fs: Client, home: str
) -> None:
    for name in "abc":
        with fs.create(f"{home}/{name}") as out:
            out.write(name.encode() * 1000)
    path = f"{home}/a"
    for line in (
        f"-setfattr -n user.origin -v web-3 {path}",
        f"-setfacl -m user:bob:r-x {path}",
        f"-concat {path} {home}/b {home}/c",
        f"-truncate 1500 {path}",
        "-expunge",
    ):
        assert shell(line)[0] == 0, (line, shell(line))
    assert content(fs, path) == b"a" * 1000 + b"b" * 500
    assert shell(f"-getfattr -d {path}") == (0, f'# file: {path}\nuser.origin="web-3"\n')
    assert "\nuser:bob:r-x\n" in shell(f"-getfacl {path}")[1]
    assert shell(f"-ls {path}")[1].startswith("-rw-r-xr--+")
    wanted = fs.checksum(path)
    assert shell(f"-checksum {path}") == (0, f"{path}\t{wanted.algorithm}\t{wanted.text}\n")
    assert str(fs.room().size) in shell("-df /")[1].split()


def test_the_shell_of_hadoop_hears_why_not(
    shell: Shell, fs: Client, home: str, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x")
    fs.mkdirs(f"{home}/d/e")
    fs.create(f"{home}/f").close()
    assert shell(f"-put {local} {home}/f") == (1, f"put: `{home}/f': File exists\n")
    assert shell(f"-cat {home}/no") == (1, f"cat: `{home}/no': No such file or directory\n")
    assert shell(f"-mv {home}/no {home}/d")[1] == f"mv: `{home}/no': No such file or directory\n"
    assert shell(f"-rmdir {home}/d") == (1, f"rmdir: `{home}/d': Directory is not empty\n")
    assert shell(f"-test -e {home}/no")[0] == 1
    assert shell(f"-mkdir {home}/f/x")[0] == 1


LISTS = (
    "-setfacl -m user:bob:r-x,group:dev:rwx,mask::r-- {d}/a",
    "-setfacl -m default:user:eve:rwx,default:group:ops:r-x {d}",
    "-getfacl -R {d}",
    "-setfacl -R -m user:cy:rw-,default:user:cy:rwx {d}",
    "-getfacl -R {d}",
    "-setfacl -x user:bob {d}/a",
    "-getfacl {d}/a",
    "-setfacl --set user::rw-,user:zed:r--,group::---,other::--- {d}/a",
    "-setfacl --set user::rwx,group::r-x,other::---,default:user::rwx,default:group::r--,"
    "default:other::--- {d}/e",
    "-chmod 1751 {d}/e",
    "-getfacl -R {d}",
    "-setfacl -k {d}",
    "-getfacl {d}",
    "-setfacl -R -k {d}",
    "-setfacl -R -b {d}",
    "-getfacl -R {d}",
    "-setfacl -R -x user:eve {d}",
    "-setfacl -R --set user::rwx,user:q:r-x,group::r-x,other::--x {d}",
    "-setfacl -x default:user:none {d}/e",
    "-setfacl -m group::rwx,other::r-x {d}/a",
    "-getfacl -R {d}",
)
"""Changes of access control lists, and looks at them."""
NO_LISTS = (
    "-setfacl",
    "-setfacl {d}/a",
    "-setfacl -b {d}/a {d}/e",
    "-setfacl -b -k {d}/a",
    "-setfacl -b -m user:a:rwx {d}/a",
    "-setfacl --set -x user:a {d}/a",
    "-setfacl -m",
    "-setfacl -m {d}/a",
    "-setfacl -m , {d}/a",
    "-setfacl -m user:a {d}/a",
    "-setfacl -m :: {d}/a",
    "-setfacl -m default: {d}/a",
    "-setfacl -m owner:a:rwx {d}/a",
    "-setfacl -m user:a:rxw {d}/a",
    "-setfacl -m user:a:rwx:b {d}/a",
    "-setfacl -x user:a:rwx {d}/a",
    "-setfacl -x mask: {d}/a",
    "-setfacl -x group:: {d}/a",
    "-setfacl -m default:user:bob:rwx {d}/a",
    "-setfacl -m user:a:rwx,user:a:r-- {d}/a",
    "-setfacl --set user:a:rwx {d}/a",
    "-getfacl",
    "-getfacl {d}/a {d}/e",
)
"""Lines that Hadoop's shell or a NameNode refuses."""


def test_lists_are_changed_shown_and_refused_as_by_the_shell_of_hadoop(
    shell: Shell, our_shell: Shell, fs: Client, home: str
) -> None:
    """Each line in Hadoop's shell on one directory, and in ours on another one that is alike."""
    theirs, ours = f"{home}/theirs/d", f"{home}/ours/d"
    for folder in (theirs, ours):
        fs.mkdirs(f"{folder}/e")
        for name in ("a", "e/f"):
            with fs.create(f"{folder}/{name}") as out:
                out.write(b"x")

    for line in LISTS:
        code, told = our_shell(line.format(d=ours))
        assert (code, told.replace(ours, theirs)) == shell(line.format(d=theirs)), line
    for line in NO_LISTS:
        (code, told), (our_code, our_words) = (
            shell(line.format(d=theirs)),
            our_shell(line.format(d=ours)),
        )
        assert code, line
        assert our_code, line
        why = told.splitlines()[0].removeprefix("-").partition(": ")[2]
        # We name the path first; and Hadoop's shell goes on with the usage of everything.
        assert why.partition(" Path: ")[0] in our_words, line
        assert our_words.count("\n") == 1, line


def both(one: str, two: str) -> dict[str, str]:
    """Hadoop's settings for two gateways under one name, as it has them for NameNodes."""
    name = f"gw{uuid.uuid4().hex[:8]}"
    provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
    return {
        "fs.defaultFS": f"webhdfs://{name}",
        "dfs.nameservices": name,
        f"dfs.ha.namenodes.{name}": "n1,n2",
        f"dfs.namenode.http-address.{name}.n1": one,
        f"dfs.namenode.http-address.{name}.n2": two,
        f"dfs.client.failover.proxy.provider.{name}": provider,
        "dfs.http.client.failover.sleep.base.millis": "1",
    }


def test_the_client_of_hadoop_goes_on_with_another_gateway(
    spark: SparkSession, cluster: LocalCluster, home: str, fs: Client, tmp_path: Path
) -> None:
    """As with NameNodes of HDFS, of which one is down."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with gateway_of(cluster, folders[0]) as one, gateway_of(cluster, folders[1]) as two:
        shell = shell_at(spark, both(one.address, two.address))
        assert shell(f"-mkdir {home}/d")[0] == 0
        one.kill()
        local = tmp_path / "local"
        local.write_bytes(DATA)
        assert shell(f"-put {local} {home}/d/f") == (0, "")
        assert content(fs, f"{home}/d/f") == DATA


@contextmanager
def two_gateways(
    spark: SparkSession, cluster: LocalCluster, folder: Path
) -> Iterator[tuple[RunningGateway, Any, dict[str, str]]]:
    """The first of two gateways, Hadoop's file system at both, and its settings."""
    folders = [folder / name for name in ("one", "two")]
    for each in folders:
        each.mkdir()
    jvm: Any = spark._jvm
    with gateway_of(cluster, folders[0]) as one, gateway_of(cluster, folders[1]) as two:
        settings = both(one.address, two.address)
        conf = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings.items():
            conf.set(name, value)
        root = jvm.java.net.URI(settings["fs.defaultFS"])
        hadoop = jvm.org.apache.hadoop.fs.FileSystem.newInstance(root, conf)
        try:
            yield one, hadoop, settings
        finally:
            hadoop.close()


def test_a_stream_of_hadoop_goes_on_at_another_gateway_when_its_own_dies(
    spark: SparkSession, cluster: LocalCluster, home: str, fs: Client, tmp_path: Path
) -> None:
    """The answer that was cut is asked for again, from where it ended, at the next address."""
    data = os.urandom(32 << 20)  # more than what is on its way, in the buffers of both systems
    with fs.create(f"{home}/f") as out:
        out.write(data)
    with two_gateways(spark, cluster, tmp_path) as (one, hadoop, settings):
        jvm: Any = spark._jvm
        stream = hadoop.open(jvm.org.apache.hadoop.fs.Path(f"{home}/f"))
        read = jvm.org.apache.commons.io.IOUtils.toByteArray
        begun = bytes(read(stream, 1 << 20))
        one.kill()
        rest = bytes(read(stream, len(data) - len(begun)))
        stream.close()
        assert begun + rest == data
        late = shell_at(spark, settings)  # the first is dead from the start
        assert late(f"-test -e {home}/f") == (0, "")


def test_a_file_whose_gateway_dies_is_refused_to_its_writer_and_written_again_at_another(
    spark: SparkSession, cluster: LocalCluster, home: str, fs: Client, tmp_path: Path
) -> None:
    """Hadoop's client repeats no write: it must tell that the file is not complete."""
    with two_gateways(spark, cluster, tmp_path) as (one, hadoop, settings):
        jvm: Any = spark._jvm
        stream = hadoop.create(jvm.org.apache.hadoop.fs.Path(f"{home}/f"))
        stream.write(DATA)
        one.kill()

        def go_on() -> None:
            for _ in range(64):
                stream.write(DATA)
            stream.close()

        with pytest.raises(Py4JJavaError):  # in the middle, or when it is closed
            go_on()
        local = tmp_path / "local"
        local.write_bytes(DATA)
        assert shell_at(spark, settings)(f"-put -f {local} {home}/f") == (0, "")
        assert content(fs, f"{home}/f") == DATA


def test_spark_writes_and_reads_its_own_formats(
    spark: SparkSession, gateway: RunningGateway, fs: Client, home: str
) -> None:
    url = f"webhdfs://{gateway.address}{home}/table"
    for rows in (1_000, 500):
        spark.range(rows).write.mode("overwrite").parquet(url)
        assert spark.read.parquet(url).count() == rows
    assert fs.exists(f"{home}/table/_SUCCESS")
    spark.range(5).write.mode("append").parquet(url)
    assert spark.read.parquet(url).count() == 505
