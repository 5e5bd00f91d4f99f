"""Programs at two gateways make, replace, read and delete the same few objects, with conditions and
without, while NameNodes and a gateway are killed: one order explains all that they are told.

An object is a register: its body is a value that is written once, and its ETag stands for that.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from paxosblock import LocalCluster
from tests.gateway.s3_clients import code_of, s3_client
from tests.raft.linearizability import ABSENT, Operation, is_linearizable
from tests.waiting import wait_until

PROGRAMS: Final = 5
KEYS: Final = ("a", "d/b")
STEPS: Final = 12
"""So many operations each program finishes before a fault, and again after the last one."""
BUCKET: Final = "histories"


@dataclass
class History:
    """The operations on each key, and the value for which each ETag stands."""

    operations: defaultdict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    values: dict[str, str] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """The keys whose history no order explains."""
        return [key for key, each in self.operations.items() if not is_linearizable(each)]

    def known(self) -> list[Operation]:
        """All operations that were answered."""
        return [each for key in self.operations.values() for each in key if each.answered]


class Program:
    """Asks for one thing after the other, at one of the gateways each time."""

    def __init__(self, number: int, gateways: Sequence[Any], history: History) -> None:
        self.finished = 0
        self._gateways, self._history = gateways, history
        self._random = random.Random(number)
        self._values = (f"{number}-{count}" for count in itertools.count())
        self._tags: dict[str, str] = {}
        """The last ETag that it was told for each key."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop`."""
        while not stop.is_set():
            self._step(self._random.choice(KEYS))
            self.finished += 1

    def _step(self, key: str) -> None:
        client = self._random.choice(self._gateways)
        f = {"Bucket": BUCKET, "Key": key}
        tag = self._tags.get(key, "")
        match self._random.choice(("get", "get", "head", "put", "new", "match", "delete", "drop")):
            case "put":
                value = next(self._values)
                self._change(
                    client.put_object, key, {**f, "Body": value}, Operation("write", value, 0, None)
                )
            case "new":
                value = next(self._values)
                asked = {**f, "Body": value, "IfNoneMatch": "*"}
                self._change(
                    client.put_object, key, asked, Operation("swap", value, 0, None, ABSENT)
                )
            case "match" if tag:
                value = next(self._values)
                asked = {**f, "Body": value, "IfMatch": tag}
                found = self._history.values[tag]
                self._change(
                    client.put_object, key, asked, Operation("swap", value, 0, None, found)
                )
            case "delete":
                self._change(client.delete_object, key, f, Operation("write", ABSENT, 0, None))
            case "drop" if tag:
                asked = {**f, "IfMatch": tag}
                found = self._history.values[tag]
                self._change(
                    client.delete_object, key, asked, Operation("swap", ABSENT, 0, None, found)
                )
            case "head":
                self._look(client.head_object, key, f)
            case _:
                self._look(client.get_object, key, f)

    def _change(self, call: Any, key: str, asked: dict[str, str], meant: Operation) -> None:
        """Ask for a change, and note what was told of it."""
        made = replace(meant, called=time.monotonic())
        value, is_swap, tag = meant.value, meant.kind == "swap", ""
        try:
            tag = call(**asked).get("ETag", "")
            made = replace(made, answered=time.monotonic(), swapped=True if is_swap else None)
        except ClientError as error:
            # Of an If-Match where there is nothing S3 says so in another word.
            if code_of(error) in ("PreconditionFailed", "NoSuchKey"):
                if not is_swap:
                    raise
                made = replace(made, answered=time.monotonic(), swapped=False)
        except BotoCoreError:  # the connection broke: it may be made
            pass
        if tag:
            self._history.values[tag] = value
            self._tags[key] = tag
        self._history.operations[key].append(made)

    def _look(self, call: Any, key: str, asked: dict[str, str]) -> None:
        called = time.monotonic()
        try:
            got = call(**asked)
            tag = got["ETag"]
            if "Body" in got:
                value = got["Body"].read().decode()
                self._history.values.setdefault(tag, value)
                assert self._history.values[tag] == value, "an ETag stands for one state"
            else:
                value = self._history.values.get(tag, "")
                if not value:
                    return  # of a change that was not answered: who reads it will know
            self._tags[key] = tag
        except ClientError as error:
            if code_of(error) not in ("NoSuchKey", "404"):
                return
            value = ABSENT
        except BotoCoreError:
            return
        seen = Operation("read", value, called, time.monotonic())
        self._history.operations[key].append(seen)


@pytest.mark.plain("keys of S3 are names where nothing proves who calls")
def test_one_order_explains_what_programs_are_told_while_nodes_are_killed() -> None:
    with LocalCluster(datanodes=2, namenodes=3, gateways=2) as cluster:
        clients = [
            s3_client(f"http://{each.member.s3_listen}", max_pool_connections=PROGRAMS)
            for each in cluster.gateways
        ]
        clients[0].create_bucket(Bucket=BUCKET)
        history, stop = History(), threading.Event()
        programs = [Program(number, clients, history) for number in range(PROGRAMS)]

        def wait_steps() -> None:
            wanted = [each.finished + STEPS for each in programs]
            wait_until(
                lambda: all(
                    each.finished >= least for each, least in zip(programs, wanted, strict=True)
                ),
                what="the programs",
            )

        with ThreadPoolExecutor(PROGRAMS) as pool:
            runs = [pool.submit(each.run, stop) for each in programs]
            try:
                wait_steps()
                leader = cluster.wait_leader()
                leader.kill()
                wait_steps()
                leader.start()
                cluster.gateways[1].kill()
                cluster.gateways[1].start()
                wait_steps()
            finally:
                stop.set()
            for run in runs:
                run.result()
    assert history.wrong() == []
    swaps = [each.swapped for each in history.known() if each.kind == "swap"]
    assert {True, False} <= {*swaps}, "conditions were met, and were not"
