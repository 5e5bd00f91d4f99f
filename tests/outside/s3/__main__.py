"""Runs versitygw's suite for servers of S3 at a gateway and at versitygw itself, and compares:

    python -m tests.outside.s3

What passes there must pass here, but what `differences.py` names with a reason. Needs Go and its
module proxy, once. Exit code 1 if a test differs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.s3_servers import KEY_ID, SECRET, VERSITYGW, Versitygw
from benchmarks.suite import SkipError
from paxosblock import Client, LocalCluster
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import current_user
from tests.gateway.gateways import S3, gateway_of
from tests.make_api import REPOSITORY
from tests.outside.comparison import Comparison, Suite
from tests.outside.s3.differences import BY_TIME, KINDS, VERSITYGW_TESTS
from tests.outside.verdicts import FAILED, PASSED, SKIPPED, Verdict, Verdicts

FOLDER: Final = REPOSITORY / "build" / "s3-suites"
LONGEST_S: Final = 120.0
"""Seconds that one test may take."""
OF_OTHERS: Final = ("IAM", "S3IAM", "Versioning_", "WebsiteHosting")
"""Beginnings of the names of tests for which versitygw must be started otherwise."""
_NAMED: Final = re.compile(r"^ +(\w+) +Runs \1\b", re.MULTILINE)
_ENDED: Final = re.compile(r"(PASS|FAIL|SKIP) +(?:\x1b\[[0-9;]*m)*\w+(?:: )?(.*)")
_WORDS: Final = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server of S3, and a key by which one may do everything."""

    url: str
    key_id: str
    secret: str
    clear: Callable[[], None]
    """Deletes all buckets, with what is in them."""


def each_test(server: S3Server, folder: Path) -> Verdicts:
    """Run each test that versitygw has for itself, alone: one that gets an answer which it does not
    expect may end its process, or leave a bucket."""
    program = folder / "versitygw"  # some of the tests run it by this name
    program.symlink_to(VERSITYGW.fetched() / "versitygw")
    environment = {name: at for name, at in os.environ.items() if not name.startswith("AWS_")}

    def said(*words: str) -> str:
        command = [str(program), "test", *words]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                check=False,
                timeout=LONGEST_S,
            )
        except subprocess.TimeoutExpired:
            return f"FAIL {words[-1]}: it did not end"
        return done.stdout.decode(errors="replace")

    key = ["--access", server.key_id, "--secret", server.secret, "--endpoint", server.url]
    found: Verdicts = {}
    for name in sorted(_NAMED.findall(said("--help"))):
        if not name.startswith(OF_OTHERS):
            found[name] = read_end(said(*key, name))
            if found[name].word != PASSED:
                server.clear()
    return found


def read_end(text: str) -> Verdict:
    """Read what versitygw prints of one test. The last word counts; without any it failed."""
    if not (ends := _ENDED.findall(text)):
        return Verdict(FAILED, " ".join(text[-300:].split()))
    word, why = ends[-1]
    why = why.replace("\t", " ")
    kinds = (each.word for each in KINDS if word == "FAIL" and re.search(each.pattern, why))
    return Verdict(next(kinds, _WORDS[word]), why)


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[S3Server]:
    """Give the door of S3 of a gateway."""
    with LocalCluster(path=folder / "cluster") as cluster:
        with Client(cluster.url) as fs:
            fs.set_permission("/", 0o777)
        (folder / "gateway").mkdir()

        def clear() -> None:
            with Client(cluster.url) as fs:
                for each in fs.ls("/"):
                    if not each.name.startswith("."):
                        fs.delete(each.path, recursive=True)

        with gateway_of(cluster, folder / "gateway", *S3) as running:
            yield S3Server(running.s3_url, current_user(), OPEN_SECRET, clear)


@contextlib.contextmanager
def versitygw(folder: Path) -> Iterator[S3Server]:
    """Give versitygw on a folder."""
    (folder / "server").mkdir()
    with Versitygw(folder / "server") as server:
        url = server.serve()

        def clear() -> None:
            for each in server.root.iterdir():
                if each.is_dir():
                    shutil.rmtree(each)

        yield S3Server(url, KEY_ID, SECRET, clear)


def build() -> None:
    """Build versitygw, unless it is there."""
    try:
        VERSITYGW.fetched()
    except SkipError as reason:
        sys.exit(str(reason))


COMPARISON: Final = Comparison(
    "tests.outside.s3",
    {"versitygw": Suite(each_test, VERSITYGW_TESTS, frozenset(each.word for each in KINDS))},
    ("gateway", gateway),
    ("versitygw", versitygw),
    FOLDER,
    BY_TIME,
)

if __name__ == "__main__":
    sys.exit(COMPARISON.run(build))
