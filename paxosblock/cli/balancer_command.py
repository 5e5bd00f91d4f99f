"""`paxosblock admin balancer`: lets the NameNode that leads even out the storages, and watches."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import click
from msgspec.structs import replace

from paxosblock.api.care import BALANCE, Balance, BalanceStatus, Balancing
from paxosblock.base.units import parse_rate
from paxosblock.cli.group import Verb, read_option
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.progress_bar import progress_bar
from paxosblock.cli.text import LEAST_SHARE, counted, human_size, percent
from paxosblock.errors import PaxosBlockError

ASKS_EVERY_S: Final = 0.5


def _rate(_: click.Context, __: click.Parameter, written: str | None) -> int | None:
    rate = None if written is None else read_option(parse_rate, written)
    if rate == 0:
        raise click.BadParameter("nothing would ever be moved")
    return rate


@click.command(cls=Verb)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 100, min_open=True),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="How far the use of a storage may be from the mean.",
)
@click.option(
    "--bandwidth",
    callback=_rate,
    metavar="RATE",
    help="Bytes moved per second at most, in the whole cluster, such as 100MiB/s.  "
    "[default: the NameNode's balance_bandwidth]",
)
@click.pass_obj
def balancer(invocation: Invocation, *, threshold: float, bandwidth: int | None) -> None:
    """Move replicas from full storages to empty ones, until all are about equally full.

    \b
      $ paxosblock admin balancer --threshold 5
      balanced: 14.2 G in 117 blocks moved; the use of 4 storages is within 4.6 % of the mean, 61 %

    The use of a storage is the share of its room for blocks that is taken. Only finalized blocks of
    closed files are moved, one at a time between two storages. A block never has fewer replicas
    than before, and stays in two racks. Run it after DataNodes were added.

    You may interrupt it at any time and start it again: the NameNode stops when no command asks it
    to go on. Exit code 1 when storages are still uneven, but no block that may be moved would
    change that.
    """
    request = Balance(uuid.uuid4().hex, threshold / 100, bandwidth)
    moved = _Moved()
    try:
        with _stopped_at_the_end(invocation, request):
            status = _watch(invocation, request, moved)
    except KeyboardInterrupt:
        invocation.say(f"interrupted: {moved.text}", moved.fact("interrupted"))
        raise
    evenness = _describe_evenness(status)
    if status.phase is Balancing.STUCK:
        invocation.failures += 1
        invocation.say(f"not balanced: {moved.text}; {evenness}: {status.why}", moved.fact(status))
    else:
        invocation.say(f"balanced: {moved.text}; {evenness}", moved.fact(status))


@dataclass
class _Moved:
    """Everything that was moved, including by NameNodes that led before."""

    last: dict[str, BalanceStatus] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return sum(status.moved_blocks for status in self.last.values())

    @property
    def size_bytes(self) -> int:
        return sum(status.moved_bytes for status in self.last.values())

    @property
    def text(self) -> str:
        return f"{human_size(self.size_bytes)} in {counted(self.blocks, 'block')} moved"

    def fact(self, status: BalanceStatus | str) -> object:
        if isinstance(status, str):
            return {"phase": status, "moved_blocks": self.blocks, "moved_bytes": self.size_bytes}
        return replace(status, moved_blocks=self.blocks, moved_bytes=self.size_bytes)


@contextmanager
def _stopped_at_the_end(invocation: Invocation, request: Balance) -> Iterator[None]:
    """Tell the NameNode to stop; otherwise it notices some seconds later that no command asks
    it."""
    try:
        yield
    finally:
        with suppress(PaxosBlockError):
            invocation.call(BALANCE, replace(request, stop=True))


def _watch(invocation: Invocation, request: Balance, moved: _Moved) -> BalanceStatus:
    """Let the NameNode balance; return when there is nothing more to do."""
    status = invocation.call(BALANCE, request)
    said = False
    with progress_bar("balancing", status.left_bytes, wanted=not invocation.json) as advance:
        while True:
            before = moved.size_bytes
            moved.last[status.run] = status
            advance(moved.size_bytes - before)
            if status.phase in {Balancing.BALANCED, Balancing.STUCK}:
                return status
            if status.phase is Balancing.HELD_UP and not (said or invocation.json):
                click.echo(f"{invocation.verb}: waiting: {status.why}", err=True)
                said = True
            time.sleep(ASKS_EVERY_S)
            status = invocation.call(BALANCE, request)


def _describe_evenness(status: BalanceStatus) -> str:
    storages, within = counted(status.storages, "storage"), max(status.furthest, LEAST_SHARE)
    return f"the use of {storages} is within {percent(within)} of the mean, {percent(status.mean)}"
