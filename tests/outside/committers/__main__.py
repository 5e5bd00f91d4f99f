"""Kills drivers of Spark that write a table, through each committer, and tells what is seen:

    python -m tests.outside.committers [--kills 10] [--seed 1] [webhdfs] [s3a-magic] ...

A job adds rows to a table, or replaces it. A proxy before the NameNode sees the calls that change
something; at one of them, another one each time from the first to the last, the driver is killed.
Then the job runs again in a new driver. Needs Java, Maven and the registries: 690 MB of jars once.
Exit code 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow.lib
import pyarrow.parquet as pq

from benchmarks.spark_s3a import jars_of_s3a, settings_of_s3a
from benchmarks.suite import SkipError
from paxosblock import Client, LocalCluster
from paxosblock.client.spark.sink import SUCCESS
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import current_user
from tests.calls_proxy import CallsProxy, served
from tests.gateway.gateways import S3, RunningGateway, gateway_of
from tests.gateway.s3_clients import s3_client
from tests.outside.committers.committers import COMMITTERS, Committer, Door
from tests.outside.committers.jobs import Driver, Job, driver
from tests.outside.committers.verdicts import Killed, Seen, broken
from tests.waiting import wait_until

ROWS: Final = 4000
BUCKET: Final = "tables"
APPEND: Final = "append"
OVERWRITE: Final = "overwrite"
OPEN: Final = ("01", "08")
"""States of a connection in the kernel's table: both ends are open, or ours alone."""
CHANGES: Final = frozenset(
    {"close_file", "create", "delete", "mkdirs", "rename", "set_attributes", "transact"}
)
"""Methods of the NameNode that are steps of a job."""


class Killer:
    """Hears the calls to the NameNode, and kills a driver at one of them."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._step: int | None = None
        self.steps: list[str] = []
        """Methods called since `watch`."""
        self.under_way = 0
        """Calls that are not answered yet."""

    def watch(self, driver: Driver, step: int | None = None) -> None:
        """Count steps from 0 on, and kill the driver at that one."""
        self._driver, self._step, self.steps = driver, step, []

    async def call(self, method: str) -> bool:
        """Hear that a call came; it goes on."""
        if method in CHANGES:
            self.under_way += 1
            if self._driver is not None and len(self.steps) == self._step:
                self._driver.kill()
            self.steps.append(method)
        return True

    async def answer(self, method: str) -> bool:
        """Hear that an answer came."""
        self.under_way -= method in CHANGES
        return True


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster whose calls are heard, and a gateway of it."""

    name: str
    folder: Path
    gateway: RunningGateway
    address: str
    fs: Client
    killer: Killer

    @property
    def committer(self) -> Committer:
        """Return what is tried."""
        return COMMITTERS[self.name]

    @property
    def settings(self) -> dict[str, str]:
        """Return those of Spark."""
        of_s3a = settings_of_s3a(self.gateway.s3_url, current_user(), OPEN_SECRET)
        return of_s3a | dict(self.committer.settings)

    def table(self, name: str) -> str:
        """Return the URL of a table in the bucket."""
        match self.committer.door:
            case Door.WEBHDFS:
                return f"webhdfs://{self.gateway.address}/{BUCKET}/{name}"
            case Door.S3A:
                return f"s3a://{BUCKET}/{name}"
            case Door.OWN:
                return f"paxosblock://{self.address}/{BUCKET}/{name}"

    def settled(self) -> None:
        """Wait until nothing that a dead driver asked for is under way."""
        wait_until(self._is_quiet, what="the requests of the driver to end")

    def _is_quiet(self) -> bool:
        return not self.killer.under_way and not _connections(self.gateway)

    def seen(self, name: str) -> Seen:
        """Look at a table."""
        place, found, unreadable, hidden = f"/{BUCKET}/{name}", Counter[int](), [], set()
        for entry in self.fs.ls(place) if self.fs.exists(place) else []:
            if entry.name.startswith(("_", ".")):
                hidden.add(entry.name)
                continue
            with self.fs.open(entry.path) as file:
                content = file.read()
            try:
                found.update(pq.read_table(io.BytesIO(content)).column("id").to_pylist())
            except pyarrow.lib.ArrowInvalid:
                unreadable.append(entry.name)
        left = tuple(sorted(hidden - {SUCCESS}))
        return Seen(found, tuple(unreadable), SUCCESS in hidden, left, self._uploads())

    def _uploads(self) -> int:
        client = s3_client(self.gateway.s3_url)
        with contextlib.closing(client):
            return len(client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()))


def _connections(gateway: RunningGateway) -> int:
    """Count the open connections to a gateway."""
    ports = {int(each.rpartition(":")[2]) for each in (gateway.address, gateway.s3_url)}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state = line.split()[:4]
        found += int(local.rpartition(":")[2], 16) in ports and state in OPEN
    return found


