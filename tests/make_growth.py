"""Write docs/growth.md: `make generate`.

The tables are computed from the records of benchmarks/results by `benchmarks/on_paper.py`.
"""

from __future__ import annotations

from typing import Final

from benchmarks.on_paper import REPLICAS_BYTES, Cost, OnPaper, Shape, measured, on_paper
from benchmarks.record import read_records
from benchmarks.reporting import figure
from tests.make_api import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "growth.md"
RECORDS: Final = REPOSITORY / "benchmarks" / "results" / "growth.jsonl"
SHAPES: Final = (
    Shape(10**7, 100, 1),
    Shape(10**8, 1000, 1),
    Shape(10**8, 1000, 8),
    Shape(10**8, 1000, 32),
)

HEAD: Final = """# Growth: 100,000,000 files and 1,000 DataNodes, on paper

Made by `make generate` from the records in `benchmarks/results`; a test compares them. Nothing on
this page was run at this size: 10,000,000 files and eight DataNodes are the most that
[was](../benchmarks/README.md). The costs are measured, the sizes are multiplied
(`benchmarks/on_paper.py`), and what is built for it is nothing yet.

## What one thing costs

Of the NameNode that leads two others, on one processor of the machine of the records and a Python
built [without profiles](../benchmarks/README.md#the-interpreter).

| what | costs | case |
|---|---|---|"""

SIZES_HEAD: Final = """
## What that makes of a cluster

Files of one block of 128 MiB in three replicas, and the settings as shipped. A *group* is three
NameNodes that keep one catalog; today there is one. Figures are those of one group's leader.

| files, DataNodes, groups | {shapes} |
|---|{rule}"""

TAIL: Final = """
A DataNode reports to all three NameNodes of a group, so that memory is needed three times. A new
leader counts what it heard as a follower, and asks for all of it again before it copies anything.
Later walks over all blocks go at 1,000 blocks a second: {days:.1f} days for one group.

## What breaks first

In this order, with one group:

1. **A fail-over holds copies for {reported:.0f} minutes.** Writers and readers go on after a
   second, but a DataNode that is lost meanwhile stays lost for so long.
2. **Memory: {memory:.0f} GiB at each NameNode**, nearly all of it for who reported which block, as
   dicts and sorted lists of Python. The catalog itself, which is RocksDB's, takes
   {catalog:.1f} GiB more than an empty one.
3. **{creates:,.0f} files a second are all that the cluster makes**, however many DataNodes there
   are: all changes are decided on one thread.
4. **A lost DataNode takes {healing:.0f} minutes of that thread** for its copies, so changes of
   names slow down by as much.
5. What looks at everything (`fsck /`, `content_summary` of the root, a list of all names) takes
   {listed:.0f} minutes and more.

What does not break: heartbeats, full reports, which are spread over hours, a restart, which reads
the log since the last flush, and the length of a turn of the loop, which depends on slices and not
on sizes; but beyond 5,000,000 files one of 51 ms was seen, and nobody has looked beyond 10,000,000.

## Smaller steps that come before groups

* **A leader that believes what it heard as a follower.** Each storage counts its changes; a
  follower that has all of them up to the number in the heartbeat has heard everything, and need not
  ask. The first of the limits above becomes 1,000 comparisons.
* **Replicas in arrays.** The block's number in eight bytes and the storage's in two, sorted by
  storage: 30 bytes a block in place of {replicas}.
* **A faster interpreter** first, then the codec, the tree and the draft in a compiled module.

## The design that carries further: groups for subtrees

**Groups.** Each has three NameNodes (processes; a machine has one of several groups, so all its
processors work), its own log, catalog and leader. The upper bits of numbers of files and blocks are
the group's, so a number says who knows it, and nothing is ever renumbered: a block stays with the
group that made it for as long as its file does.

**The table** says which subtree is whose: a path, a group, a count of its changes. It is a few keys
in the catalog of group 0, changed there by compare-and-set like everything else, so it is as
durable, and needs no service of its own. A client reads it with its first call and keeps it.

**The table is only a hint.** What decides is a key in the group's own catalog: *this subtree is
mine since change N of the table*. A group that is asked for another one's path answers `Moved(N)`,
and the client reads the table again. So an old table costs a call and is never wrong, and no client
must hear of a change in time.

**Joints.** In its parent a subtree's root is an entry of its own kind, with the group's number. A
list of the parent shows it without asking; `stat` of it asks the group. The rights on the way to
a root are part of the table, and a `chmod` above it is a change of the table: group 0 first writes
it down, then each group below it takes it, and only then is it answered.

**To move a subtree** its owner writes `leaving`, from which on changes below it are answered with
*try again*. It sends the keys as a checkpoint, as a follower gets a table today, then the entries
since. The new owner writes them under `arriving`. **The compare-and-set of the table is the
instant at which it moves**; whoever starts with `leaving` or `arriving` asks group 0 which of the
two it is. The answers to requests that were named (`Once`) are keys, and move with it, so a retry
finds its answer.

**Inside one group everything stays as it is**: renames, transactions, snapshots, quotas, leases,
recoveries. Across groups:

| | |
|---|---|
| rename, concat, a transaction | refused, as between file systems; so does HDFS's federation |
| snapshot, quota, zone above a joint | refused: there is no moment that is the same in two groups |
| `content_summary`, `fsck`, `ls -R` | the client adds up what groups answer, and says so |
| users, access keys, admin states of DataNodes | in group 0; others follow its changes |

**DataNodes** stay one process for all groups. A report already is of a range of blocks, so each
group gets its own range. Heartbeats go to all of them: as the table above shows, their share stays
the same in each group while all else shrinks, so a DataNode with nothing new for a group says
so every ten seconds only. Each group sees the free room that all of them use; a DataNode that is
full refuses, as today.

**What breaks next.** One directory cannot be split, so a single hot one has what one leader gives.
With 32 groups a DataNode has 96 connections and the machines 96 processes. Group 0 is needed for
changes of the table, not for calls: while it has no leader nothing moves, and all else goes on.

**How it would be shown to be right**: the move as a state machine without I/O, explored in every
order with crashes of both owners and of group 0 (never two owners, never none for good); the
histories of names in tests/services checked across a move; lives with two groups on simulated
disks.
"""


