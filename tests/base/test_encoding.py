"""Decoders: the same for all who ask, and no danger to threads that ask at once."""

from __future__ import annotations

import subprocess
import sys

from paxosblock.api.datanode import FIND_REPLICA
from paxosblock.base.encoding import json_decoder, msgpack_decoder

FIRST_USES = """
import sys, threading
import msgspec
from paxosblock.base.encoding import msgpack_decoder

sys.setswitchinterval(1e-6)
for number in range(500):
    inner = msgspec.defstruct("Inner", [("number", int), ("name", str)], frozen=True)
    outer = msgspec.defstruct("Outer", [("many", tuple[inner, ...]), ("named", dict[str, inner])])
    one = inner(number, "name")
    written = msgspec.msgpack.encode(outer((one, one), {"name": one}))
    together = threading.Barrier(4)

    def read():
        together.wait()
        assert msgpack_decoder(outer).decode(written).many == (one, one)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_decode_a_struct_for_the_first_time_together_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USES], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_decoder_is_built_once() -> None:
    assert msgpack_decoder(FIND_REPLICA.answer) is msgpack_decoder(FIND_REPLICA.answer)
    assert json_decoder(int) is json_decoder(int)
