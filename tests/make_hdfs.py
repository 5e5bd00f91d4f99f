"""Write docs/hdfs.md and its pictures of the states: `make generate`.

States and transitions are found by running the code (`tests/hdfs/transitions.py`), settings and
messages are looked up where they are defined: a row that names what is not there fails.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from paxosblock.base.settings import as_written, settings_of
from paxosblock.config import SECTIONS
from paxosblock.protocol import block_state, messages, replica_state
from paxosblock.protocol.block_state import HdfsBlockState
from paxosblock.protocol.replica_state import HdfsReplicaState
from tests.hdfs.transitions import NONE, Arrow, block_transitions, replica_transitions
from tests.make_api import REPOSITORY

PAGE: Final = REPOSITORY / "docs" / "hdfs.md"
PICTURES: Final = REPOSITORY / "docs" / "pictures"

HEAD: Final = """# For people who know HDFS

Made by `make generate` from the code; a test compares them.

Files, blocks, replicas, leases, hflush and hsync mean here what they mean there, and most states
keep their names. What differs is who decides: here a chunk (HDFS's packet) is agreed on by Paxos
among the replicas, and the length of a block is decided once, in the NameNodes' replicated log,
before any replica is finalized. So a recovery never compares the lengths of finalized and
unfinished replicas, and a NameNode that restarts has nothing to restore.
[PROTOCOL.md](../paxosblock/protocol/PROTOCOL.md) has the rules that the pages name (K1, D4, ...),
[departures.md](departures.md) tells what we do otherwise on purpose.

The rows of HDFS's own design (*Append/Hflush/Read Design*, HDFS-265) are tests: its table of
lease recovery (section 6.4) in `tests/hdfs/test_lease_recovery.py`, of block recovery (6.5) in
`test_block_recovery.py`, of block reports (8.3) in `test_block_reports.py`, and its two diagrams
(9) in `test_diagrams.py`. `test_known_bugs.py` has a test for each of HDFS-4504, 4882, 5016,
5557, 5558, 6867, 6937 and 7342, which shows that the defect is not here.
"""

REPLICAS: Final = """## Replicas

| HDFS's state | is here |
|---|---|"""

REPLICA_TEXT: Final = """
![The states of a replica](pictures/replica-states.svg)

A Delete (D7), which only a storage that is no member gets, leads from each state to none. All that
can happen, found by asking a replica in each state every question:

| from | by | to |
|---|---|---|"""

BLOCKS: Final = """
## Blocks

| HDFS's state | is here |
|---|---|"""

BLOCK_TEXT: Final = """
They are kept in the NameNodes' log, unlike there, but for the last step: how many members hold a
block is what DataNodes report.

![The states of a block](pictures/block-states.svg)

| from | by | to |
|---|---|---|"""

MESSAGES_TEXT: Final = """
## Messages

| HDFS | here | |
|---|---|---|"""

MESSAGES: Final = (
    ("OP_WRITE_BLOCK, stage PIPELINE_SETUP_CREATE", messages.Create),
    ("a packet", messages.Write),
    ("the ack of a packet, from all of the pipeline", messages.Vote),
    ("initReplicaRecovery", messages.NextGS),
    ("its answer, ReplicaRecoveryInfo", messages.LastVote),
    (
        "updateReplicaUnderRecovery; OP_WRITE_BLOCK with a new generation stamp",
        messages.RecoveryWrite,
    ),
    ("RecoveryInProgressException, ReplicaNotFoundException and the like", messages.Nack),
    ("finalizeBlock, and OP_WRITE_BLOCK to a target of a copy", messages.Finalize),
    ("blockReceived", messages.Finalized),
    ("getReplicaVisibleLength", messages.Read),
    ("BlockCommand DNA_INVALIDATE", messages.Delete),
    ("updatePipeline, and its answer", messages.Grant),
)

SETTINGS_TEXT: Final = """
## Users and permissions

They are HDFS's: owner, group, mode, sticky bit, superuser and supergroup, the rules of its
Permissions Guide, its words (`Permission denied: user=nobody, access=WRITE, inode="/dir":...`), and
`HADOOP_USER_NAME` where nothing proves a user's name. [security.md](security.md#permissions) has
the table of requests, [departures.md](departures.md) where ours are stricter.

## Times, sizes and limits

All settings are in [settings.md](settings.md).

| HDFS | its default | here | default |
|---|---|---|---|"""

SETTINGS: Final = (
    ("dfs.heartbeat.interval", "3 s", "namenode.heartbeat_interval"),
    ("dfs.namenode.stale.datanode.interval", "30 s", "namenode.datanode_stale_after"),
    (
        "dfs.namenode.heartbeat.recheck-interval, dead after twice that and ten beats",
        "10.5 min",
        "namenode.datanode_dead_after",
    ),
    ("the same: it copies at once", "", "namenode.replicate_after"),
    ("dfs.namenode.lease soft limit", "1 min", "namenode.lease_soft_limit"),
    ("dfs.namenode.lease-hard-limit-sec", "20 min", "namenode.lease_hard_limit"),
    ("dfs.client.socket-timeout, for a packet's ack", "60 s", "client.vote_timeout"),
    ("the same, for a node that hangs", "60 s", "client.hung_after"),
    ("the same, for a disk that hangs", "60 s", "client.disk_hung_after"),
    ("dfs.permissions.enabled", "true", "namenode.permissions"),
    ("dfs.permissions.superusergroup", "supergroup", "namenode.supergroup"),
    ("fs.permissions.umask-mode", "022", "client.umask"),
    ("fs.trash.interval", "0", "client.trash_interval"),
    ("hadoop.user.group.static.mapping.overrides", "", "namenode.groups"),
    ("dfs.replication", "3", "namenode.replication"),
    ("dfs.namenode.replication.min", "1", "namenode.min_replication"),
    ("dfs.blocksize", "128 MiB", "namenode.block_size"),
    ("dfs.client-write-packet-size", "64 KiB", "namenode.chunk_size"),
    ("dfs.client.write.max-packets-in-flight", "80", "namenode.window"),
    ("dfs.blockreport.intervalMsec", "6 h", "datanode.block_report_interval"),
    ("dfs.namenode.safemode.threshold-pct", "0.999", "namenode.safe_mode_threshold"),
    ("dfs.namenode.safemode.extension", "30 s", "namenode.safe_mode_extension"),
    ("dfs.namenode.replication.max-streams", "2", "namenode.copies_per_source"),
    ("dfs.datanode.balance.bandwidthPerSec", "100 MiB/s", "namenode.balance_bandwidth"),
    ("dfs.datanode.scan.period.hours", "504", "datanode.scrub_period"),
    (
        "dfs.block.scanner.volume.bytes.per.second",
        "1 MiB/s",
        "datanode.scrub_bandwidth",
    ),
    ("dfs.datanode.du.reserved", "0", "datanode.reserved_space"),
    ("net.topology.script.file.name", "", "datanode.rack"),
)

TAIL: Final = """
The commands are those of `hdfs dfs` and `hdfs dfsadmin`: [cli.md](cli.md).
"""

#: HDFS's words for the events of the tables, where they are other ones.
WORDS: Final[Mapping[str, str]] = {
    "Create": "a client adds the block",
    "NextGS": "initReplicaRecovery",
    "RecoveryWrite of a SEAL": "block recovery",
    "RecoveryWrite of a REBUILD": "pipeline recovery",
    "RecoveryWrite of an APPEND": "append",
    "Finalize": "close, block recovery, replication",
    "Delete": "invalidate",
    "K1 AddBlock": "addBlock",
    "K2 allocate a SEAL": "lease recovery",
    "K5 a SEAL decides": "commitBlockSynchronization",
    "K6 the writer ends the block": "addBlock, completeFile",
    "K7 an APPEND is installed": "append",
    "a member reports it": "blockReceived, block report",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the states in a picture, in pixels of the middle of each."""

    title: str
    width: int
    height: int
    places: Mapping[str, tuple[int, int]]


REPLICA_LAYOUT: Final = Layout(
    "The states of a replica",
    900,
    560,
    {
        NONE: (95, 250),
        HdfsReplicaState.TEMPORARY.value: (95, 520),
        HdfsReplicaState.RBW.value: (330, 50),
        HdfsReplicaState.RWR.value: (805, 50),
        HdfsReplicaState.RUR.value: (805, 350),
        HdfsReplicaState.FINALIZED.value: (500, 520),
    },
)
BLOCK_LAYOUT: Final = Layout(
    "The states of a block",
    900,
    360,
    {
        NONE: (90, 70),
        HdfsBlockState.UNDER_CONSTRUCTION.value: (380, 70),
        HdfsBlockState.UNDER_RECOVERY.value: (380, 290),
        HdfsBlockState.COMMITTED.value: (780, 290),
        HdfsBlockState.COMPLETE.value: (780, 70),
    },
)
BOX_HALF: Final = (85, 20)


def page() -> str:
    """Return docs/hdfs.md."""
    return "\n".join(
        [
            HEAD,
            REPLICAS,
            *(f"| {name.value} | {_when_replica(name)} |" for name in HdfsReplicaState),
            REPLICA_TEXT,
            *_rows(replica_transitions()),
            BLOCKS,
            *(f"| {name.value} | {_when_block(name)} |" for name in HdfsBlockState),
            BLOCK_TEXT,
            *_rows(block_transitions()),
            MESSAGES_TEXT,
            *(f"| {theirs} | {ours.__name__} | {_told(ours)} |" for theirs, ours in MESSAGES),
            SETTINGS_TEXT,
            *_settings(),
            TAIL,
        ]
    )


def _rows(arrows: Iterable[Arrow]) -> Iterator[str]:
    for arrow in arrows:
        words = WORDS.get(arrow.event)
        theirs = f" ({words})" if words else ""
        yield f"| {arrow.before} | {arrow.event}{theirs} | {arrow.after} |"


def _when_replica(name: HdfsReplicaState) -> str:
    rows = [key for key, value in replica_state.TABLE.items() if value is name]
    folders = sorted({folder.value for folder, _, _ in rows})
    promised = {promised for _, promised, _ in rows}
    again = {again for _, _, again in rows}
    told = [f"in {' or '.join(folders)}"]
    if len(promised) == 1 and folders != ["temporary"]:
        told.append("promised more than it accepted" if promised == {True} else "promised no more")
    if len(again) == 1:
        told.append("its process restarted" if again == {True} else "its process did not restart")
    return ", ".join(told)


def _when_block(name: HdfsBlockState) -> str:
    rows = [key for key, value in block_state.TABLE.items() if value is name]
    ((state, *_),) = {(record.value,) for record, _ in rows}
    enough = {enough for _, enough in rows}
    if len(enough) == 2:
        return f"a record that is {state}"
    count = "at least" if enough == {True} else "fewer than"
    return f"a record that is {state}; {count} `min_replication` members hold that version"


def _told(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _settings() -> Iterator[str]:
    known = {
        f"{config.section}.{name}": (setting, getattr(config(), setting.attribute))
        for config in SECTIONS
        for name, setting in settings_of(config).items()
    }
    for theirs, default, ours in SETTINGS:
        setting, value = known[ours]
        yield f"| {theirs} | {default} | `{ours}` | `{as_written(setting, value)}` |"


def picture(layout: Layout, arrows: Iterable[Arrow]) -> str:
    """Return an SVG of the states and what leads from one to another."""
    labels: dict[tuple[str, str], list[str]] = {}
    for arrow in arrows:
        if arrow.event != "Delete":
            labels.setdefault((arrow.before, arrow.after), []).append(arrow.event)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {layout.height}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f"  <title>{layout.title}</title>",
        "  <defs>",
        '    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"'
        ' markerHeight="8" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#555"/></marker>',
        "  </defs>",
        f'  <rect width="{layout.width}" height="{layout.height}" fill="#fff"/>',
    ]
    for (before, after), events in labels.items():
        bent = 28 if (after, before) in labels else 0
        lines += _edge(layout.places[before], layout.places[after], _short(events), bent)
    for state, (x, y) in layout.places.items():
        half_w, half_h = BOX_HALF
        lines += [
            f'  <rect x="{x - half_w}" y="{y - half_h}" width="{2 * half_w}"'
            f' height="{2 * half_h}" rx="8" fill="#e8f1fb" stroke="#555"/>',
            f'  <text x="{x}" y="{y + 5}" text-anchor="middle" font-weight="bold">'
            f"{escape(state.replace('_', ' '))}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def _short(events: list[str]) -> list[str]:
    """Return the events of one arrow, those of all kinds of RecoveryWrite as one."""
    kinds = [event for event in events if event.startswith("RecoveryWrite")]
    if len(kinds) < 3:
        return events
    rest = [event for event in events if event not in kinds]
    return [*rest, "RecoveryWrite"]


def _edge(
    start: tuple[int, int], end: tuple[int, int], events: list[str], bent: int
) -> Iterator[str]:
    (x1, y1), (x2, y2) = _border(start, end), _border(end, start)
    length = math.hypot(x2 - x1, y2 - y1)
    across_x, across_y = -(y2 - y1) / length * bent, (x2 - x1) / length * bent
    control_x, control_y = (x1 + x2) / 2 + 2 * across_x, (y1 + y2) / 2 + 2 * across_y
    share = 0.36  # of the way: lines there and back, or that cross, keep their words apart
    words_x = x1 + share * (x2 - x1) + across_x
    words_y = y1 + share * (y2 - y1) + across_y
    yield (
        f'  <path d="M{x1:.0f} {y1:.0f} Q{control_x:.0f} {control_y:.0f} {x2:.0f} {y2:.0f}"'
        ' fill="none" stroke="#555" stroke-width="1.5" marker-end="url(#tip)"/>'
    )
    top = words_y + 4 - 7 * (len(events) - 1)
    for number, event in enumerate(events):
        yield (
            f'  <text x="{words_x:.0f}" y="{top + 15 * number:.0f}" text-anchor="middle"'
            f' stroke="#fff" stroke-width="4" paint-order="stroke">{escape(event)}</text>'
        )


def _border(inside: tuple[int, int], towards: tuple[int, int]) -> tuple[float, float]:
    """Return where the line from the middle of one box to another leaves the first."""
    (x, y), (to_x, to_y) = inside, towards
    half_w, half_h = BOX_HALF
    dx, dy = to_x - x, to_y - y
    scale = min(half_w / abs(dx) if dx else math.inf, half_h / abs(dy) if dy else math.inf)
    return x + dx * scale, y + dy * scale


def pictures() -> dict[str, str]:
    """Return the pictures by their file's name."""
    return {
        "replica-states.svg": picture(REPLICA_LAYOUT, replica_transitions()),
        "block-states.svg": picture(BLOCK_LAYOUT, block_transitions()),
    }


def main() -> None:
    """Write the page and the pictures."""
    PAGE.write_text(page(), encoding="utf-8")
    for name, drawn in pictures().items():
        (PICTURES / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
