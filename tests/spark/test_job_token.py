"""The token of a job in a cluster whose callers prove who they are: the driver asks for it, and
tasks come with it and with nothing else."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paxosblock import Client, LocalCluster, TokenRight
from paxosblock.api.capability import BlockKey
from paxosblock.api.reports import HEARTBEAT, Heartbeat
from paxosblock.api.status import SAFE_MODE, SafeModeAction, SafeModeRequest
from paxosblock.api.user_tokens import PREFIX, UserToken, seal
from paxosblock.cli.main import run
from paxosblock.client.spark.job_token import NO_TOKEN, PURPOSE, JobToken, job_token
from paxosblock.client.spark.jobs.compact import compact
from paxosblock.client.spark.jobs.deep_fsck import fsck
from paxosblock.client.spark.jobs.distcp import distcp
from paxosblock.client.spark.source import PlannedSplits
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError, ConfigError
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access
from tests.spark.token_driver import LIFE_S
from tests.waiting import wait_until

READ, WRITE = TokenRight.READ, TokenRight.WRITE
BOTH = READ | WRITE


class Tokened:
    """A cluster with certificates, and its audit log."""

    def __init__(self, cluster: LocalCluster, audit: Path, fs: Client) -> None:
        self.cluster, self.fs, self._audit = cluster, fs, audit
        self.config = cluster.client_config
        self.options = {"tlsCert": self.config.tls_cert, "tlsCa": self.config.tls_ca}

    def created(self, below: str, least: int = 1) -> list[str]:
        """The kind of proof of each caller that made a file below a directory, once at least
        so many are in the log, which is written five times a second."""

        def found() -> list[str]:
            lines = self._audit.read_text().splitlines()
            made = (line for line in lines if "cmd=create" in line and f"src={below}/" in line)
            proofs = [line.partition("(auth:")[2].partition(")")[0] for line in made]
            return proofs if len(proofs) >= least else []

        return wait_until(found, what=f"the line of a file below {below}")

    def words(self) -> set[int]:
        """The serials of the tokens of jobs that are good."""
        return {
            each.note.serial
            for each in self.fs.tokens()
            if each.note.purpose == PURPOSE and not each.revoked
        }

    def revoke(self) -> set[int]:
        """Let no token of a job be good any more; return which were."""
        gone = self.words()
        for serial in gone:
            self.fs.revoke_token(serial)
        return gone

    def write(self, spark: SparkSession, path: str) -> None:
        rows = spark.range(20).repartition(2).write.format("paxosblock").options(**self.options)
        rows.mode("append").save(f"{self.cluster.url}{path}")

    def read(self, spark: SparkSession, path: str) -> DataFrame:
        reader = spark.read.format("paxosblock").options(**self.options)
        return reader.schema("id bigint").load(f"{self.cluster.url}{path}")

    def put(self, path: str, text: str) -> None:
        with self.fs.create(path) as out:
            out.write(text.encode())


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokened]:
    folder = tmp_path_factory.mktemp("secure")
    audit = folder / "audit.log"
    settings = {"namenode": {"audit_file": str(audit)}}
    with (
        LocalCluster(1, 1, folder / "cluster", settings=settings, secure=True) as cluster,
        Client(cluster.url, cluster.client_config) as fs,
    ):
        yield Tokened(cluster, audit, fs)


def test_tasks_write_with_the_token_of_the_job(spark: SparkSession, secure: Tokened) -> None:
    secure.revoke()
    secure.write(spark, "/rows")
    assert secure.created("/rows/_temporary", 2) == ["TOKEN", "TOKEN"]
    (made,) = (each for each in secure.fs.tokens() if each.note.serial in secure.words())
    assert made.note.rights == BOTH
    assert made.note.until_s - time.time() > 24 * 3600 - 60, "it outlasts `jobTtl`, a day"
    secure.write(spark, "/rows")
    assert len(secure.words()) == 1, "the second job had the token of the first"
    assert secure.read(spark, "/rows").count() == 40


def test_tasks_read_with_the_token_of_the_job(spark: SparkSession, secure: Tokened) -> None:
    """A view is planned once, and keeps the token that it was planned with. Without a token its
    tasks would come with the certificate that the options name."""
    secure.write(spark, "/viewed")
    secure.read(spark, "/viewed").createOrReplaceTempView("viewed")
    assert spark.table("viewed").count() == 20
    secure.revoke()
    with pytest.raises(PySparkException, match="was revoked"):
        spark.table("viewed").collect()
    assert spark.catalog.dropTempView("viewed")
    assert secure.read(spark, "/viewed").count() == 20


def test_each_batch_of_a_stream_has_a_token_that_is_good(
    spark: SparkSession, secure: Tokened, tmp_path: Path
) -> None:
    """A token that was revoked is as good as one that has ended."""
    secure.fs.mkdirs("/in")
    secure.put("/in/a", "a\n")
    reader = spark.readStream.format("paxosblock").options(fileFormat="text", **secure.options)
    writer = reader.load(f"{secure.cluster.url}/in").writeStream.format("paxosblock")
    query = (
        writer.options(fileFormat="text", **secure.options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(f"{secure.cluster.url}/out")
    )
    try:
        query.processAllAvailable()
        gone = secure.revoke()
        assert len(gone) == 2, "one to read and one to write"
        secure.put("/in/b", "b\n")
        query.processAllAvailable()
        assert not secure.words() & gone
        assert len(secure.words()) == 2
    finally:
        query.stop()
    found = [entry.path for entry in secure.fs.ls("/out") if not entry.name.startswith("_")]
    assert sorted(secure.fs.open(path).read() for path in found) == [b"a\n", b"b\n"]
    assert {*secure.created("/out/_temporary")} == {"TOKEN"}


def test_tasks_of_the_jobs_of_ours_need_nothing_but_the_token(
    spark: SparkSession, secure: Tokened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither their environment nor an option names a certificate, or the cluster's authority."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"line\n")
    where, config = secure.cluster.addresses, secure.config
    copied = distcp(spark, str(tmp_path), where, "/copied", config=config)
    assert (copied.copied, copied.failures) == (2, ())
    assert fsck(spark, where, "/copied", config=config).blocks == 2
    (merged,) = compact(spark, where, "/copied", config=config).directories
    assert (merged.merged, merged.error) == (2, "")
    assert {*secure.created("/copied/_temporary")} == {"TOKEN"}
    # The same by the command, whose user has a token in a file, and the right that it has.
    token = tmp_path / "token"
    token.touch(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PAXOSBLOCK_CLIENT_TLS_CERT", raising=False)
        patch.setenv("PAXOSBLOCK_NAMENODES", ",".join(where))
        patch.setenv("PAXOSBLOCK_TLS_CA", config.tls_ca)
        patch.setenv("PAXOSBLOCK_TOKEN_FILE", str(token))
        token.write_text(secure.fs.issue_token(3600, BOTH).token)
        assert run(["spark", "distcp", str(tmp_path / "a.txt"), "/by-command/a"]) == 0
        token.write_text(secure.fs.issue_token(3600, READ).token)
        capsys.readouterr()
        assert run(["spark", "fsck", "--deep", "/by-command"]) == 1, "it has 1 of 3 replicas"
        assert "1 file, 1 block, 1 replica, 5 read" in capsys.readouterr().out
        assert run(["spark", "compact", "/copied", "--small", "1MiB"]) == 1
        assert "right write" in capsys.readouterr().err
    assert {*secure.created("/by-command/_temporary")} == {"TOKEN"}


def test_a_stolen_token_of_a_job_passes_for_no_node_and_no_operator(secure: Tokened) -> None:
    stolen = job_token(secure.fs, secure.config, BOTH)
    access = Access.of_client(stolen.settings(ClientConfig()))
    leader = secure.cluster.namenode.address
    with pytest.raises(AccessDeniedError, match="is of a DataNode alone"):
        control.call(leader, HEARTBEAT, Heartbeat("datanode-0", "run", (), 0), 10.0, access)
    with pytest.raises(AccessDeniedError, match="takes the right admin"):
        control.call(leader, SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER), 10.0, access)


@pytest.mark.plain("its driver proves nothing")
def test_where_the_driver_proves_nothing_there_is_no_token(
    spark: SparkSession, cluster: LocalCluster, fs: Client, folder: str
) -> None:
    spark.range(20).write.format("paxosblock").mode("append").save(folder)
    assert spark.read.format("paxosblock").load(folder).count() == 20
    assert fs.tokens() == ()
    assert NO_TOKEN.settings(fs.config) is fs.config


# -- without a cluster -----------------------------------------------------------------------------


def sealed(until_s: float) -> str:
    token = UserToken(1, 2, "ann", (), int(BOTH), int(until_s))
    return seal(token, BlockKey(1, b"k" * 32))


def test_a_task_has_the_token_and_none_of_what_its_machine_proves() -> None:
    own = ClientConfig(
        access_file="/a", tls_cert="/c", tls_key="/k", token_file="/t", retry_for_s=7.0
    )
    word = sealed(time.time() + 3600)
    found = JobToken(word, over_plain=True, tls_ca="/driver/ca").settings(own)
    assert found == ClientConfig(
        token=word, token_over_plain=True, tls_ca="/driver/ca", retry_for_s=7.0
    )
    ours = JobToken(word, tls_ca="/driver/ca").settings(ClientConfig(tls_ca="/ca"))
    assert (ours.tls_ca, ours.token_over_plain) == ("/ca", False)


def test_a_task_that_comes_too_late_is_told_what_to_do() -> None:
    with pytest.raises(AccessDeniedError, match=r"of ann, has ended: .*Plan it again") as error:
        JobToken(sealed(time.time() - 1)).settings(ClientConfig())
    assert "\n" not in str(error.value)
    assert PREFIX not in str(error.value)


def test_no_option_names_a_token_and_what_has_one_does_not_show_it() -> None:
    options = {"path": "/a", "namenodes": "127.0.0.1:9870"}
    with pytest.raises(ConfigError, match="unknown option"):
        parse_options({**options, "token": "pb1.secret"}, Use.READ)
    assert parse_options(options, Use.READ).token is NO_TOKEN
    planned = PlannedSplits((), JobToken("pb1.secret"))
    assert "pb1.secret" not in f"{planned!r} {planned.token!r}"
    assert pickle.loads(pickle.dumps(planned)).token == planned.token


def test_a_job_token_lasts_no_longer_than_a_token_may() -> None:
    with pytest.raises(ConfigError, match=r"job_token = 8d: .*at most 7d"):
        ClientConfig(job_token_s=8 * 24 * 3600.0)


# -- all that Spark shows --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stream_outlives_its_tokens_and_nothing_that_spark_shows_has_one(
    repository: Path, tmp_path: Path
) -> None:
    """Tokens of a minute; the driver goes on until the first has ended, and a batch after it."""
    settings = {"namenode": {"audit_file": str(tmp_path / "audit.log")}}
    with LocalCluster(1, 1, tmp_path / "cluster", settings=settings, secure=True) as cluster:
        words = tokens_of_driver(cluster, repository, tmp_path)
        logs = {log.name: log.read_bytes() for log in (tmp_path / "cluster").rglob("*.log")}
    assert "streamed as long as the first token was good" in (tmp_path / "stdout").read_text()
    assert len(words) >= 5
    shown = logs | {
        os.fspath(file.relative_to(tmp_path)): file.read_bytes()
        for file in tmp_path.rglob("*")
        if file.is_file() and (tmp_path / "cluster") not in file.parents
    }
    shown |= {
        f"{name}, unpacked": gzip.decompress(text)
        for name, text in shown.items()
        if text[:2] == b"\x1f\x8b"
    }
    for part in ("events", "page-", "stderr", "audit", "checkpoint"):
        assert any(part in name for name in shown), part
    assert all(word.startswith(f"{PREFIX}l") for word in words), "so they all begin"
    secrets = [f"{PREFIX}l".encode(), *(word.encode() for word in words)]
    assert {name for name, text in shown.items() if any(each in text for each in secrets)} == set()


def tokens_of_driver(cluster: LocalCluster, repository: Path, folder: Path) -> set[str]:
    """Run `token_driver.py` to its end; return the tokens that it had meanwhile: who asks for one
    as it does gets the same."""
    config = cluster.client_config
    here = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PAXOSBLOCK_CLIENT_JOB_TOKEN": f"{LIFE_S}s",
    }
    words: set[str] = set()
    driver = [sys.executable, "-m", "tests.spark.token_driver"]
    driver += [cluster.url, config.tls_cert, config.tls_ca, os.fspath(folder)]
    kinds = ((LIFE_S, READ), (LIFE_S, BOTH), (2 * 24 * 3600, BOTH))
    with (
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
        Client(cluster.url, config) as me,
        subprocess.Popen(
            driver, cwd=repository, env=os.environ | here, stdout=out, stderr=err
        ) as job,
    ):

        def has_ended() -> bool:
            for for_s, rights in kinds:
                words.add(me.issue_token(for_s, rights, purpose=PURPOSE, again=True).token)
            return job.poll() is not None

        # The start of Spark alone takes minutes on a busy machine.
        wait_until(has_ended, timeout_s=500)
    lines = (folder / "stderr").read_text().splitlines()
    telling = (line for line in lines if " DEBUG " not in line and " INFO " not in line)
    assert job.returncode == 0, "\n".join(telling)[-10_000:]
    return words
