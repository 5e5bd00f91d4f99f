"""The explorations, by name: bounds, what they are about, and the rules they must reach.

`CI` runs with every test run, `LARGE` is `make explore`. Their state counts are pinned, so that a
change of the protocol or of the model shows as a changed number that a commit has to explain.
"""

from __future__ import annotations

from paxosblock.protocol.types import Durability
from tests.protocol.world import Budget, Config

PROPOSER = ("P1", "P2", "P3", "P4", "P5")
SEAL = ("K1", "K2", "K5", "K6", "K11", "D2", "D3", "D4", "D5", *PROPOSER, "W2", "W3", "W6", "W7")
FORCE = ("P2-force", "K5", "K6", "D2", "D3", "D4", "D5", *PROPOSER)
READ = ("K10", "R-fin")
RESTORE = ("K14-backup", "K14-restore", "K14-learn", "K14")
MEMORY = Durability.MEMORY

CI: dict[str, tuple[Config, int]] = {
    "seal": (
        Config(
            "one recovery races with the writer, window 1",
            chunks=2,
            budget=Budget(seals=1),
            must_fire=(*SEAL, "D4-fetch", "D5-fetch", "D5-short", "D2-fenced"),
        ),
        817,
    ),
    "two-seals": (
        Config(
            "two recoveries race with each other and with the writer",
            chunks=1,
            budget=Budget(seals=2),
            must_fire=(*SEAL, "D3-fenced", "D4-fenced", "D4-again"),
        ),
        8492,
    ),
    "window-2": (
        Config(
            "one recovery, two chunks on their way",
            chunks=3,
            window=2,
            budget=Budget(seals=1),
            must_fire=(*SEAL, "D2-gap"),
        ),
        4277,
    ),
    "create": (
        Config(
            "a recovery while the block is being created",
            chunks=1,
            created=False,
            budget=Budget(seals=1),
            must_fire=(*SEAL, "W1", "D1-none", "D1-again", "D1-fenced", "D3-none", "D4-none"),
        ),
        694,
    ),
    "create-and-write": (
        Config(
            "a recovery while the block is being created with its first chunk",
            chunks=1,
            created=False,
            write_with_create=True,
            budget=Budget(seals=1),
            must_fire=(*SEAL, "W1", "W1-write", "D1-none", "D1-again", "D1-fenced", "D3-none"),
        ),
        1378,
    ),
    "quorum-read": (
        Config(
            "two R2 reads around a recovery",
            chunks=1,
            budget=Budget(seals=1),
            reads=("R2", "R2"),
            must_fire=(*SEAL, *READ, "R2", "R2-stale", "D6"),
        ),
        27_021,
    ),
    "mixed-reads": (
        Config(
            "an R2 read, then an R1 read, window 2, no recovery",
            chunks=2,
            window=2,
            reads=("R2", "R1"),
            must_fire=("K6", "D5", *READ, "R1", "R2"),
        ),
        2324,
    ),
    "relaxed-read": (
        Config(
            "R3 reads around a recovery",
            chunks=2,
            budget=Budget(seals=1),
            reads=("R3", "R3"),
            must_fire=(*SEAL, *READ, "R3"),
        ),
        3565,
    ),
    "rebuild": (
        Config(
            "the writer goes on with another member",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1),
            must_fire=("K3", "K6", "K7", *PROPOSER, "P6", "W4", "W5", "D4-none"),
        ),
        1044,
    ),
    "rebuild-twice": (
        Config(
            "a REBUILD with another member, tried twice, or one after the other",
            chunks=1,
            members=2,
            storages=3,
            targets=((0, 2),),
            budget=Budget(rebuilds=2),
            must_fire=("K3", "K6", "K7", *PROPOSER, "P6", "K11-lost", "W4", "W5", "D3-fenced"),
        ),
        8031,
    ),
    "append-rebuild": (
        Config(
            "an appender and the fenced writer before it ask for a REBUILD",
            chunks=2,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(appends=1, rebuilds=1),
            must_fire=("K3", "K4", "K6", "K7", *PROPOSER, "P6", "W4", "W5", "D2-fenced"),
        ),
        2503,
    ),
    "append": (
        Config(
            "a finalized block is opened again, and sealed",
            chunks=1,
            budget=Budget(seals=1, appends=1),
            must_fire=(*SEAL, "K4", "K7", "P6"),
        ),
        2233,
    ),
    "append-read": (
        Config(
            "a quorum read around an APPEND",
            chunks=1,
            budget=Budget(appends=1),
            reads=("R2",),
            must_fire=("K4", "K6", "K7", "P6", "R2", "R-fin"),
        ),
        1054,
    ),
    "append-given-up": (
        Config(
            "an APPEND is given up at every step (K9), or the block is cut",
            chunks=1,
            budget=Budget(appends=1, truncates=1),
            must_fire=("K4", "K6", "K7", "K8", "K9", "P6", "D4", "D5-stale"),
        ),
        341,
    ),
    "two-appenders": (
        Config(
            "two APPENDs at once, or one after the other, each with a writer of its own",
            chunks=1,
            budget=Budget(appends=2),
            must_fire=("K4", "K6", "K7", "P6", "D4-fenced"),
        ),
        274,
    ),
    "truncate": (
        Config(
            "a finalized block is cut while an append is set up",
            chunks=2,
            budget=Budget(appends=1, truncates=1),
            must_fire=("K4", "K7", "K8", "K9", "P3", "P4", "P5", "P6", "D4", "D5", "D5-stale"),
        ),
        750,
    ),
    "truncate-read": (
        Config(
            "a reader of a finalized block while it is cut, and longer again by an APPEND",
            chunks=1,
            budget=Budget(appends=1, truncates=1),
            reads=("R-fin",),
            must_fire=("K4", "K7", "K8", "K9", "R-fin", "R-fin-again", "R-fin-cut"),
        ),
        2754,
    ),
    "truncate-copy": (
        Config(
            "a block is cut while a copy of it is made, and a member leaves",
            chunks=1,
            storages=4,
            budget=Budget(truncates=1, copies=1, leaves=1, deletes=1),
            must_fire=("K8", "K9", "K12", "K12-copy", "K13", "D5", "D7", "D7-asked"),
        ),
        6210,
    ),
    "copy": (
        Config(
            "an abandoned REBUILD leaves a log where a copy of the finalized block is made",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, copies=1),
            must_fire=("K3", "K6", "K12-copy", "K12", "D4-none", "D5-fetch"),
        ),
        2230,
    ),
    "copy-goes-on": (
        Config(
            "a copy is overtaken by an APPEND or a cut, and goes on from what it has",
            chunks=2,
            members=2,
            targets=((0, 1),),
            budget=Budget(appends=1, truncates=1, copies=2),
            continues=True,
            must_fire=("K4", "K7", "K8", "K12", "K12-copy", "D5-none", "D5-goes-on"),
        ),
        8546,
    ),
    "delete": (
        Config(
            "a REBUILD leaves a storage behind: its Delete races with a copy made there",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, copies=1, deletes=1),
            must_fire=("K3", "K7", "K12", "D7", "D7-asked"),
        ),
        4438,
    ),
    "delete-append": (
        Config(
            "an APPEND leaves a storage behind: its Delete, and what else is on its way there",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(appends=1, deletes=1),
            must_fire=("K4", "K7", "D7", "D7-asked"),
        ),
        273,
    ),
    "leave": (
        Config(
            "a member leaves and comes back by a copy; its Delete arrives any time later",
            chunks=1,
            budget=Budget(leaves=1, copies=1, deletes=1),
            must_fire=("K6", "K12", "K13", "P5", "D5-none", "D7", "D7-asked"),
        ),
        115,
    ),
    "leave-read": (
        Config(
            "an R2 read while a member leaves and comes back by a copy",
            chunks=1,
            budget=Budget(leaves=1, copies=1, deletes=1),
            reads=("R2",),
            must_fire=("K6", "K12", "K13", *READ, "R2", "R2-stale", "D7"),
        ),
        3079,
    ),
    "leave-append": (
        Config(
            "a member leaves, and comes back by a copy, while an APPEND is set up",
            chunks=1,
            budget=Budget(leaves=1, appends=1, copies=1, deletes=1),
            must_fire=("K4", "K7", "K12", "K13", "P6", "D4-none", "D7", "D7-asked"),
        ),
        1532,
    ),
    "leave-damaged": (
        Config(
            "the bytes of a replica are damaged while a member leaves and comes back by a copy",
            chunks=1,
            budget=Budget(leaves=1, copies=1, deletes=1, damages=1),
            must_fire=("K12", "K13", "D7", "D9", "D9-damage"),
        ),
        462,
    ),
    "leave-two": (
        Config(
            "two of four members leave, one after the other, and one comes back by a copy",
            chunks=1,
            members=4,
            storages=4,
            targets=((0, 1, 2, 3),),
            budget=Budget(leaves=2, copies=1, deletes=1),
            must_fire=("K12", "K13", "P5", "D7", "D7-asked"),
        ),
        1879,
    ),
    "leave-truncate": (
        Config(
            "a member leaves while a block is cut and an APPEND is set up",
            chunks=1,
            budget=Budget(leaves=1, appends=1, truncates=1, deletes=1),
            must_fire=("K4", "K7", "K8", "K9", "K13", "P6", "D7", "D7-asked"),
        ),
        5295,
    ),
    "restore": (
        Config(
            "a backup is made and brought back around a recovery",
            chunks=1,
            budget=Budget(seals=1, restores=1, learns=1),
            must_fire=(*SEAL, *RESTORE),
        ),
        9420,
    ),
    "restore-nothing": (
        Config(
            "a backup is brought back while the block is being created with its first chunk, and "
            "an operator says that no storage has anything",
            chunks=1,
            created=False,
            budget=Budget(restores=1, learns=1),
            must_fire=("W1", "D1-none", "D1-fenced", "D3-none", "K14-nothing", *RESTORE),
        ),
        964,
    ),
    "restore-leave": (
        Config(
            "a member leaves and comes back around a backup, which is brought back",
            chunks=1,
            budget=Budget(leaves=1, copies=1, deletes=1, restores=1, learns=1),
            must_fire=("K12", "K13", "D7", *RESTORE),
        ),
        6705,
    ),
    "restore-append": (
        Config(
            "an APPEND around a backup, which is brought back",
            chunks=1,
            budget=Budget(appends=1, restores=1, learns=1),
            must_fire=("K4", "K7", "P6", *RESTORE),
        ),
        2322,
    ),
    "restart": (
        Config(
            "a DataNode process restarts during a recovery",
            chunks=2,
            budget=Budget(seals=1, restarts=1),
            must_fire=(*SEAL, "D8-restart"),
        ),
        3150,
    ),
    "volume-copy": (
        Config(
            "a config of 2: a process with a copy of a volume registers, and a recovery",
            chunks=2,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(seals=1, restarts=1, volume_copies=1),
            must_fire=("K5", "K6", *PROPOSER, "D8-restart", "D10", "D10-copy"),
        ),
        11408,
    ),
    "restart-read": (
        Config(
            "an R2 read while two processes restart, two chunks on their way",
            chunks=2,
            window=2,
            budget=Budget(restarts=2),
            reads=("R2",),
            must_fire=("K6", "D5", "D8-restart", *READ, "R2", "R2-stale", "D6"),
        ),
        5310,
    ),
    "restart-read-memory": (
        Config(
            "an R2 read (with sync) while two processes restart and a machine loses power",
            chunks=1,
            durability=MEMORY,
            budget=Budget(restarts=2, power_cuts=1),
            reads=("R2",),
            must_fire=("K6", "D5", "D8-restart", "D8-power", *READ, "R2", "R2-stale", "D6"),
        ),
        5373,
    ),
    "power-cut": (
        Config(
            "a machine in memory mode loses votes during a recovery",
            chunks=2,
            durability=MEMORY,
            budget=Budget(seals=1, power_cuts=1),
            must_fire=(*SEAL, "D8-power"),
        ),
        5427,
    ),
    "forced": (
        Config(
            "an operator gives members up, rightly or not",
            chunks=2,
            budget=Budget(forces=1),
            must_fire=(*FORCE, "D2-fenced"),
        ),
        1466,
    ),
    "forced-power-cut": (
        Config(
            "an operator gives members up after one of them lost votes",
            chunks=1,
            durability=MEMORY,
            budget=Budget(forces=1, power_cuts=1),
            must_fire=(*FORCE, "D8-power"),
        ),
        4774,
    ),
    "damaged": (
        Config(
            "the bytes of a replica are damaged during a recovery",
            chunks=1,
            budget=Budget(seals=1, damages=1),
            must_fire=(*SEAL, "D9", "D9-damage", "D9-no-copy"),
        ),
        2464,
    ),
    "unreadable": (
        Config(
            "its metadata, too: nobody knows what it promised",
            chunks=1,
            budget=Budget(seals=1, unreadable=1),
            must_fire=(*SEAL, "D9", "D9-unread", "D9-no-copy"),
        ),
        1302,
    ),
    "forgotten": (
        Config(
            "one of two storages lost records of small replicas, while the block is created",
            chunks=1,
            created=False,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(seals=1, forgets=1),
            must_fire=(*SEAL, "W1", "D11"),
        ),
        604,
    ),
    "unreadable-append": (
        Config(
            "nobody knows what a replica promised while a block is opened again, and Deletes",
            chunks=1,
            targets=((0, 1),),
            budget=Budget(appends=1, deletes=1, unreadable=1),
            must_fire=("K4", "K7", "K6", "D7", "D9", "D9-unread"),
        ),
        529,
    ),
    "torn": (
        Config(
            "a crash in the middle of accepting a recovery's log",
            chunks=1,
            budget=Budget(seals=1, torn=1),
            must_fire=(*SEAL, "D8-torn"),
        ),
        1053,
    ),
    "overtaken": (
        Config(
            "a refusal stops a proposer",
            chunks=1,
            budget=Budget(seals=2),
            nacks=True,
            must_fire=(*SEAL, "P7"),
        ),
        8980,
    ),
}

