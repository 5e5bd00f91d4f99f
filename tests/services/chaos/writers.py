"""Writers as a campaign sees them: processes, what they were promised, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from paxosblock.protocol.types import Durability, StorageId
from tests.fork_server import Program
from tests.services.chaos.application import Told
from tests.waiting import wait_until

PACE_S: Final = 0.02
"""Between two flushes of a writer that writes all the time."""
SETTINGS: Final = {
    "PAXOSBLOCK_CLIENT_BLOCK_SIZE": "256KiB",
    "PAXOSBLOCK_CLIENT_CHUNK_SIZE": "16KiB",
}
"""Blocks are short, so that many begin; everything else is as it is shipped."""
PATIENCE_S: Final = 60.0
"""For a writer to get an answer: it tries for half of that, and the machine is busy."""


class Writer:
    """A process that writes a file, or is idle between the turns it is given."""

    def __init__(
        self, url: str, path: str, durability: Durability, folder: Path, *, idle: bool
    ) -> None:
        """Start it; `folder` gets what it says on standard error. `created` comes next."""
        self.path = path
        self.durability = durability
        self.idle = idle
        self.told: list[Told] = []
        self._errors = folder / f"{path.strip('/').replace('/', '-')}.stderr"
        command = [sys.executable, "-m", "tests.services.chaos.application", url, path]
        command += ["--durability", durability.value]
        command += ["--idle"] if idle else ["--pace", str(PACE_S)]
        with self._errors.open("w") as errors:
            self._process = Program(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | SETTINGS,
            )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __repr__(self) -> str:
        kind = "idle" if self.idle else "steady"
        return f"<{kind} writer of {self.path}, {self.acknowledged} bytes acknowledged>"

    @property
    def running(self) -> bool:
        """True while its process exists."""
        return self._process.poll() is None

    @property
    def acknowledged(self) -> int:
        """Bytes that no reader may miss from now on."""
        return self.told[-1].length if self.told else 0

    @property
    def closed(self) -> bool:
        """True once its file was closed by itself."""
        return bool(self.told) and self.told[-1].closed

    @property
    def members(self) -> tuple[StorageId, ...]:
        """The storages of its latest acknowledgement."""
        return self.told[-1].members if self.told else ()

    def wait_created(self) -> None:
        """Wait until its file is there."""
        self._wait(1)

    def wait_success(self, begun_after_s: float) -> None:
        """Wait until something is acknowledged that it began after this instant."""
        self._wait_until(lambda: bool(self.told) and self.told[-1].begun_s > begun_after_s)

    def wait_next_block(self) -> None:
        """Wait until something is acknowledged in another block than now."""
        block = self.told[-1].block
        self._wait_until(lambda: self.told[-1].block != block)

    def give_turn(self) -> None:
        """Let an idle writer write once, and wait until that is acknowledged."""
        assert self._process.stdin is not None
        before = len(self.told)
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()
        self._wait(before + 1)

    def longest_wait_s(self, since_s: float) -> float:
        """The longest time without an acknowledgement since this instant."""
        ends = [told.at_s for told in self.told if told.at_s > since_s]
        gaps = zip([since_s, *ends], ends, strict=False)
        return max((end - start for start, end in gaps), default=0.0)

    def ask_to_close(self) -> None:
        """Let it close its file, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> None:
        """Wait until it has closed its file."""
        if not self._process.stdin or not self._process.stdin.closed:
            self.ask_to_close()
        self._end()
        assert self.closed, self._words("ended with its file open")

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._words("does not end")) from None
        self._listener.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        decoder = msgspec.json.Decoder(Told)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # or it was killed in the middle of it
                self.told.append(decoder.decode(line))

    def _wait(self, count: int) -> None:
        self._wait_until(lambda: len(self.told) >= count)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        try:
            wait_until(lambda: condition() or not self.running, PATIENCE_S)
        except AssertionError:
            raise AssertionError(self._words(f"got no answer for {PATIENCE_S:g} s")) from None
        self._listener.join(0 if self.running else PATIENCE_S)
        assert condition(), self._words("ended by itself")

    def _words(self, what: str) -> str:
        return f"{self} {what}; it said: {self._errors.read_text()[-2000:]}"