def growth_page() -> str:
    """Return the page."""
    costs = measured(read_records([RECORDS]))
    found = [on_paper(costs, shape) for shape in SHAPES]
    one = found[1]
    shapes = " | ".join(f"{each.files:,}, {each.datanodes:,}, {each.groups}" for each in SHAPES)
    tail = TAIL.format(
        days=SHAPES[1].files / 1000 / 86400,
        reported=one.reported_again_s / 60,
        memory=one.memory_gib,
        catalog=costs.file_bytes.value * SHAPES[1].files / 2**30,
        creates=one.creates_per_s,
        healing=costs.copy_us.value * SHAPES[1].replicas / SHAPES[1].datanodes / 60e6,
        listed=one.listed_s / 60,
        replicas=REPLICAS_BYTES,
    )
    return "\n".join((
        HEAD,
        *(f"| {each.what} | {_figure(each)} | `{each.case}` |" for each in costs),
        f"| memory for what is reported of a block of three replicas | {REPLICAS_BYTES} bytes | "
        "`REPLICAS_BYTES` in `benchmarks/on_paper.py` |",
        SIZES_HEAD.format(shapes=shapes, rule="---|" * len(SHAPES)),
        *_rows(found),
        tail,
    )).rstrip() + "\n"  # fmt: skip


def _figure(cost: Cost) -> str:
    return f"{figure(cost.value)} {cost.unit}"


def _rows(found: list[OnPaper]) -> list[str]:
    cells = (
        ("memory of each NameNode", [f"{each.memory_gib:.1f} GiB" for each in found]),
        ("heartbeats, of its thread", [f"{each.heartbeats:.1%}" for each in found]),
        ("full reports, of its thread", [f"{each.reports:.1%}" for each in found]),
        ("all reports again after a fail-over", [_time(each.reported_again_s) for each in found]),
        ("first walk over all blocks", [_time(each.pass_s) for each in found]),
        (
            "a lost DataNode's blocks whole again, at the soonest",
            [_time(each.whole_again_s) for each in found],
        ),
        (
            "files made and closed, all groups together",
            [f"{each.creates_per_s:,.0f} /s" for each in found],
        ),
        ("a list of all names", [_time(each.listed_s) for each in found]),
    )
    return [f"| {name} | {' | '.join(those)} |" for name, those in cells]


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    PAGE.write_text(growth_page(), encoding="utf-8")