def steps_of(seed: int, count: int, kills: int) -> list[int]:
    """Return steps to kill at: one by chance of each of `kills` equal parts of `count` steps."""
    chance = random.Random(seed)
    bounds = [count * number // kills for number in range(kills + 1)]
    return [chance.randrange(low, max(low + 1, high)) for low, high in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Moment:
    """The call at which to kill the driver of a job."""

    mode: str
    step: int


class Kills:
    """Jobs whose drivers are killed, one after the other."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stack = contextlib.ExitStack()
        self._driver = self._start()

    def _start(self) -> Driver:
        scene = self._scene
        return self._stack.enter_context(driver(scene.settings, scene.folder / "driver.log"))

    def close(self) -> None:
        """End the driver."""
        self._stack.close()

    def moments(self, count: int, seed: int) -> list[Moment]:
        """Return so many moments, half of them of jobs that add to a table, by what such jobs call
        when nobody kills them."""
        found = []
        for mode, of_mode in (APPEND, (count + 1) // 2), (OVERWRITE, count // 2):
            for job in self._jobs(f"whole-{mode}", mode):
                self._scene.killer.watch(self._driver)
                self._do(job)
            steps = steps_of(seed, len(self._scene.killer.steps), of_mode)
            found += [Moment(mode, step) for step in steps]
        return found

    def kill(self, name: str, moment: Moment) -> tuple[Killed, str]:
        """Kill the driver of a job, and let another one do the job again; return what was seen, and
        the call at which it was killed."""
        scene = self._scene
        old, new = self._jobs(name, moment.mode)
        self._do(old)
        scene.killer.watch(self._driver, moment.step)
        self._driver.do(new)
        self.close()  # a job may take a step less than another one, and have ended
        steps = scene.killer.steps[: moment.step + 1]
        scene.settled()
        before = scene.seen(name)
        self._driver = self._start()
        self._do(new)
        killed = Killed(moment.mode == OVERWRITE, old.ids, new.ids, before, scene.seen(name))
        return killed, f"{moment.mode}, killed at call {len(steps)}, {steps[-1]}"

    def _do(self, job: Job) -> None:
        assert self._driver.do(job), "the driver has ended: its log tells why"

    def _jobs(self, name: str, mode: str) -> tuple[Job, Job]:
        """Return the job that makes a table, and the one whose driver is killed."""
        url = self._scene.table(name)
        return Job(url, OVERWRITE, 0, ROWS), Job(url, mode, ROWS, ROWS)


def tried(scene: Scene, count: int, seed: int) -> bool:
    """Kill so many drivers, and tell what was seen; True if every promise was kept."""
    kills, complaints, shares = Kills(scene), [], Counter[str]()
    with contextlib.closing(kills):
        for number, moment in enumerate(kills.moments(count, seed)):
            killed, at = kills.kill(str(number), moment)
            told = _words(killed)
            _tell(f"{scene.name}: {at}: {told}")
            of = scene.committer
            found = list(broken(killed, at_once=of.at_once, adopts=of.adopts))
            for each in found:
                _tell(f"  {each}")
            complaints += found
            shares[f"{moment.mode}: {_seen(killed)}"] += 1
    for what, times in sorted(shares.items()):
        _tell(f"{scene.name}: {times} x {what}")
    return not complaints


def _seen(killed: Killed) -> str:
    old, new = killed.before.share(killed.old), killed.before.share(killed.new)
    return f"{new} of the job, {old} of what was there"


def _words(killed: Killed) -> str:
    before, after = killed.before, killed.after
    said = [_seen(killed), *before.hidden, f"{before.uploads} uploads", "run again"]
    said += [f"{after.share(killed.new)} of the job", *after.hidden, f"{after.uploads} uploads"]
    return ", ".join(said)


async def compared(name: str, count: int, seed: int) -> bool:
    """Try one committer on a cluster of its own."""
    killer = Killer()

    def run(cluster: LocalCluster, folder: Path, address: str) -> bool:
        with (
            gateway_of(cluster, folder, *S3, namenodes=address) as gateway,
            Client(cluster.url) as fs,
        ):
            fs.mkdirs(f"/{BUCKET}")
            return tried(Scene(name, folder, gateway, address, fs, killer), count, seed)

    with tempfile.TemporaryDirectory(prefix="paxosblock-") as scratch, LocalCluster() as cluster:
        proxy = CallsProxy(cluster.addresses[0], call=killer.call, answer=killer.answer)
        async with served(proxy.serve) as address:
            return await asyncio.to_thread(run, cluster, Path(scratch), address)


def main() -> int:
    """Try the committers that are named; return the exit code."""
    words = argparse.ArgumentParser(prog="python -m tests.outside.committers")
    words.add_argument("committers", nargs="*", help=f"some of {', '.join(COMMITTERS)}; else all")
    words.add_argument("--kills", type=int, default=10, help="kills for each")
    words.add_argument("--seed", type=int, default=1, help="chooses the moments")
    chosen = words.parse_args()
    if unknown := set(chosen.committers) - COMMITTERS.keys():
        words.error(f"no committer is named {sorted(unknown)[0]!r}")
    try:
        jars_of_s3a()
    except SkipError as error:
        sys.exit(str(error))
    names = chosen.committers or COMMITTERS
    kept = [asyncio.run(compared(name, chosen.kills, chosen.seed)) for name in names]
    return 0 if all(kept) else 1


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