LARGE: dict[str, tuple[Config, int]] = {
    "force-and-seal": (
        Config(
            "an operator gives members up, rightly or not, while another recovery is under way",
            chunks=1,
            budget=Budget(seals=1, forces=1),
            must_fire=(*SEAL, "P2-force"),
        ),
        36604,
    ),
    "force-and-seal-power-cut": (
        Config(
            "the same, and one machine loses votes: agreement holds, acknowledged chunks may go",
            chunks=1,
            durability=MEMORY,
            budget=Budget(seals=1, forces=1, power_cuts=1),
            must_fire=(*SEAL, "P2-force", "D8-power"),
        ),
        308232,
    ),
    "three-seals": (
        Config("three racing recoveries", chunks=1, budget=Budget(seals=3), must_fire=SEAL),
        140473,
    ),
    "two-seals-window-1": (
        Config("two recoveries, two chunks", chunks=2, budget=Budget(seals=2), must_fire=SEAL),
        14967,
    ),
    "two-seals-window-2": (
        Config(
            "two recoveries, three chunks, two on their way",
            chunks=3,
            window=2,
            budget=Budget(seals=2),
            must_fire=(*SEAL, "D2-gap"),
        ),
        83256,
    ),
    "create-and-write-two-seals": (
        Config(
            "two recoveries while the block is being created with its first chunk",
            chunks=1,
            created=False,
            write_with_create=True,
            budget=Budget(seals=2),
            must_fire=(*SEAL, "W1", "W1-write", "D1-none", "D1-fenced", "D3-none", "D3-fenced"),
        ),
        26_535,
    ),
    "create-and-write-read": (
        Config(
            "two R2 reads and a recovery while the block is being created with its first chunk",
            chunks=1,
            created=False,
            write_with_create=True,
            budget=Budget(seals=1),
            reads=("R2", "R2"),
            must_fire=(*SEAL, *READ, "R2", "W1", "W1-write", "D1-none", "D3-none"),
        ),
        56_238,
    ),
    "create-two-seals": (
        Config(
            "two recoveries while the block is being created",
            chunks=1,
            created=False,
            budget=Budget(seals=2),
            must_fire=(*SEAL, "W1", "D3-none"),
        ),
        12602,
    ),
    "quorum-read-two-seals": (
        Config(
            "an R2 read around two recoveries",
            chunks=1,
            budget=Budget(seals=2),
            reads=("R2",),
            must_fire=(*SEAL, *READ, "R2", "R2-stale"),
        ),
        254_718,
    ),
    "quorum-read-window-2": (
        Config(
            "two R2 reads around a recovery, two chunks on their way",
            chunks=2,
            window=2,
            budget=Budget(seals=1),
            reads=("R2", "R2"),
            must_fire=(*SEAL, *READ, "R2", "R2-stale"),
        ),
        247_977,
    ),
    "mixed-reads-seal": (
        Config(
            "R1, then R2, around a recovery",
            chunks=2,
            budget=Budget(seals=1),
            reads=("R1", "R2"),
            must_fire=(*SEAL, *READ, "R1", "R2"),
        ),
        69_064,
    ),
    "rebuild-and-seal": (
        Config(
            "REBUILD with another or fewer members, and a SEAL",
            chunks=2,
            storages=4,
            targets=((0, 1, 3), (0, 1)),
            budget=Budget(seals=1, rebuilds=1),
            must_fire=(*SEAL, "K3", "K7", "W4", "W5"),
        ),
        127684,
    ),
    "two-rebuilds": (
        Config(
            "an abandoned REBUILD and another one, or one after the other, with fewer members",
            chunks=1,
            targets=((0, 1),),
            budget=Budget(rebuilds=2),
            must_fire=("K3", "K6", "K7", "W5"),
        ),
        10786,
    ),
    "rebuild-another-twice": (
        Config(
            "a REBUILD of three members with another one, tried twice",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=2),
            must_fire=("K3", "K6", "K7", *PROPOSER, "P6", "K11-lost", "W4", "W5"),
        ),
        29_224,
    ),
    "rebuild-either-twice": (
        Config(
            "two REBUILDs with one or another new member",
            chunks=1,
            members=2,
            storages=4,
            targets=((0, 2), (0, 3)),
            budget=Budget(rebuilds=2),
            must_fire=("K3", "K6", "K7", *PROPOSER, "P6", "K11-lost", "W4", "W5"),
        ),
        17_802,
    ),
    "rebuild-seal-read": (
        Config(
            "an R2 read around a REBUILD with another member and a SEAL",
            chunks=1,
            members=2,
            storages=3,
            targets=((0, 2),),
            budget=Budget(seals=1, rebuilds=1),
            reads=("R2",),
            must_fire=("K2", "K3", "K5", "K7", *PROPOSER, "P6", *READ, "R2", "R2-stale"),
        ),
        120_927,
    ),
    "rebuild-read": (
        Config(
            "an R2 read around a REBUILD",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1),
            reads=("R2",),
            must_fire=("K3", "K7", "R2", "R-fin"),
        ),
        31_077,
    ),
    "append-rebuild-seal": (
        Config(
            "an appender and the fenced writer before it ask for a REBUILD, and a SEAL",
            chunks=2,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(appends=1, rebuilds=1, seals=1),
            must_fire=("K2", "K3", "K4", "K5", "K6", "K7", *PROPOSER, "P6", "W4", "W5"),
        ),
        74_490,
    ),
    "append-and-seal": (
        Config(
            "APPEND with the old or another config, and a SEAL",
            chunks=2,
            storages=4,
            targets=((0, 1, 2), (0, 1, 3)),
            budget=Budget(seals=1, appends=1),
            must_fire=(*SEAL, "K4", "K7", "P6"),
        ),
        27869,
    ),
    "append-two-seals": (
        Config(
            "APPEND and two SEALs",
            chunks=2,
            budget=Budget(seals=2, appends=1),
            must_fire=(*SEAL, "K4", "K7", "P6"),
        ),
        106906,
    ),
    "two-appenders-seal": (
        Config(
            "two APPENDs with a writer of their own each, and a SEAL",
            chunks=1,
            budget=Budget(seals=1, appends=2),
            must_fire=(*SEAL, "K4", "K7", "P6"),
        ),
        11834,
    ),
    "two-appenders-given-up": (
        Config(
            "two APPENDs, one of them given up at every step (K9)",
            chunks=1,
            budget=Budget(appends=2, truncates=1),
            must_fire=("K4", "K7", "K9", "P6"),
        ),
        2385,
    ),
    "append-read-seal": (
        Config(
            "a config of 2: a quorum read around an APPEND and a SEAL",
            chunks=1,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(seals=1, appends=1),
            reads=("R2",),
            must_fire=("K4", "K5", "K7", "P6", "R2", "R-fin"),
        ),
        13967,
    ),
    "truncate-append-seal": (
        Config(
            "truncate, APPEND and SEAL in any order",
            chunks=2,
            budget=Budget(seals=1, appends=1, truncates=1),
            must_fire=(*SEAL, "K4", "K7", "K8", "K9"),
        ),
        37705,
    ),
    "copy-and-append": (
        Config(
            "a copy becomes a member while an APPEND is set up, and a SEAL",
            chunks=1,
            storages=4,
            targets=((0, 1, 2), (0, 1, 3)),
            budget=Budget(seals=1, appends=1, copies=1),
            must_fire=("K12", "K4", "K7", "K5", "K6"),
        ),
        57801,
    ),
    "copy-after-rebuild": (
        Config(
            "a REBUILD, a SEAL and a copy where the REBUILD had a member",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(seals=1, rebuilds=1, copies=1),
            must_fire=("K12", "K3", "K7", "K5", "K6"),
        ),
        105615,
    ),
    "delete-rebuild-seal": (
        Config(
            "a Delete of what a REBUILD left behind, a copy made there, and a SEAL",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(seals=1, rebuilds=1, copies=1, deletes=1),
            must_fire=(*SEAL, "K3", "K7", "K12", "P6", "D7"),
        ),
        242746,
    ),
    "delete-append-seal": (
        Config(
            "a Delete while an APPEND with the old or another config is set up, and a SEAL",
            chunks=1,
            storages=4,
            targets=((0, 1, 2), (0, 1, 3)),
            budget=Budget(seals=1, appends=1, deletes=1),
            must_fire=(*SEAL, "K4", "K7", "P6", "D7"),
        ),
        29215,
    ),
    "delete-rebuild-append": (
        Config(
            "a Delete of what a REBUILD left behind, while an APPEND asks for it again",
            chunks=1,
            storages=4,
            targets=((0, 1, 2), (0, 1, 3)),
            budget=Budget(rebuilds=1, appends=1, deletes=1),
            must_fire=("K3", "K4", "K6", "K7", "P6", "D7"),
        ),
        70015,
    ),
    "leave-seal": (
        Config(
            "a recovery, then a member leaves and comes back by a copy",
            chunks=1,
            budget=Budget(seals=1, leaves=1, copies=1, deletes=1),
            must_fire=(*SEAL, "K12", "K13", "D7"),
        ),
        6207,
    ),
    "leave-and-another-comes": (
        Config(
            "two members leave, and two copies are made, also where nobody was a member",
            chunks=1,
            storages=4,
            budget=Budget(leaves=2, copies=2, deletes=2),
            must_fire=("K12", "K13", "D7", "D7-asked"),
        ),
        18995,
    ),
    "leave-append-seal": (
        Config(
            "a member leaves beside an APPEND, and a SEAL",
            chunks=1,
            budget=Budget(seals=1, appends=1, leaves=1, deletes=1),
            must_fire=(*SEAL, "K4", "K7", "K13", "P6", "D7"),
        ),
        40792,
    ),
    "leave-truncate-append": (
        Config(
            "a member leaves while a block of two chunks is cut, and an APPEND is set up",
            chunks=2,
            budget=Budget(appends=1, truncates=1, leaves=1, deletes=1),
            must_fire=("K4", "K7", "K8", "K9", "K13", "P6", "D7"),
        ),
        12998,
    ),
    "leave-rebuild-delete": (
        Config(
            "a member leaves after a REBUILD left a replica behind, and Deletes",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, leaves=1, deletes=1),
            must_fire=("K3", "K6", "K7", "K13", "D7", "D7-asked"),
        ),
        14411,
    ),
    "leave-rebuild-copy": (
        Config(
            "a member leaves after a REBUILD left a replica behind, and a copy",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, leaves=1, copies=1),
            must_fire=("K3", "K6", "K7", "K12", "K13", "D7"),
        ),
        43447,
    ),
    "leave-rebuild-copy-delete": (
        Config(
            "a member leaves after a REBUILD left a replica behind, a copy, and Deletes",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, leaves=1, copies=1, deletes=1),
            must_fire=("K3", "K6", "K7", "K12", "K13", "D7", "D7-asked"),
        ),
        98292,
    ),
    "restore-truncate": (
        Config(
            "a block is cut and opened again by two around a backup, which is brought back",
            chunks=1,
            targets=((1, 2),),
            budget=Budget(appends=1, truncates=1, restores=1, learns=1),
            must_fire=("K4", "K7", "K8", "K9", "P6", *RESTORE),
        ),
        33388,
    ),
    "restore-deaf": (
        Config(
            "the same, and any storages are asked, however few",
            chunks=1,
            targets=((1, 2),),
            deaf=True,
            budget=Budget(appends=1, truncates=1, restores=1, learns=1),
            must_fire=("K4", "K7", "K8", "K9", "P6", *RESTORE),
        ),
        125_175,
    ),
    "restore-rebuild": (
        Config(
            "a REBUILD with another member around a backup, which is brought back",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, restores=1, learns=1),
            must_fire=("K3", "K7", "P6", *RESTORE),
        ),
        37314,
    ),
    "restart-two-seals": (
        Config(
            "a process restart and two recoveries",
            chunks=1,
            budget=Budget(seals=2, restarts=1),
            must_fire=(*SEAL, "D8-restart"),
        ),
        33117,
    ),
    "restart-read-seal": (
        Config(
            "an R2 read, two process restarts and a recovery",
            chunks=1,
            budget=Budget(seals=1, restarts=2),
            reads=("R2",),
            must_fire=(*SEAL, *READ, "D8-restart", "R2", "R2-stale"),
        ),
        114_895,
    ),
    "restart-read-rebuild": (
        Config(
            "an R2 read, a process restart and a REBUILD",
            chunks=1,
            storages=4,
            targets=((0, 1, 3),),
            budget=Budget(rebuilds=1, restarts=1),
            reads=("R2",),
            must_fire=("K3", "K7", *READ, "D8-restart", "R2", "R2-stale"),
        ),
        160_289,
    ),
    "restart-reads-memory": (
        Config(
            "two R2 reads (with sync), a process restart and a power cut, two chunks on their way",
            chunks=2,
            window=2,
            durability=MEMORY,
            budget=Budget(restarts=1, power_cuts=1),
            reads=("R2", "R2"),
            must_fire=("K6", *READ, "D8-restart", "D8-power", "R2", "R2-stale"),
        ),
        94_403,
    ),
    "restart-read-two-members": (
        Config(
            "a config of 2: an R2 read, two process restarts and a recovery, two chunks",
            chunks=2,
            window=2,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(seals=1, restarts=2),
            reads=("R2",),
            must_fire=("K5", "K6", *READ, "D8-restart", "R2", "R2-stale"),
        ),
        76_955,
    ),
    "restart-read-four-members": (
        Config(
            "a config of 4: an R2 read and two process restarts",
            chunks=1,
            members=4,
            storages=4,
            targets=((0, 1, 2, 3),),
            budget=Budget(restarts=2),
            reads=("R2",),
            must_fire=("K6", *READ, "D8-restart", "R2", "R2-stale"),
        ),
        3095,
    ),
    "two-power-cuts": (
        Config(
            "two of three machines lose votes, window 2",
            chunks=2,
            window=2,
            durability=MEMORY,
            budget=Budget(seals=1, power_cuts=2),
            must_fire=(*SEAL, "D8-power"),
        ),
        45062,
    ),
    "power-cut-read": (
        Config(
            "an R2 read (with sync) and a power cut",
            chunks=1,
            durability=MEMORY,
            budget=Budget(seals=1, power_cuts=1),
            reads=("R2",),
            must_fire=(*SEAL, "D8-power", "R2"),
        ),
        86_076,
    ),
    "all-power-cut-hsync": (
        Config(
            "all machines lose power; every vote was synced (hsync)",
            chunks=2,
            durability=MEMORY,
            hsync=True,
            budget=Budget(seals=1, power_cuts=3),
            must_fire=(*SEAL, "D8-power"),
        ),
        14148,
    ),
    "unreadable-append-seal": (
        Config(
            "nobody knows what a replica promised while a block is opened again, and sealed",
            chunks=1,
            budget=Budget(seals=1, appends=1, unreadable=1),
            must_fire=(*SEAL, "K4", "K7", "P6", "D9", "D9-unread"),
        ),
        7693,
    ),
    "damaged-append": (
        Config(
            "bytes of a replica are damaged while a finalized block is opened again, and sealed",
            chunks=1,
            budget=Budget(seals=1, appends=1, damages=1),
            must_fire=(*SEAL, "K4", "K7", "P6", "D9", "D9-damage"),
        ),
        13_651,
    ),
    "torn-two-seals": (
        Config(
            "a torn RecoveryWrite and two recoveries",
            chunks=1,
            budget=Budget(seals=2, torn=1),
            must_fire=(*SEAL, "D8-torn"),
        ),
        22370,
    ),
    "two-members": (
        Config(
            "a config of 2: recovery quorum 1, read quorum 2",
            chunks=1,
            members=2,
            storages=2,
            targets=((0, 1),),
            budget=Budget(seals=2),
            reads=("R2",),
            must_fire=("K5", "K6", "R2", "R-fin"),
        ),
        23282,
    ),
    "four-members": (
        Config(
            "a config of 4: recovery quorum 2",
            chunks=1,
            members=4,
            storages=4,
            targets=((0, 1, 2, 3),),
            budget=Budget(seals=1),
            must_fire=("K5", "K6"),
        ),
        1795,
    ),
}
